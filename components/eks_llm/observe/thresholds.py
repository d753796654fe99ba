"""Limits that an alert compares and a dashboard draws: one object each, so that the red line is where the alert is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A limit, in the unit of the series that it limits."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"

    def __float__(self) -> float:
        return float(self.value)

    @property
    def percent(self) -> str:
        """The limit of a share in words: 0.05 gives `5 %`."""
        return f"{self.value * 100:g} %"


MISSES = Threshold(0.01)
"""Share of requests that may miss a latency target, which is a 99th percentile: the budget of an SLO."""
FAST_BURN = Threshold(14.4)
"""Burn rate that uses up 2 % of a month's budget within an hour. Source: SRE workbook, "Alerting on SLOs"."""
WAITING = Threshold(10)
"""Requests of a service that wait. Source: the platform's specification."""
KV_CACHE = Threshold(0.95)
"""Share of a replica's KV-cache blocks in use. Source: the platform's specification."""
PREEMPTIONS = Threshold(0.1)
"""Preemptions per finished request. Each makes vLLM compute a request again."""
ERRORS = Threshold(0.05)
"""Share of requests that fail."""
MEMORY = Threshold(0.9)
"""Share of a container's memory limit in use, page cache not counted."""
RESTARTS = Threshold(2)
"""Restarts of a container per hour that may be chance."""
IDLE = Threshold(0.01)
"""Share of a GPU's compute engine in use, below which the GPU counts as idle."""
