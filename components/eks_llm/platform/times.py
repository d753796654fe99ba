"""Times that pools and services of one platform have to agree on."""

from collections.abc import Mapping

from ..aws.node_pool import PoolSettings
from ..core.quantities import Duration
from ..core.timing import provision
from ..serving.demand import scale_down_window
from ..serving.existing_cluster import ExistingPool
from ..serving.scaling import SCALE_DOWN_WINDOW
from ..serving.service import ServiceSettings


def node_start(pool: PoolSettings | ExistingPool) -> Duration:
    """What a pod may have to wait for a node of the pool. Of a cluster that somebody else runs, nothing is known."""
    return pool.node_start if isinstance(pool, PoolSettings) else Duration(0)


def node_provision_time(pools: Mapping[str, PoolSettings]) -> Duration:
    """How long the node autoscaler waits for a node: as long as the slowest pool's may take."""
    return Duration(max((provision(pool.node_start) for pool in pools.values()), default=provision(0)))


def node_idle_time(pools: Mapping[str, PoolSettings], services: Mapping[str, ServiceSettings]) -> Duration:
    """How long a node must be idle before it goes: as long as any service waits before it gives up a replica.

    Sooner, a node would be gone while the policy still calls the low demand too short to act on.
    """
    windows = [
        scale_down_window(service, node_start(pools[service.pool]))
        for service in services.values()
        if service.pool in pools
    ]
    return Duration(max([SCALE_DOWN_WINDOW, *windows]))
