"""The Grafana dashboard of a service: `dashboards.service` with the service's own targets and thresholds."""

from typing import Any

from ..core.quantities import Duration
from ..observe.dashboards import sidecar
from ..observe.dashboards.service import Service, service
from ..observe.rules import RUNBOOKS
from .observability import Slo
from .scaling import Scaling
from .workload import Workload


def dashboard_config_map(
    work: Workload, slo: Slo, scaling: Scaling, in_flight: int, *, runbooks: str = RUNBOOKS
) -> dict[str, Any]:
    """A ConfigMap that Grafana's sidecar loads. `in_flight`: requests per replica that scaling aims at."""
    board = service(
        Service(
            name=work.name,
            namespace=work.namespace,
            ttft_p99=_seconds(slo.ttft_p99),
            tpot_p99=_seconds(slo.tpot_p99),
            in_flight=in_flight,
            kv_cache_target=scaling.kv_cache_target,
        ),
        runbooks,
    )
    metadata = work.metadata(f"{work.name}-dashboard", annotations=sidecar.ANNOTATIONS)
    metadata["labels"] = {**work.labels, **sidecar.LABELS}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": sidecar.data(board)}


def _seconds(target: Duration | None) -> float | None:
    """As people wrote it: 820ms is 0.8200000000000001 otherwise."""
    return None if target is None else round(float(target), 6)
