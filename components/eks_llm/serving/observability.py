"""How a service is watched: what Prometheus scrapes, the latencies that are good enough, and what rules go by."""

from typing import Any, NotRequired, TypedDict

from pydantic import ValidationInfo, field_validator

from ..core.model import Model
from ..core.quantities import Duration
from ..observe import metrics
from ..observe.watched import WatchedService
from .scaling import Scaling
from .workload import Workload

# Arguments ----------------------------------------------------------------------------------------------------------


class SloArgs(TypedDict):
    ttft_p99: NotRequired[str]
    """Time to first token that 99 % of requests must stay below, e.g. `820ms`. Default: no alert."""
    tpot_p99: NotRequired[str]
    """Time per further token of a request, likewise, e.g. `42ms`. Default: no alert."""


LEAST_SLO = 0.001
"""Seconds; faster is no answer of a network."""
LONGEST_SLO = {"ttft_p99": metrics.TTFT_BUCKETS[-1], "tpot_p99": metrics.TPOT_BUCKETS[-1]}
"""Seconds; slower requests are not told apart by vLLM's histograms."""


class Slo(Model):
    ttft_p99: Duration | None = None
    tpot_p99: Duration | None = None

    @field_validator("ttft_p99", "tpot_p99")
    @classmethod
    def _some_time(cls, value: Duration | None, info: ValidationInfo) -> Duration | None:
        if value is not None and value < LEAST_SLO:
            raise ValueError("an SLO is at least 1ms; leave it out for no alert")
        if value is not None and value > (longest := LONGEST_SLO[info.field_name or ""]):
            raise ValueError(f"vLLM's histogram ends at {longest:g}s, so nothing could alert on a longer time")
        return value


# Builders -----------------------------------------------------------------------------------------------------------

SCRAPE_INTERVAL = "10s"
"""The autoscaler acts on a signal as old as this and its own 15 s."""


def pod_monitor(work: Workload) -> dict[str, Any]:
    """Scrapes every metrics port of the pods, and names the service on each series."""
    endpoint = {
        "path": "/metrics",
        "interval": SCRAPE_INTERVAL,
        "scrapeTimeout": SCRAPE_INTERVAL,
        "relabelings": [{"targetLabel": metrics.SERVICE_LABEL, "replacement": work.name}],
    }
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": work.metadata(),
        "spec": {
            "selector": {"matchLabels": work.selector},
            "podMetricsEndpoints": [{"port": port, **endpoint} for port in work.server.metrics_ports],
        },
    }


def watched(
    work: Workload, slo: Slo, scaling: Scaling, in_flight: int, usd_per_gpu_hour: float | None = None
) -> WatchedService:
    """The service for rules and dashboards. `in_flight`: requests per replica that scaling aims at."""
    return WatchedService(
        name=work.name,
        namespace=work.namespace,
        gpus_per_replica=work.share.gpus,
        min_replicas=scaling.min,
        max_replicas=scaling.max,
        in_flight=in_flight,
        kv_cache_target=scaling.kv_cache_target,
        start=work.start,
        ttft_p99=_seconds(slo.ttft_p99),
        tpot_p99=_seconds(slo.tpot_p99),
        front_door_query=scaling.front_door.query if scaling.front_door else None,
        usd_per_gpu_hour=usd_per_gpu_hour,
    )


def _seconds(target: Duration | None) -> float | None:
    """As people wrote it: 820ms is 0.8200000000000001 otherwise."""
    return None if target is None else round(float(target), 6)
