"""What rules and dashboards have to know of a service, in plain values: whoever makes services fills it in."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..core import timing
from ..core.timing import Start


@dataclass(frozen=True)
class WatchedService:
    """A service as it is watched."""

    name: str
    namespace: str
    gpus_per_replica: int
    min_replicas: int
    """Least replicas; 0 for a service that may rest."""
    max_replicas: int
    in_flight: int
    """Requests per replica that scaling aims at."""
    kv_cache_target: float
    """Share of KV-cache blocks per replica that scaling aims at."""
    start: Start
    """How long a pod takes until it is ready, and what gives up on it."""
    ttft_p99: float | None = None
    """Target for the time to first token, seconds; None: no target."""
    tpot_p99: float | None = None
    """Target for the time per further token of a request, seconds; None: no target."""
    front_door_query: str | None = None
    """PromQL of a signal that the service has at 0 replicas too; None: it has none."""
    usd_per_gpu_hour: float | None = None
    """Price of a GPU; None where it is not known."""

    @property
    def here(self) -> tuple[str, str]:
        """Namespace and name, by which series of the service are selected."""
        return self.namespace, self.name

    def targets(self) -> Iterator[tuple[str, float]]:
        """The latency targets that are set, in seconds, by their keys in a stack file."""
        for key, limit in (("ttftP99", self.ttft_p99), ("tpotP99", self.tpot_p99)):
            if limit is not None:
                yield key, limit


EXAMPLE = WatchedService(
    name="SERVICE",
    namespace="inference",
    gpus_per_replica=1,
    min_replicas=2,
    max_replicas=4,
    in_flight=48,
    kv_cache_target=0.85,
    start=timing.start(weights_gib=15, ending=timing.drain(600), node_start=600),
    ttft_p99=1,
    tpot_p99=0.05,
    front_door_query="sum(rate(requests_total[1m]))",
    usd_per_gpu_hour=2,
)
"""A service that has all that can be watched, for the pages about alerts and series."""
