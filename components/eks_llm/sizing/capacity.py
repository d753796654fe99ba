"""Do the services fit the node pools, the account's quotas and the zones: what a stack asks of EC2."""

import datetime
import re
from collections import Counter
from dataclasses import dataclass, replace
from math import ceil

from ..catalog.eks import NODE_GROUPS_LIMIT, NODE_GROUPS_QUOTA, NODES_LIMIT
from ..catalog.instances import QUOTAS, InstanceType
from ..catalog.nodes import NODES
from .stack import NodeGroup, Pool, QuotaNeed, Service, Stack
from .validity import Finding
from .weights import weights_gib

BLOCK_CLOSES_EARLY = datetime.timedelta(minutes=40)
"""EKS scales a Capacity Block group to zero that long before its end. Source: EKS user guide, ml-node-groups."""
BLOCK_WARNING = datetime.timedelta(days=7)
HOST_GIB = 6.0
"""Host memory of a replica beside its workers: server, tokenizer, scheduler. An estimate; measured figures win."""
WORKER_GIB = 4.0
"""Host memory of one GPU's worker process: CUDA context, pinned buffers, compiled code. An estimate."""
IMAGE_GIB = 25.0
"""A serving image unpacked (10.65 GB compressed: Triton 26.08 with vLLM), and one more while it is replaced."""


@dataclass(frozen=True)
class PoolBudget:
    """What a pool has and what its services ask for."""

    pool: Pool
    gpus_min: int
    gpus_max: int
    """GPUs that the services ask for at their minimum, and at their maximum."""
    nodes_for_min: int
    nodes_for_max: int
    """Nodes that hold those replicas; a replica never spans nodes."""
    nodes_expected: float

    @property
    def gpus_held(self) -> int:
        return self.pool.max_nodes * self.pool.instance.gpus


@dataclass(frozen=True)
class Capacity:
    """Budgets, quotas and what is wrong."""

    pools: tuple[PoolBudget, ...]
    quotas: tuple[QuotaNeed, ...]
    findings: tuple[Finding, ...]


def capacity(stack: Stack, now: datetime.datetime) -> Capacity:
    """What `stack` asks of EC2. `now` (with a time zone) is compared with the ends of Capacity Blocks."""
    budgets = tuple(_budget(stack, pool) for pool in stack.pools)
    findings: list[Finding] = []
    for budget in budgets:
        services = stack.used_by(budget.pool)
        findings += _nodes(budget, services)
        findings += _mix(budget, services)
        findings += _failure(budget, services)
        findings += _host(budget.pool, services)
        if budget.pool.made:
            findings += _sold(budget.pool)
            findings += _block(budget.pool, services, now)
            findings += _zones(budget.pool, stack.region)
    return Capacity(budgets, quotas(stack), (*findings, *_groups(stack)))


# Packing ------------------------------------------------------------------------------------------------------------


def nodes_needed(replicas: dict[int, int], gpus_per_node: int) -> int:
    """Nodes that hold `replicas` (number by GPUs of one), largest first.

    Exact where the sizes divide each other (1, 2, 4, 8), which tensor parallelism makes the rule.
    """
    free: Counter[int] = Counter()  # nodes by their free GPUs
    nodes = 0
    for size in sorted(replicas, reverse=True):
        left = replicas[size]
        for room in sorted(room for room in free if room >= size):
            per_node = room // size
            used = min(free[room], ceil(left / per_node))
            if not used or left <= 0:
                continue
            placed = min(left, used * per_node)
            full, rest = divmod(placed, per_node)
            free[room] -= used
            free[room - per_node * size] += full
            if rest:
                free[room - rest * size] += 1
            left -= placed
        per_node = gpus_per_node // size
        if left > 0 and per_node:
            full, rest = divmod(left, per_node)
            free[gpus_per_node - per_node * size] += full
            if rest:
                free[gpus_per_node - rest * size] += 1
            nodes += full + bool(rest)
    return nodes


def _sizes(services: list[Service], limit: str) -> dict[int, int]:
    sizes: Counter[int] = Counter()
    for service in services:
        sizes[service.gpus] += ceil(getattr(service, limit))
    return sizes


def _budget(stack: Stack, pool: Pool) -> PoolBudget:
    services = stack.used_by(pool)
    per_node = pool.instance.gpus
    expected = nodes_needed(_sizes(services, "expected"), per_node)
    return PoolBudget(
        pool=pool,
        gpus_min=sum(service.gpus * service.min_replicas for service in services),
        gpus_max=sum(service.gpus * service.max_replicas for service in services),
        nodes_for_min=nodes_needed(_sizes(services, "min_replicas"), per_node),
        nodes_for_max=nodes_needed(_sizes(services, "max_replicas"), per_node),
        nodes_expected=min(pool.max_nodes, max(pool.min_nodes, expected)),
    )


# Checks -------------------------------------------------------------------------------------------------------------


def _nodes(budget: PoolBudget, services: list[Service]) -> list[Finding]:
    pool, path = budget.pool, f"gpuPools.{budget.pool.name}.nodes"
    held = f"{pool.max_nodes} node(s) hold {budget.gpus_held} GPUs"
    asked = ", ".join(f"{s.name} {s.max_replicas} x {s.gpus}" for s in services)
    found: list[Finding] = []
    if budget.nodes_for_max > pool.max_nodes:
        more = f"set max to {budget.nodes_for_max}" if pool.made else "add nodes to the cluster"
        if pool.made and budget.nodes_for_max > NODES_LIMIT:
            more = f"a pool has at most {NODES_LIMIT} nodes (EKS), so share them among pools"
        found.append(
            Finding(
                f"{path}.max" if pool.made else path,
                f"{held}; the services ask for {budget.gpus_max} at their maximum ({asked}), which takes "
                f"{budget.nodes_for_max} nodes; {more}, or lower scaling.max",
                error=True,
            )
        )
    elif not pool.made:
        return []
    elif services and budget.nodes_for_max < pool.max_nodes:
        found.append(
            Finding(f"{path}.max", f"{pool.max_nodes}, but the services never need more than {budget.nodes_for_max}")
        )
    if pool.min_nodes < budget.nodes_for_min <= pool.max_nodes:
        found.append(
            Finding(
                f"{path}.min",
                f"{pool.min_nodes}, but the minimum replicas take {budget.nodes_for_min} node(s): they wait for the "
                f"node autoscaler, and keep those nodes",
            )
        )
    return found


def _mix(budget: PoolBudget, services: list[Service]) -> list[Finding]:
    """Kubernetes spreads pods, so small replicas may leave no node with room for a large one."""
    sizes = {service.gpus for service in services}
    largest = max(sizes, default=0)
    smaller = [service for service in services if service.gpus < largest]
    large = sum(service.max_replicas for service in services if service.gpus == largest)
    per_node = budget.pool.instance.gpus
    if not smaller or not per_node // largest:
        return []
    # Worst case: each small replica sits on a node of its own and blocks one place for a large one there.
    blocked = sum(ceil(service.gpus / largest) * service.max_replicas for service in smaller)
    if large + blocked <= budget.pool.max_nodes * (per_node // largest):
        return []
    return [
        Finding(
            f"gpuPools.{budget.pool.name}",
            f"replicas of {', '.join(map(str, sorted(sizes)))} GPUs share {budget.pool.max_nodes} node(s): small ones "
            f"may scatter and leave no node with {largest} free GPUs; give each size its own pool",
        )
    ]


def _failure(budget: PoolBudget, services: list[Service]) -> list[Finding]:
    nodes = max(budget.pool.min_nodes, budget.nodes_for_min)
    found: list[Finding] = []
    for service in services:
        replicas = service.min_replicas
        if not replicas:
            continue
        lost = ceil(replicas / min(nodes, replicas))
        if lost * 2 >= replicas:
            what = "all of its replicas" if lost == replicas else f"{lost} of its {replicas} replicas"
            found.append(
                Finding(
                    f"services.{service.name}.scaling.min",
                    f"the loss of one node takes {what} at the minimum of {nodes} node(s), until a new node serves",
                )
            )
    return found


def host_memory_gib(service: Service) -> float:
    """Host memory of one replica, /dev/shm included, GiB: as stated, or an estimate."""
    return service.memory_gib or HOST_GIB + WORKER_GIB * service.gpus + service.shm_gib


def allocatable_gib(instance: InstanceType) -> float:
    """Memory of a node that pods can have, GiB: kubelet reserves 11 MiB a pod and 255 MiB. Source: amazon-eks-ami."""
    return instance.memory_gib * 0.97 - (11 * instance.max_pods + 255) / 1024


def _host(pool: Pool, services: list[Service]) -> list[Finding]:
    found: list[Finding] = []
    instance = pool.instance
    for service in services:
        room = allocatable_gib(instance) * service.gpus / instance.gpus
        need = host_memory_gib(service)
        if service.gpus <= instance.gpus and need > room:
            found.append(
                Finding(
                    f"services.{service.name}",
                    f"a replica takes about {need:.0f} GiB of host memory, {service.shm_gib:g} of it /dev/shm; its "
                    f"share of a {pool.instance_type} is {room:.0f} GiB",
                )
            )
    disk = IMAGE_GIB * 2 + sum(weights_gib(service.shape, service.quantization) for service in services)
    local = instance.nvme_gb * 1e9 / 2**30
    if services and disk > local:
        found.append(
            Finding(
                f"gpuPools.{pool.name}.instanceType",
                f"images and weights take {disk:.0f} GiB; the NVMe disks of {pool.instance_type} hold {local:.0f} GiB",
                error=True,
            )
        )
    return found


def _sold(pool: Pool) -> list[Finding]:
    """What AWS does not sell this way."""
    path = f"gpuPools.{pool.name}.capacity"
    blocks = QUOTAS[pool.instance.quota].capacity_block
    if pool.capacity == "onDemand" and not pool.instance.sold_on_demand:
        message = f"{pool.instance_type} is not sold on demand; set kind to spot, or to capacityBlock with its id"
        return [Finding(path, message, error=True)]
    if pool.capacity != "capacityBlock" or pool.instance_type in blocks:
        return []
    if not blocks:
        known = ", ".join(name for quota in QUOTAS.values() for name in quota.capacity_block)
        message = f"there are no Capacity Blocks of {pool.instance_type} (there are of {known}); use another kind"
        return [Finding(path, message, error=True)]
    message = f"the quota of Capacity Blocks of {pool.instance_type} is not known; look it up in Service Quotas, ec2"
    return [Finding(path, message)]


def _block(pool: Pool, services: list[Service], now: datetime.datetime) -> list[Finding]:
    if pool.capacity != "capacityBlock" or not pool.block_ends:
        return []
    path = f"gpuPools.{pool.name}.capacity"
    stops = pool.block_ends - BLOCK_CLOSES_EARLY
    when = f"{stops:%Y-%m-%d %H:%M %Z}".strip()
    if stops <= now:
        return [Finding(path, f"the Capacity Block is over: its nodes went away at {when}", error=True)]
    names = ", ".join(service.name for service in services if service.max_replicas)
    if names and stops - now < BLOCK_WARNING:
        days = (stops - now).total_seconds() / 86400
        return [Finding(path, f"EKS takes the nodes away at {when}, in {days:.1f} days; {names} stop(s) then")]
    return []


def _group_count(stack: Stack) -> int:
    return sum(pool.made for pool in stack.pools) + len(stack.node_groups)


def _groups(stack: Stack) -> list[Finding]:
    """One managed node group a pool."""
    if (count := _group_count(stack)) <= NODE_GROUPS_LIMIT:
        return []
    raised = f"quota {NODE_GROUPS_QUOTA} has to be raised first"
    text = f"{count} managed node groups with the system nodes; EKS makes {NODE_GROUPS_LIMIT} a cluster, so {raised}"
    return [Finding("gpuPools", text)]


# Zones and quotas ---------------------------------------------------------------------------------------------------

_SIDES = {"north": "n", "south": "s", "east": "e", "west": "w", "central": "c", "northeast": "ne", "southeast": "se",
          "northwest": "nw", "southwest": "sw"}  # fmt: skip


def zone_prefix(region: str) -> str:
    """How zone ids of a region begin: `usw2` for us-west-2."""
    *parts, number = region.split("-")
    return "".join(_SIDES.get(part, part) for part in parts) + number


def zone_ids(instance: InstanceType, region: str) -> list[str]:
    """Ids of the region's zones that are known to offer the instance type."""
    return [zone for zone in instance.zone_ids if zone.startswith(zone_prefix(region) + "-")]


def offered(instance: InstanceType, region: str) -> bool:
    """Whether the region may offer the type: only where all of its zones are known can it be told that not."""
    return not instance.zone_ids or bool(zone_ids(instance, region))


def _zones(pool: Pool, region: str) -> list[Finding]:
    if offered(pool.instance, region):
        return []
    regions = sorted({re.sub(r"-az\d+$", "", zone) for zone in pool.instance.zone_ids})
    return [
        Finding(
            f"gpuPools.{pool.name}.instanceType",
            f"{pool.instance_type} is not known to be offered in {region} (zones {', '.join(regions)}); check: "
            f"aws ec2 describe-instance-type-offerings --location-type availability-zone --region {region} "
            f"--filters Name=instance-type,Values={pool.instance_type}",
        )
    ]


def quotas(stack: Stack) -> tuple[QuotaNeed, ...]:
    """The limits that the stack needs at its maximum, by code."""
    asked = [*(_of_pool(pool, stack.region) for pool in stack.pools if pool.made),
             *(_of_group(group, stack.region) for group in stack.node_groups), *stack.quotas]  # fmt: skip
    if (count := _group_count(stack)) > NODE_GROUPS_LIMIT:
        name = "Managed node groups per cluster"
        asked.append(QuotaNeed(NODE_GROUPS_QUOTA, name, count, "node groups", ("gpuPools",), stack.region, "eks"))
    needs: dict[str, QuotaNeed] = {}
    for need in filter(None, asked):
        known = needs.get(need.code)
        needs[need.code] = (
            replace(need, value=known.value + need.value, pools=(*known.pools, *need.pools)) if known else need
        )
    return tuple(needs.values())


def _of_pool(pool: Pool, region: str) -> QuotaNeed | None:
    """vCPUs; Capacity Blocks count instances. None: the quota is not known, see `_sold`."""
    quota, instance = QUOTAS[pool.instance.quota], pool.instance
    value, unit = pool.max_nodes * instance.vcpus, "vCPUs"
    if pool.capacity == "capacityBlock":
        code, name = quota.capacity_block.get(pool.instance_type, ""), f"Capacity Blocks of {pool.instance_type}"
        value, unit = pool.max_nodes, "instances"
    elif pool.capacity == "spot":
        code, name = quota.spot, quota.spot_name
    else:
        code, name = quota.on_demand, quota.on_demand_name
    return QuotaNeed(code, name, value, unit, (pool.name,), region) if code else None


def _of_group(group: NodeGroup, region: str) -> QuotaNeed | None:
    """The quota of the standard families; None: the type's vCPUs are not known."""
    known, quota = NODES.get(group.instance_type), QUOTAS["Standard"]
    if known is None or not group.max_nodes:
        return None
    value = group.max_nodes * known.vcpus
    return QuotaNeed(quota.on_demand, quota.on_demand_name, value, "vCPUs", (group.name,), region)
