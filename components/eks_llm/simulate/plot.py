"""A picture of a simulation as one SVG file: traffic, and replicas and misses of each policy on the same clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import numpy as np

from .report import Outcome
from .simulate import SCRAPE_SECONDS, SYNC_SECONDS, Service

WIDTH, LEFT, RIGHT = 960, 56, 16
TRAFFIC_HEIGHT, REPLICAS_HEIGHT, MISSES_HEIGHT, GAP = 110, 130, 34, 46
HEAD, FOOT = 62, 40
COLUMNS = 600
"""Points of a line at most; longer series show the largest value of each stretch."""
INK, FAINT, GRID = "#1f2933", "#52606d", "#e4e7eb"
BLUE, LIGHT_BLUE, ORANGE, RED, GREY = "#2b6cb0", "#bcd4ec", "#b7590a", "#c53030", "#7b8794"


@dataclass(frozen=True)
class Panel:
    """A strip of the picture with its scale."""

    top: float
    height: float
    highest: float
    """Value at the top."""
    end: float
    """Seconds at the right edge."""

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.end

    def y(self, value: float) -> float:
        return self.bottom - self.height * value / self.highest


def svg(outcomes: list[Outcome], service: Service, title: str) -> str:
    """The picture. Colours: what was asked for orange, ready pods blue, starting and ending ones light blue."""
    end = max(outcome.result.times[-1] for outcome in outcomes) + SYNC_SECONDS
    height = HEAD + TRAFFIC_HEIGHT + len(outcomes) * (GAP + REPLICAS_HEIGHT + MISSES_HEIGHT) + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" '
        f'font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="600">{escape(title)}</text>',
        *_legend(),
    ]
    first = outcomes[0].result
    panel = Panel(HEAD, TRAFFIC_HEIGHT, max(1.0, float(first.arrivals.max()) * 1.1), end)
    parts += [*_axes(panel, "requests/s"), _area(panel, first.times, first.arrivals, GREY, 0.35)]
    most = float(max(max(outcome.result.pods.max(), outcome.result.desired.max()) for outcome in outcomes) + 1)
    for outcome in outcomes:
        panel = Panel(panel.bottom + GAP, REPLICAS_HEIGHT, most, end)
        misses = Panel(panel.bottom + 6, MISSES_HEIGHT - 6, max(0.1, float(outcome.result.missed.max())), end)
        parts += _policy(outcome, panel, misses)
        panel = misses
    parts += _clock(panel)
    note = f"pods start in {service.pod_start:g} s; scrape every {SCRAPE_SECONDS} s, HPA every {SYNC_SECONDS} s"
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{height - 6}" text-anchor="end" fill="{FAINT}">{note}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _policy(outcome: Outcome, panel: Panel, misses: Panel) -> list[str]:
    result = outcome.result
    cost = "" if result.cost_usd is None else f", {result.cost_usd:,.0f} USD"
    summary = (
        f"{result.attainment:.1%} within SLO, {result.mean_replicas():.2f} replicas on average, "
        f"{result.gpu_hours:,.1f} GPU hours{cost}"
    )
    bottom = misses.bottom
    return [
        f'<text x="{LEFT}" y="{panel.top - 10}"><tspan font-weight="600">{escape(outcome.name)}</tspan>'
        f'<tspan dx="10" fill="{FAINT}">{escape(summary)}</tspan></text>',
        *_axes(panel, "replicas"),
        _area(panel, result.times, result.pods, LIGHT_BLUE, 1),
        _area(panel, result.times, result.ready, BLUE, 0.65),
        f'<polyline points="{_steps(panel, result.times, result.desired)}" fill="none" stroke="{ORANGE}" '
        f'stroke-width="1.6"/>',
        f'<text x="{LEFT - 8}" y="{misses.top + 18}" text-anchor="end" fill="{RED}">missed</text>',
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" stroke="{GRID}"/>',
        _area(misses, result.times, result.missed, RED, 0.8),
    ]


def _legend() -> Iterable[str]:
    entries = (
        (GREY, "traffic"),
        (ORANGE, "wanted"),
        (BLUE, "ready"),
        (LIGHT_BLUE, "starting or ending"),
        (RED, "missed"),
    )
    x = LEFT
    for colour, text in entries:
        yield f'<rect x="{x}" y="35" width="12" height="10" rx="2" fill="{colour}"/>'
        yield f'<text x="{x + 17}" y="44" fill="{FAINT}">{text}</text>'
        x += 36 + 7 * len(text)


def _axes(panel: Panel, label: str) -> list[str]:
    parts: list[str] = []
    for value in _ticks(panel.highest, 4):
        y = panel.y(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{FAINT}">{value:g}</text>')
    middle = panel.top + panel.height / 2
    parts.append(
        f'<text x="14" y="{middle:.1f}" text-anchor="middle" fill="{FAINT}" '
        f'transform="rotate(-90 14 {middle:.1f})">{label}</text>'
    )
    return parts


def _clock(panel: Panel) -> Iterable[str]:
    unit, name = (3600, "h") if panel.end >= 4 * 3600 else (60, "min")
    for value in _ticks(panel.end / unit, 8):
        x = panel.x(value * unit)
        yield f'<text x="{x:.1f}" y="{panel.bottom + 18}" text-anchor="middle" fill="{FAINT}">{value:g} {name}</text>'


def _ticks(highest: float, count: int) -> list[float]:
    """Round numbers from 0 up to `highest`."""
    rough = highest / count
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(float(power * factor) for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [round(step * number, 6) for number in range(int(highest / step) + 1)]


def _steps(panel: Panel, times: np.ndarray, values: np.ndarray) -> str:
    """A staircase: each value holds until the next."""
    group = -(-len(times) // COLUMNS)
    starts = np.arange(0, len(times), group)
    edges = [panel.x(time) for time in [*times[starts], _last(panel, times)]]
    levels = [panel.y(value) for value in np.maximum.reduceat(values, starts)]
    return " ".join(
        f"{begin:.1f},{level:.1f} {finish:.1f},{level:.1f}"
        for begin, finish, level in zip(edges, edges[1:], levels, strict=False)
    )


def _last(panel: Panel, times: np.ndarray) -> float:
    return min(panel.end, float(times[-1]) + SYNC_SECONDS)


def _area(panel: Panel, times: np.ndarray, values: np.ndarray, fill: str, opacity: float) -> str:
    steps, last = _steps(panel, times, values), panel.x(_last(panel, times))
    points = f"{LEFT},{panel.bottom} {steps} {last:.1f},{panel.bottom}"
    return f'<polygon points="{points}" fill="{fill}" fill-opacity="{opacity:g}"/>'
