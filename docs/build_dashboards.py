"""Pictures of the dashboards with the data of a running Prometheus, drawn from the dashboards' own JSON.

    .venv/bin/python -m docs.build_dashboards http://127.0.0.1:17454 --minutes 15

Grafana is no part of the embedded platform. This draws what Grafana would: each panel's queries, unit, limits and
legend, in the panel's place on the grid. It writes docs/images/dashboard-*.png with headless Chromium, and prints the
queries that found no data. Needs `./dev up` with `./dev load`, and Chromium on PATH.
"""

import argparse
import html
import json
import math
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from eks_llm.plan.program import find_project, run
from embedded.browser import chromium
from embedded.near import opener
from tests.queries import boards, filled

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
PICTURED = ("overview", "service", "autoscaling", "cold-start")
"""The others show GPUs and machines, which the embedded platform has not."""
COLUMN, ROW, GAP = 58, 36, 8
"""Pixels of a column and a row of Grafana's grid, and between panels."""
COLORS = ("#7EB26D", "#EAB839", "#6ED0E0", "#EF843C", "#E24D42", "#1F78C1", "#BA43A9", "#705DA0", "#508642", "#CCA300")
POINTS = 180
"""Points of a line."""

Series = tuple[str, list[tuple[float, float]]]
"""Legend, and times with values."""


class Prometheus:
    """Its query API."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opener = opener()

    def ask(self, path: str, **parameters: Any) -> list[dict[str, Any]]:
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with self._opener.open(address, timeout=60) as answer:
                return json.loads(answer.read())["data"]["result"]
        except HTTPError as error:
            sys.exit(f"{parameters['query']}: {error.read().decode()}")
        except OSError as error:
            sys.exit(f"{self.url}: no Prometheus answers there ({error}); `./dev up` starts one")

    def range(self, expr: str, legend: str, begin: float, end: float) -> list[Series]:
        step = max(1, round((end - begin) / POINTS))
        found = self.ask("query_range", query=expr, start=begin, end=end, step=step)
        return [
            (named(legend, item["metric"]), [(float(at), float(value)) for at, value in item["values"]])
            for item in found
        ]

    def now(self, expr: str, at: float) -> list[tuple[dict[str, str], float]]:
        return [(item["metric"], float(item["value"][1])) for item in self.ask("query", query=expr, time=at)]


def named(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), legend).strip()


# Numbers ------------------------------------------------------------------------------------------------------------


def written(value: float, unit: str) -> str:  # noqa: PLR0911 a unit each
    """A number as Grafana writes it in a unit."""
    if math.isnan(value) or math.isinf(value):
        return "–"
    if unit == "percentunit":
        return f"{value * 100:.4g}%"
    if unit == "percent":
        return f"{value:.4g}%"
    if unit == "s":
        for size, name in ((3600, "h"), (60, "min"), (1, "s"), (0.001, "ms"), (1e-6, "µs")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return "0 s"
    if unit in ("bytes", "Bps", "MBs"):
        size, step = (value * 1e6, 1000) if unit == "MBs" else (value, 1024 if unit == "bytes" else 1000)
        names = ("B", "KiB", "MiB", "GiB", "TiB") if unit == "bytes" else ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
        power = 0 if abs(size) < 1 else min(len(names) - 1, int(math.log(abs(size), step)))
        return f"{size / step**power:.3g} {names[power]}"
    ending = {"reqps": " req/s", "celsius": " °C", "watt": " W"}.get(unit, "")
    if unit == "currencyUSD":
        return f"${value:.3g}"
    if abs(value) >= 1000:
        return f"{value / 1000:.3g} K{ending}"
    return f"{value:.3g}{ending}"


# Panels -------------------------------------------------------------------------------------------------------------


def steps(panel: dict[str, Any]) -> list[dict[str, Any]]:
    return panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])


def color_of(panel: dict[str, Any], value: float) -> str:
    chosen = "green"
    for step in steps(panel):
        if step["value"] is None or value >= step["value"]:
            chosen = step["color"]
    return {"green": "#73BF69", "orange": "#FF9830", "red": "#F2495C"}[chosen]


def graph(panel: dict[str, Any], series: list[Series], begin: float, end: float, size: tuple[int, int]) -> str:
    """A panel of lines as SVG, with its legend."""
    width, height = size
    defaults = panel["fieldConfig"]["defaults"]
    unit, limit = defaults["unit"], next((s["value"] for s in reversed(steps(panel)) if s["value"] is not None), None)
    custom = defaults.get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    if stacked:
        series = piled(series)
    values = [value for _, points in series for _, value in points if math.isfinite(value)]
    high: float = max(values, default=1) or 1
    if limit is not None and high < limit < 3 * high:
        high = limit
    tick = step_of(defaults.get("max", high) / 4, unit)
    top = defaults.get("max", math.ceil(high * 1.02 / tick) * tick)
    left, bottom, legend_height = 58, 18, 20
    inner_width, inner_height = width - left - 10, height - bottom - legend_height - 6

    def x(at: float) -> float:
        return left + (at - begin) / (end - begin) * inner_width

    def y(value: float) -> float:
        return 4 + inner_height - min(value, top) / top * inner_height

    parts = []
    for index in range(math.floor(top / tick + 0.01) + 1):
        value = tick * index
        parts.append(
            f'<line x1="{left}" x2="{left + inner_width}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>'
            f'<text x="{left - 6}" y="{y(value) + 4:.1f}" class="axis" text-anchor="end">{written(value, unit)}</text>'
        )
    for index in range(5):
        at = begin + (end - begin) * (index + 0.5) / 5
        clock = time.strftime("%H:%M", time.gmtime(at))
        parts.append(f'<text x="{x(at):.1f}" y="{inner_height + 19}" class="axis" text-anchor="middle">{clock}</text>')
    for index, (_, points) in enumerate(reversed(series) if stacked else series):
        color = COLORS[(len(series) - 1 - index if stacked else index) % len(COLORS)]
        for run_ in runs(points, (end - begin) / POINTS):
            line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in run_)
            area = f"{x(run_[0][0]):.1f},{y(0):.1f} {line} {x(run_[-1][0]):.1f},{y(0):.1f}"
            opacity = custom.get("fillOpacity", 0) / 100
            parts.append(f'<polygon points="{area}" fill="{color}" fill-opacity="{opacity}"/>')
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    if limit is not None and limit <= top:
        parts.append(
            f'<line x1="{left}" x2="{left + inner_width}" y1="{y(limit):.1f}" y2="{y(limit):.1f}" class="limit"/>'
        )
    legend = " ".join(
        f'<span><i style="background:{COLORS[index % len(COLORS)]}"></i>{html.escape(name)}</span>'
        for index, (name, _) in enumerate(series)
    )
    svg = f'<svg width="{width}" height="{height - legend_height}">{"".join(parts)}</svg>'
    return f'{svg}<div class="legend">{legend}</div>'


def step_of(size: float, unit: str) -> float:
    """A round number near `size`, for an axis: 1, 2 or 5 with zeros, and whole minutes of a time."""
    if unit == "s" and size >= 60:
        return next((step for step in (60, 120, 300, 600, 1800, 3600) if step >= size), 7200)
    power = 10 ** math.floor(math.log10(size or 1))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= size * 0.999)


def piled(series: list[Series]) -> list[Series]:
    """Each line on top of those before it."""
    sums: dict[float, float] = {}
    piles: list[Series] = []
    for name, points in series:
        pile = []
        for at, value in points:
            sums[at] = sums.get(at, 0) + (value if math.isfinite(value) else 0)
            pile.append((at, sums[at]))
        piles.append((name, pile))
    return piles


def runs(points: list[tuple[float, float]], step: float) -> Iterator[list[tuple[float, float]]]:
    """Parts of a line without gaps."""
    part: list[tuple[float, float]] = []
    for at, value in points:
        if part and (at - part[-1][0] > 2.5 * step + 1 or not math.isfinite(value)):
            yield part
            part = []
        if math.isfinite(value):
            part.append((at, value))
    if part:
        yield part


def figure(panel: dict[str, Any], series: list[Series]) -> str:
    last = next((value for _, points in series for _, value in reversed(points)), math.nan)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return f'<div class="figure" style="color:{color_of(panel, last)}">{written(last, unit)}</div>'


def listing(panel: dict[str, Any], found: list[list[tuple[dict[str, str], float]]]) -> str:
    options = next(step["options"] for step in panel["transformations"] if step["id"] == "organize")
    by = [name for name in options["includeByName"] if not name.startswith("Value")]
    headings = [target["legendFormat"] for target in panel["targets"]]
    units = {item["matcher"]["options"]: item["properties"][0]["value"] for item in panel["fieldConfig"]["overrides"]}
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for heading, results in zip(headings, found, strict=True):
        for labels, value in results:
            key = tuple(labels.get(label, "") for label in by)
            rows.setdefault(key, {})[heading] = written(value, units[heading])
    head = "".join(f"<th>{html.escape(name)}</th>" for name in [*by, *headings])
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(text)}</td>" for text in [*key, *(row.get(h, "") for h in headings)])
        + "</tr>"
        for key, row in sorted(rows.items())
    )
    return f"<table><tr>{head}</tr>{body}</table>"


STYLE = """
body {background:#111217; color:#ccccdc; font:12px Inter, Helvetica, Arial, sans-serif; margin:12px; width:1404px}
h1 {font-size:18px; font-weight:500; margin:4px 0 2px} p {margin:0 0 8px; color:#8e8e9f}
.board {position:relative} .panel {position:absolute; background:#181b1f; border:1px solid #25272d; border-radius:3px;
overflow:hidden; box-sizing:border-box} .panel b {display:block; font-weight:500; padding:6px 8px 2px; font-size:12.5px}
.row {position:absolute; font-size:15px; font-weight:500; padding-top:8px} .grid {stroke:#2c2f36}
.limit {stroke:#F2495C; stroke-dasharray:8 5; stroke-width:1.5}
.axis {fill:#8e8e9f; font-size:11px} .legend {padding:0 8px; height:18px;
overflow:hidden; white-space:nowrap} .legend span {margin-right:10px} .legend i {display:inline-block; width:12px;
height:3px; margin:0 5px 3px 0} .figure {font-size:30px; font-weight:500; padding:14px 10px} .empty {color:#6e6e7f;
text-align:center; padding-top:12%} table {border-collapse:collapse; width:100%; font-size:12px} th {text-align:left;
color:#6E9FFF; font-weight:500} th, td {padding:5px 8px; border-bottom:1px solid #25272d}
"""


def page(board: dict[str, Any], prometheus: Prometheus, begin: float, end: float) -> tuple[str, int, list[str]]:
    """A dashboard as HTML, its height in pixels, and the panels without data, with their queries."""
    parts, empty, bottom = [], [], 0
    for panel in board["panels"]:
        at = panel["gridPos"]
        left, top = at["x"] * COLUMN, at["y"] * ROW
        width, height = at["w"] * COLUMN - GAP, at["h"] * ROW - GAP
        place = f"left:{left}px;top:{top}px;width:{width}px;height:{height}px"
        bottom = max(bottom, top + height)
        if panel["type"] == "row":
            parts.append(f'<div class="row" style="{place}">{html.escape(panel["title"])}</div>')
            continue
        if panel["type"] == "table":
            found = [prometheus.now(filled(target["expr"]), end) for target in panel["targets"]]
            content, has = listing(panel, found), [bool(results) for results in found]
        else:
            each = [
                prometheus.range(filled(target["expr"]), target["legendFormat"], begin, end)
                for target in panel["targets"]
            ]
            has, series = [bool(results) for results in each], [line for results in each for line in results]
            drawn = graph(panel, series, begin, end, (width, height - 26)) if panel["type"] == "timeseries" else ""
            content = drawn or figure(panel, series)
        empty += [
            f"{panel['title']}: {target['expr']}"
            for target, there in zip(panel["targets"], has, strict=True)
            if not there
        ]
        shown = content if any(has) else '<div class="empty">No data</div>'
        parts.append(f'<div class="panel" style="{place}"><b>{html.escape(panel["title"])}</b>{shown}</div>')
    text = (
        f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><h1>{html.escape(board['title'])}</h1>"
        f'<p>{html.escape(board["description"])}</p><div class="board" style="height:{bottom}px">{"".join(parts)}</div>'
    )
    return text, bottom + 80, empty


def screenshot(text: str, height: int, image: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(text, encoding="utf-8")
        command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   f"--user-data-dir={folder}/profile", f"--window-size=1428,{height}", f"--screenshot={image}",
                   file.as_uri()]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=180)  # noqa: S603


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("prometheus", help="address of a running Prometheus, e.g. http://127.0.0.1:17454")
    parser.add_argument("--minutes", type=float, default=15, help="how far back to draw (default 15)")
    parser.add_argument("--stack", default="local", help="stack whose dashboards are drawn (default local)")
    arguments = parser.parse_args()
    end = time.time()
    begin = end - 60 * arguments.minutes
    recording = run(find_project(ROOT), arguments.stack)
    found = list(all_boards(recording))
    for board, name in found:
        text, height, empty = page(board, Prometheus(arguments.prometheus), begin, end)
        if name in PICTURED:
            screenshot(text, height, IMAGES / f"dashboard-{name}.png")
        print(f"{name}: {len(empty)} queries without data")
        for query in empty:
            print(f"  {query}")


def all_boards(recording: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """The stack-wide dashboards, and that of the first service, with the names of their pictures."""
    from eks_llm.observe.dashboards.grafana import dashboard
    from eks_llm.operators.monitoring import DASHBOARDS

    for name, board in DASHBOARDS.items():
        yield dashboard(board), name
    for board in boards(recording):
        if board["uid"] not in {made.uid for made in DASHBOARDS.values()}:
            yield board, "service"
            return


if __name__ == "__main__":
    main()
