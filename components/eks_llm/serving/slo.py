"""Latency targets as error ratios: which requests miss them, in windows, and how fast a month's misses are used up.

Of all requests, 99 % must stay below a target, so 1 % may miss it. Burn rate 1 uses that budget up in 30 days. Rates
and windows are those of the SRE workbook, "Alerting on SLOs", multiwindow and multi-burn-rate: the long window says
that it matters, the short one that it still goes on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..observe import metrics
from ..observe.rules import Alert, Recording, Severity
from .observability import Slo
from .workload import Workload

BUDGET = 0.01
"""Share of requests that may miss a target: it is a 99th percentile."""
ENOUGH_REQUESTS = round(1 / BUDGET)
"""Fewer requests have no 99th percentile: a single slow one would be more than the budget."""
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
FAST = ((14.4, "1h", "5m"), (6.0, "6h", "30m"))
"""Burn rate, long and short window: 2 % of a month's budget within an hour, or 5 % within six."""
SLOW = ((1.0, "3d", "6h"),)
"""10 % of the budget in three days."""
SLOW_WINDOWS_INTERVAL = 120
"""Seconds between evaluations of the long windows, which read a lot and change slowly."""


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


def targets(slo: Slo) -> list[Target]:
    """The targets that are set."""
    found = (
        ("ttftP99", slo.ttft_p99, metrics.TTFT, metrics.TTFT_BUCKETS),
        ("tpotP99", slo.tpot_p99, metrics.TPOT, metrics.TPOT_BUCKETS),
    )
    return [
        Target(key, float(limit), metric, next(edge for edge in edges if edge >= limit))
        for key, limit, metric, edges in found
        if limit is not None
    ]


def recordings(work: Workload, target: Target, windows: tuple[str, ...]) -> Iterator[Recording]:
    """The share of requests that miss the target, per window. Nothing where there was no request."""
    selector = metrics.selector(work.namespace, work.name)
    for window in windows:
        within = _sum(f'{target.metric}_bucket{{{selector},le="{target.edge}"}}', window)
        yield Recording(
            metrics.slo_errors(window),
            f"1 - {within} / ({_sum(f'{target.metric}_count{{{selector}}}', window)} > 0)",
            {"slo": target.key},
        )


def burn_alerts(work: Workload, target: Target) -> list[Alert]:
    """A fast burn, which cannot wait, and a slow one, which can until tomorrow."""
    kinds = (
        ("LLMSLOBurnFast", FAST, Severity.CRITICAL, 120, "A month's misses are used up within days"),
        ("LLMSLOBurnSlow", SLOW, Severity.WARNING, 3600, "The target will not hold over the month"),
    )
    return [
        Alert(
            name,
            " or ".join(_burning(work, target, *case) for case in cases),
            severity,
            f"{work.name}: {{{{ $value | humanizePercentage }}}} of requests miss slo.{target.key}, 1% may",
            f"{meaning}; misses are {target.counted}. Look at waiting requests and replicas first.",
            after,
            {"slo": target.key},
        )
        for name, cases, severity, after, meaning in kinds
    ]


def _burning(work: Workload, target: Target, rate: float, long: str, short: str) -> str:
    series = f'{metrics.selector(work.namespace, work.name)},slo="{target.key}"'
    limit = f"{rate * BUDGET:g}"
    count = f"{target.metric}_count{{{metrics.selector(work.namespace, work.name)}}}"
    return (
        f"({metrics.slo_errors(long)}{{{series}}} > {limit} and {metrics.slo_errors(short)}{{{series}}} > {limit}"
        f" and on (namespace, service) sum by (namespace, service) (increase({count}[{long}])) >= {ENOUGH_REQUESTS})"
    )


def _sum(series: str, window: str) -> str:
    return f"sum by (namespace, service) (rate({series}[{window}]))"
