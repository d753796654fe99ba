"""Latency targets as error ratios: which requests miss them, in windows, and how fast a month's misses are used up.

Of all requests, 99 % must stay below a target, so 1 % may miss it. Burn rate 1 uses that budget up in 30 days. Rates
and windows are those of the SRE workbook, "Alerting on SLOs", multiwindow and multi-burn-rate: the long window says
that it matters, the short one that it still goes on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from . import metrics
from .rules import Recording
from .thresholds import FAST_BURN, MISSES
from .watched import WatchedService

ENOUGH_REQUESTS = round(1 / MISSES.value)
"""Fewer requests have no 99th percentile: a single slow one would be more than the budget."""
FAST_WINDOWS = ("5m", "30m", "1h")
SLOW_WINDOWS = ("6h", "3d")
FAST = ((FAST_BURN.value, "1h", "5m"), (6.0, "6h", "30m"))
"""Burn rate, long and short window: 2 % of a month's budget within an hour, or 5 % within six."""
SLOW = ((1.0, "3d", "6h"),)
"""10 % of the budget in three days."""
SLOW_WINDOWS_INTERVAL = 120
"""Seconds between evaluations of the long windows, which read a lot and change slowly."""
HISTOGRAMS = {"ttftP99": (metrics.TTFT, metrics.TTFT_BUCKETS), "tpotP99": (metrics.TPOT, metrics.TPOT_BUCKETS)}
"""Histogram of a latency target and its edges, by the target's key in a stack file."""


@dataclass(frozen=True)
class Target:
    """One latency target of a service."""

    key: str
    """As the stack file calls it."""
    limit: float
    """Seconds."""
    metric: str
    """The histogram."""
    edge: float
    """Nearest bucket edge at or above the limit, seconds: a request counts as a miss above this."""

    @property
    def counted(self) -> str:
        """How misses are counted, in words."""
        return f"counted above {self.edge:g} s" + (
            "" if self.edge == self.limit else f", the nearest edge of vLLM's histogram above {self.limit:g} s"
        )


def targets(of: WatchedService) -> list[Target]:
    """The targets that are set."""
    return [
        Target(key, limit, HISTOGRAMS[key][0], next(edge for edge in HISTOGRAMS[key][1] if edge >= limit))
        for key, limit in of.targets()
    ]


def recordings(of: WatchedService, target: Target, windows: tuple[str, ...]) -> Iterator[Recording]:
    """The share of requests that miss the target, per window. Nothing where there was no request."""
    selector = metrics.selector(*of.here)
    for window in windows:
        within = _sum(f'{target.metric}_bucket{{{selector},le="{target.edge}"}}', window)
        yield Recording(
            metrics.slo_errors(window),
            f"1 - {within} / ({_sum(f'{target.metric}_count{{{selector}}}', window)} > 0)",
            {"slo": target.key},
        )


def burning(of: WatchedService, target: Target, *cases: tuple[float, str, str]) -> str:
    """True where, in one of the cases (burn rate, long window, short window), both windows burn as fast as that."""
    selector = metrics.selector(*of.here)
    series = f'{selector},slo="{target.key}"'

    def case(rate: float, long: str, short: str) -> str:
        limit = f"{rate * MISSES.value:g}"
        requests = f"sum by (namespace, service) (increase({target.metric}_count{{{selector}}}[{long}]))"
        return (
            f"({metrics.slo_errors(long)}{{{series}}} > {limit} and {metrics.slo_errors(short)}{{{series}}} > {limit}"
            f" and on (namespace, service) {requests} >= {ENOUGH_REQUESTS})"
        )

    return " or ".join(case(*windows) for windows in cases)


def _sum(series: str, window: str) -> str:
    return f"sum by (namespace, service) (rate({series}[{window}]))"
