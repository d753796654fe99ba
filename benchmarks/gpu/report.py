"""Writes what the records of benchmarks/results/gpu/ say into docs/performance.md, and a picture beside it.

    .venv/bin/python -m benchmarks.gpu.report

A unit test fails while they are stale.
"""

import json
import statistics
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any

from docs.marked import replaced

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "benchmarks" / "results" / "gpu"
PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "images" / "gpu-sweeps.svg"
PATHS = ("bare", "serve", "grpc", "http")
CLIENTS = 4
"""Client processes of every record beside a server: run.sh and sweep.py."""
Row = dict[str, Any]


def record(name: str) -> dict[str, Any]:
    return json.loads((RECORDS / f"{name}.json").read_text())


def rows(name: str, path: str, concurrency: int) -> list[Row]:
    return [row for row in record(name)["rows"] if (row["path"], row["concurrency"]) == (path, concurrency)]


def median(name: str, path: str, concurrency: int) -> Row:
    """Medians over the repeats."""
    same = rows(name, path, concurrency)
    return {key: statistics.median(row[key] for row in same) for key in same[0] if isinstance(same[0][key], float)}


def sweep(name: str) -> dict[str, dict[str, Any]]:
    """The records of a sweep by value, in ascending order where values are numbers."""
    found = [record(file.stem) for file in RECORDS.glob(f"{name}.*.json")]
    return {
        item["value"]: item
        for item in sorted(found, key=lambda item: (not _is_number(item["value"]), _key(item["value"])))
    }


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _key(text: str) -> float | str:
    return float(text) if _is_number(text) else text


# Tables -------------------------------------------------------------------------------------------------------------


def table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [columns, ["---"] * len(columns), *lines])


def paired(name: str, concurrencies: tuple[int, ...]) -> str:
    """All paths in turns; every repeat is shown, as they differ more than the paths do."""

    def each(values: list[Row], key: str, form: str) -> str:
        return " / ".join(format(row[key], form) for row in values)

    lines: list[list[str]] = []
    for streams in concurrencies:
        bare = median(name, "bare", streams)
        for path in PATHS:
            same, middle = rows(name, path, streams), median(name, path, streams)
            lines.append([
                str(streams), path, each(same, "tokens_per_second", ",.0f"),
                f"{middle['tokens_per_second'] / bare['tokens_per_second']:.1%}",
                f"{middle['ttft_p50_ms']:.0f} / {middle['ttft_p95_ms']:.0f} / {middle['ttft_p99_ms']:.0f}",
                f"{middle['tpot_p99_ms']:.1f}",
                f"{middle['itl_p50_ms']:.1f} / {middle['itl_p95_ms']:.1f} / {middle['itl_p99_ms']:.1f}",
                f"{middle['front_us_per_token']:.0f}", each(same, "engine_us_per_token", ".0f"),
                f"{middle['client_us_per_token']:.0f}",
            ])  # fmt: skip
    head = (
        "streams", "path", "tok/s, each run", "of bare", "TTFT p50 / p95 / p99 ms", "TPOT p99 ms",
        "gap p50 / p95 / p99 ms", "CPU µs per token: front", "engine, each run", "client",
    )  # fmt: skip
    return table(head, lines)


def claims() -> str:
    """What is claimed in public for such a platform, and what was measured here."""
    naive, ours = record("baseline-8b")["rows"][0], median("paired-8b", "grpc", 100)
    whole, cut = (sweep("batched-tokens")[value]["rows"][0] for value in ("8192", "2048"))
    kv = {share: item["engine"]["kv_tokens"] for share, item in sweep("gpu-memory").items()}

    def better(key: str) -> str:
        return f"{naive[key]:,.0f} → {ours[key]:,.1f} ms | {naive[key] / ours[key]:,.1f}"

    lines = [
        f"P99 TTFT 2.4 s → 820 ms | 2.9 | {better('ttft_p99_ms')}",
        f"P99 TPOT 110 → 42 ms | 2.6 | {better('tpot_p99_ms')}",
        "throughput per node | 2.8 | "
        f"{naive['tokens_per_second']:,.0f} → {ours['tokens_per_second']:,.0f} tok/s "
        f"| {ours['tokens_per_second'] / naive['tokens_per_second']:,.1f}",
        "35 % fewer GPU nodes | 0.65 | not measured: it needs a fleet and its traffic | –",
        "chunked prefill: P99 TPOT | −35 % | "
        f"{whole['tpot_p99_ms']:.1f} → {cut['tpot_p99_ms']:.1f} ms "
        f"| {cut['tpot_p99_ms'] / whole['tpot_p99_ms'] - 1:+.0%}",
        "chunked prefill: P99 gap between tokens | (not claimed) | "
        f"{whole['itl_p99_ms']:.0f} → {cut['itl_p99_ms']:.0f} ms | {cut['itl_p99_ms'] / whole['itl_p99_ms'] - 1:+.0%}",
        *(
            f"GPU memory .80 → {share}: KV cache | +18 % | {kv['0.80']:,} → {kv[share]:,} tokens "
            f"| {kv[share] / kv['0.80'] - 1:+.1%}"
            for share in ("0.92", "0.95")
        ),
    ]
    return table(("claim", "claimed", "measured here", "ratio"), ([line] for line in lines))


def one_engine(name: str, label: str) -> str:
    """A sweep with one measured row per record and concurrency."""
    lines = [
        [
            value, str(row["concurrency"]), f"{row['tokens_per_second']:,.0f}",
            f"{row['ttft_p50_ms']:.0f} / {row['ttft_p99_ms']:.0f}", f"{row['tpot_p99_ms']:.1f}",
            f"{row['itl_p50_ms']:.1f} / {row['itl_p99_ms']:.1f}", f"{row['pieces_per_token']:.2f}",
            f"{row['front_us_per_token']:.0f}", f"{row['engine_us_per_token']:.0f}",
        ]
        for value, item in sweep(name).items()
        for row in item["rows"]
    ]  # fmt: skip
    head = (
        label, "streams", "tok/s", "TTFT p50 / p99 ms", "TPOT p99 ms", "gap p50 / p99 ms", "pieces per token",
        "CPU µs per token: front", "engine",
    )  # fmt: skip
    return table(head, lines)


def small_model() -> list[Row]:
    """Every run of the small model, whatever was in front of its engine."""
    names = ["paired-1b", *(f"{name}.{value}" for name in ("frontends", "stream-interval") for value in sweep(name))]
    return [row for name in names for row in record(name)["rows"]]


def core() -> str:
    """How busy the engine process's one core was in all runs of the small model: tokens/s times its CPU per token."""
    found = small_model()
    shares = [row["tokens_per_second"] * row["engine_us_per_token"] / 1e6 for row in found]
    speeds = [row["engine_us_per_token"] for row in found]
    clients = [row["tokens_per_second"] * row["client_us_per_token"] / 1e6 / CLIENTS for row in found]
    return (
        f"In all {len(found)} runs of the small model the engine process used {min(shares):.0%} to {max(shares):.0%} "
        f"of a core (median {statistics.median(shares):.0%}), while its CPU per token was {min(speeds):.0f} to "
        f"{max(speeds):.0f} µs. None of the {CLIENTS} client processes that stand beside a server was full: "
        f"{max(clients):.0%} of a core at most, on average over them."
    )


SECTIONS: dict[str, Callable[[], str]] = {
    "claims": claims,
    "paired-8b": lambda: paired("paired-8b", (100,)),
    "paired-1b": lambda: paired("paired-1b", (200, 480)),
    "core": core,
    "frontends": lambda: one_engine("frontends", "front ends"),
    "stream-interval": lambda: one_engine("stream-interval", "stream_interval"),
    "batched-tokens": lambda: one_engine("batched-tokens", "max_num_batched_tokens"),
    "sequences": lambda: one_engine("sequences", "max_num_seqs"),
    "others": lambda: "\n\n".join(
        one_engine(name, label)
        for name, label in (
            ("prefix-cache", "prefix caching"), ("block-size", "block size"), ("quantization", "quantization"),
            ("speculation", "speculation"),
        )
    ),
}  # fmt: skip


def document() -> str:
    """docs/performance.md with the tables of the records as they are now."""
    return replaced(PAGE.read_text(encoding="utf-8"), {name: make() for name, make in SECTIONS.items()})


# Picture ------------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, PANEL, LEFT, TOP, GAP = 960, 300, 260, 52, 56, 50
INK, FAINT, GRID = "#1f2933", "#52606d", "#e4e7eb"
BLUE, ORANGE = "#2b6cb0", "#b7590a"


def picture() -> str:
    """Three panels: what the tokens of a step, the front ends and the engine's core decide."""
    tokens = sweep("batched-tokens")
    fronts = sweep("frontends")
    small = small_model()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" '
        f'font-size="12" fill="{INK}"><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *_panel(0, "8B, 100 streams: P99 by tokens per step", "ms", list(tokens), {
            "first token": (BLUE, [item["rows"][0]["ttft_p99_ms"] for item in tokens.values()]),
            "gap between tokens": (ORANGE, [item["rows"][0]["itl_p99_ms"] for item in tokens.values()]),
        }, 400),
        *_panel(1, "1B over gRPC: thousand tok/s by front ends", "k", list(fronts), {
            "200 streams": (BLUE, [_of(item, 200)["tokens_per_second"] / 1e3 for item in fronts.values()]),
            "480 streams": (ORANGE, [_of(item, 480)["tokens_per_second"] / 1e3 for item in fronts.values()]),
        }, 24),
        *_scatter(2, "1B, every run: thousand tok/s", small),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _of(item: dict[str, Any], streams: int) -> Row:
    return next(row for row in item["rows"] if row["concurrency"] == streams)


def _frame(column: int, title: str, unit: str, most: float) -> tuple[float, list[str]]:
    left = LEFT + column * (PANEL + GAP)
    bottom = HEIGHT - 44
    parts = [f'<text x="{left}" y="22" font-weight="600">{escape(title)}</text>']
    for step in range(5):
        y = bottom - (bottom - TOP) * step / 4
        parts.append(f'<line x1="{left}" x2="{left + PANEL - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        text = f"{most * step / 4:g}{' ' + unit if step == 4 else ''}"
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{FAINT}">{text}</text>')
    return left, parts


def _panel(
    column: int, title: str, unit: str, labels: list[str], series: dict[str, tuple[str, list[float]]], most: float
) -> list[str]:
    """Lines over equidistant labels. A value above `most` is written at the top instead of drawn to scale."""
    left, parts = _frame(column, title, unit, most)
    bottom, step = HEIGHT - 44, (PANEL - 30) / max(1, len(labels) - 1)
    for number, label in enumerate(labels):
        x = left + 10 + number * step
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="{FAINT}">{label}</text>')
    for index, (name, (colour, values)) in enumerate(series.items()):
        points = [
            (left + 10 + number * step, bottom - (bottom - TOP) * min(value, most) / most)
            for number, value in enumerate(values)
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), value in zip(points, values, strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            if value > most:
                parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{value:,.0f}</text>')
        parts.append(f'<text x="{left + index * 130}" y="42" fill="{colour}">{escape(name)}</text>')
    return parts


def _scatter(column: int, title: str, found: list[Row]) -> list[str]:
    """Runs by path, and the curve of one core fully used."""
    most, longest = 24.0, 100.0
    left, parts = _frame(column, title, "k", most)
    bottom = HEIGHT - 44

    def place(micros: float, thousand: float) -> tuple[float, float]:
        return left + (PANEL - 10) * (micros - 40) / (longest - 40), bottom - (bottom - TOP) * thousand / most

    for micros in range(40, 101, 20):
        x, _ = place(micros, 0)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="{FAINT}">{micros}</text>')
    axis = "CPU µs per token of the engine process"
    parts.append(f'<text x="{left + PANEL / 2}" y="{bottom + 36}" text-anchor="middle" fill="{FAINT}">{axis}</text>')
    curve = " ".join("{:.1f},{:.1f}".format(*place(micros, 1000 / micros)) for micros in range(42, 101, 2))
    parts.append(f'<polyline points="{curve}" fill="none" stroke="{FAINT}" stroke-dasharray="4 4"/>')
    for row in found:
        x, y = place(row["engine_us_per_token"], row["tokens_per_second"] / 1e3)
        colour = ORANGE if row["path"] in ("grpc", "http") else BLUE
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity=".7"/>')
    for index, (name, colour) in enumerate((("Triton", ORANGE), ("bare, serve", BLUE), ("one full core", FAINT))):
        parts.append(f'<text x="{left + index * 84}" y="42" fill="{colour}">{name}</text>')
    return parts


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
