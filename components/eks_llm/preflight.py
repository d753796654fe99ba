"""Can a platform run, what does it need, what does it cost: the settings of its components in, a `Report` out.

This is where settings meet arithmetic. `check` is what the reference program calls before it registers anything;
`of_components` reads the same settings back from registered components, so that a plan or a policy sizes any program.
"""

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from .aws.cluster import SYSTEM_ROOT_GIB, ClusterSettings
from .aws.network import Nat, NetworkSettings
from .aws.node_pool import PoolSettings, root_gib, root_throughput
from .catalog.instances import INSTANCES
from .core.quantities import Duration
from .core.timing import Start, cut_off, drain, provision, start, update_problem
from .operators.monitoring import MonitoringSettings
from .serving import scaling
from .serving.existing_cluster import ExistingClusterInputs, ExistingPool
from .serving.service import Runtime, ServiceSettings
from .serving.targets import problems
from .serving.workload import share
from .sizing.capacity import BLOCK_CLOSES_EARLY
from .sizing.cost import rate
from .sizing.own_prices import OwnPrices
from .sizing.policy import Policy
from .sizing.report import Report, size
from .sizing.stack import EXISTING, Pool, Service, Stack
from .sizing.validity import Finding
from .sizing.weights import weights_gib

ALERTMANAGER_GIB = 2


def check(
    region: str,
    pools: Mapping[str, PoolSettings | ExistingPool],
    services: Mapping[str, ServiceSettings],
    *,
    network: NetworkSettings | None = None,
    cluster: ClusterSettings | None = None,
    monitoring: MonitoringSettings | None = None,
    prices: OwnPrices | None = None,
    now: datetime.datetime | None = None,
) -> Report:
    """Sizes a platform as of `now` (default: now). A service without its pool is left out: that is another problem.

    `region` is empty where only nodes of an existing cluster are used, of which there are neither prices nor quotas.
    `network`, `cluster` and `monitoring` count in the bill; a part that the caller does not have costs nothing.
    `prices` replace the catalogue's.
    """
    placed = {name: service for name, service in services.items() if service.pool in pools}
    stack = Stack(
        region=region,
        kubernetes_version=cluster.version if cluster else "",
        pools=tuple(_pool(name, pool) for name, pool in pools.items()),
        services=tuple(_service(name, service, pools[service.pool]) for name, service in placed.items()),
        system_node_type=cluster.system_nodes.instance_types[0] if cluster else "",
        system_nodes=(cluster.system_nodes.min, cluster.system_nodes.max) if cluster else (0, 0),
        nat_gateways=_nat_gateways(network),
        endpoint_interfaces=len(network.interface_endpoints) * len(network.zone_names) if network else 0,
        volumes_gib=_volumes(cluster, monitoring),
        prices=prices,
    )
    report = size(stack, now or datetime.datetime.now(datetime.UTC))
    scaled = {name: service for name, service in placed.items() if not any(service.misfits(_type(pools, service)))}
    return replace(
        report,
        findings=(*report.findings, *(finding for name in scaled for finding in _doubts(name, scaled[name], pools))),
        policies=tuple(_policy(name, service, pools[service.pool]) for name, service in scaled.items()),
    )


def of_components(
    components: Iterable[tuple[str, str, Mapping[str, Any]]], prices: OwnPrices | None = None
) -> Report | None:
    """The report on registered components, each given as kind, name and inputs; None without a sized service.

    Inputs that are not known yet (outputs of other resources) keep a component out of the arithmetic.
    """
    known: dict[str, dict[str, Any]] = {kind: {} for kind in _SETTINGS}
    for kind, name, inputs in components:
        if kind in _SETTINGS:
            try:
                known[kind][name] = _SETTINGS[kind].model_validate(dict(inputs))
            except ValidationError:
                continue
    made, services = known["GpuNodePool"], known["InferenceService"]
    pools = {name: pool for there in known["ExistingCluster"].values() for name, pool in there.gpu_pools.items()} | made
    if not any(service.pool in pools for service in services.values()):
        return None
    region = next((pool.zone[:-1] for pool in made.values()), "")
    single = {kind: next(iter(known[kind].values()), None) for kind in ("Network", "Cluster", "Monitoring")}
    return check(
        region,
        pools,
        services,
        network=single["Network"],
        cluster=single["Cluster"],
        monitoring=single["Monitoring"],
        prices=prices,
    )


def usd_per_gpu_hour(report: Report, pool: str) -> float | None:
    """Price of a GPU of a pool, USD per hour; None: not known."""
    found = next(item for item in report.stack.pools if item.name == pool)
    price, _ = rate(found.instance_type, report.stack.region, found.capacity, report.stack.prices)
    return None if price is None else round(price / INSTANCES[found.instance_type].gpus, 6)


def outputs(report: Report) -> dict[str, Any]:
    """The figures of a report that a stack exports. Money is USD per month."""
    bill = report.cost
    return {
        "cost": {
            "usdPerMonth": {"min": round(bill.minimum), "expected": round(bill.expected), "max": round(bill.maximum)},
            "usdPerMillionOutputTokens": {
                service.service: round(service.per_million_tokens, 2)
                for service in bill.services
                if service.per_million_tokens is not None
            },
            "pricesOf": bill.date.isoformat(),
            "incomplete": bill.incomplete,
        },
        "gpuBudget": {
            budget.pool.name: {"held": budget.gpus_held, "atMin": budget.gpus_min, "atMax": budget.gpus_max}
            for budget in report.capacity.pools
        },
        "quotas": [
            {"code": quota.code, "name": quota.name, "value": quota.value, "unit": quota.unit, "region": quota.region}
            for quota in report.capacity.quotas
        ],
    }


_SETTINGS = {
    "Network": NetworkSettings,
    "Cluster": ClusterSettings,
    "Monitoring": MonitoringSettings,
    "GpuNodePool": PoolSettings,
    "ExistingCluster": ExistingClusterInputs,
    "InferenceService": ServiceSettings,
}


def _pool(name: str, pool: PoolSettings | ExistingPool) -> Pool:
    if isinstance(pool, ExistingPool):
        return Pool(name, pool.instance_type, min_nodes=pool.nodes, max_nodes=pool.nodes, capacity=EXISTING)
    return Pool(
        name=name,
        instance_type=pool.instance_type,
        min_nodes=pool.nodes.min,
        max_nodes=pool.nodes.max,
        capacity=pool.capacity.kind.value,
        block_ends=pool.capacity.ends_at,
        root_volume_gib=root_gib(pool.instance, pool.root_volume),
        root_volume_mbps=root_throughput(pool.instance),
    )


def _service(name: str, service: ServiceSettings, pool: PoolSettings | ExistingPool) -> Service:
    return Service(
        name=name,
        model=service.model,
        shape=service.shape,
        pool=service.pool,
        engine=service.memory_engine,
        min_replicas=service.scaling.min,
        max_replicas=service.scaling.max,
        quantization=service.quantization,
        tensor_parallel=service.tensor_parallel,
        pipeline_parallel=service.pipeline_parallel,
        expected_replicas=service.expected.replicas,
        typical_tokens=service.expected.tokens_per_request,
        tokens_per_second=service.expected.tokens_per_second,
        accept_memory=service.accept_memory,
        in_flight=service.targets(pool.instance_type).in_flight,
        shm_gib=share(pool.instance_type, service.gpus).shm_gib,
    )


def _nat_gateways(network: NetworkSettings | None) -> int:
    if network is None or network.existing or network.nat is Nat.NONE:
        return 0
    return len(network.zone_names) if network.nat is Nat.PER_ZONE else 1


def _volumes(cluster: ClusterSettings | None, monitoring: MonitoringSettings | None) -> float:
    roots = cluster.system_nodes.min * SYSTEM_ROOT_GIB if cluster else 0
    return roots + (monitoring.volume + ALERTMANAGER_GIB if monitoring else 0)


# Scaling ------------------------------------------------------------------------------------------------------------


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
        scaling.scale_down_window(service.scaling, _start(service, pools[service.pool]).for_scaling)
        for service in services.values()
        if service.pool in pools
    ]
    return Duration(max([scaling.SCALE_DOWN_WINDOW, *windows]))


def _start(service: ServiceSettings, pool: PoolSettings | ExistingPool) -> Start:
    ending = drain(service.limits.request_timeout)
    return start(weights_gib(service.shape, service.quantization), ending, node_start(pool))


def _policy(name: str, service: ServiceSettings, pool: PoolSettings | ExistingPool) -> Policy:
    found, begin, triton = service.targets(pool.instance_type), _start(service, pool), service.runtime is Runtime.TRITON
    up, down = scaling.in_words(scaling.behavior(service.scaling, begin.for_scaling))
    return Policy(
        service=name,
        min=service.scaling.min,
        max=service.scaling.max,
        in_flight=found.in_flight,
        in_flight_why=found.in_flight_why,
        max_queued=found.max_queued if triton else None,
        max_queued_why=found.max_queued_why if triton else "",
        pod_start=begin.expected,
        node_start=begin.node,
        scale_up=up,
        scale_down=down,
    )


def _doubts(name: str, service: ServiceSettings, pools: Mapping[str, PoolSettings | ExistingPool]) -> Iterator[Finding]:
    """What a service's policy will do badly."""
    pool, path = pools[service.pool], f"services.{name}"
    found, begin = service.targets(pool.instance_type), _start(service, pool)
    most = math.inf
    if found.estimate and service.runtime is Runtime.TRITON:
        most = found.estimate.slots + found.max_queued
    for key, message in problems(service.scaling, service.slo, found, service.expected.tokens_per_request is not None):
        yield Finding(f"{path}.{key}", message)
    for key, message in scaling.warnings(service.scaling, begin.for_scaling, found.in_flight, most):
        yield Finding(f"{path}.scaling.{key}", message)
    if isinstance(pool, PoolSettings):
        yield from _endings(path, service, pool)


def _endings(path: str, service: ServiceSettings, pool: PoolSettings) -> Iterator[Finding]:
    """What a service loses, or holds up, when nodes of its pool go away."""
    ending = drain(service.limits.request_timeout)
    if lost := cut_off(pool.capacity.kind.value, ending):
        yield Finding(f"{path}.limits.requestTimeout", lost)
    if held := update_problem(_start(service, pool), ending, _together(service, pool)):
        yield Finding(f"{path}.limits.requestTimeout", held)
    if pool.capacity.ends_at:
        stops = pool.capacity.ends_at - BLOCK_CLOSES_EARLY
        for key, message in scaling.block_warnings(service.scaling, stops, ending.grace):
            yield Finding(f"{path}.scaling.{key}", message)


def _together(service: ServiceSettings, pool: PoolSettings) -> int:
    """Replicas that always share a node: as many as run at the least demand, spread as evenly as its nodes allow."""
    least = math.ceil(service.scaling.min / max(1, pool.nodes.min))
    return max(1, min(pool.instance.gpus // service.gpus, least))


def _type(pools: Mapping[str, PoolSettings | ExistingPool], service: ServiceSettings) -> str:
    return pools[service.pool].instance_type
