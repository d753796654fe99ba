"""Can a platform run, what does it need, what does it cost: the settings of its components in, a `Report` out.

This is where settings meet arithmetic. `check` is what the reference program calls before it registers anything;
`of_components` reads the same settings back from registered components, so that a plan or a policy sizes any program.
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from .aws.cluster import SYSTEM_ROOT_GIB, ClusterSettings
from .aws.network import Nat, NetworkSettings
from .aws.node_pool import PoolSettings, root_gib, root_throughput
from .catalog.images import IMAGES
from .operators.monitoring import MonitoringSettings
from .serving import engine
from .serving.existing_cluster import ExistingClusterInputs, ExistingPool
from .serving.service import ServiceSettings
from .serving.workload import share
from .sizing.memory import Engine
from .sizing.own_prices import OwnPrices
from .sizing.report import Report, size
from .sizing.stack import EXISTING, Pool, Service, Stack

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
    return size(stack, now or datetime.datetime.now(datetime.UTC))


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
    settings = service.engine
    return Service(
        name=name,
        model=service.model,
        shape=service.shape,
        pool=service.pool,
        engine=Engine(
            vllm=IMAGES[service.runtime.value].vllm or "",
            max_model_len=engine.max_model_len(settings, service.shape),
            max_num_seqs=engine.max_num_seqs(settings, service.profile),
            max_num_batched_tokens=engine.max_num_batched_tokens(settings, service.profile),
            gpu_memory_utilization=settings.gpu_memory_utilization,
            kv_cache_dtype=settings.kv_cache_dtype,
            enforce_eager=bool(settings.extra.get("enforce_eager")),
            lora_adapters=len(settings.lora_adapters),
            max_lora_rank=settings.max_lora_rank,
        ),
        min_replicas=service.scaling.min,
        max_replicas=service.scaling.max,
        quantization=service.quantization,
        tensor_parallel=service.tensor_parallel,
        pipeline_parallel=service.pipeline_parallel,
        expected_replicas=service.expected.replicas,
        typical_tokens=service.expected.tokens_per_request,
        tokens_per_second=service.expected.tokens_per_second,
        accept_memory=service.accept_memory,
        in_flight=service.in_flight,
        shm_gib=share(pool.instance_type, service.gpus).shm_gib,
    )


def _nat_gateways(network: NetworkSettings | None) -> int:
    if network is None or network.existing or network.nat is Nat.NONE:
        return 0
    return len(network.zone_names) if network.nat is Nat.PER_ZONE else 1


def _volumes(cluster: ClusterSettings | None, monitoring: MonitoringSettings | None) -> float:
    roots = cluster.system_nodes.min * SYSTEM_ROOT_GIB if cluster else 0
    return roots + (monitoring.volume + ALERTMANAGER_GIB if monitoring else 0)
