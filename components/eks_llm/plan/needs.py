"""What a stack needs and costs, as plain values for every format: `Needs`, made from a sizing report."""

from dataclasses import dataclass, field

from ..sizing import needs as answers
from ..sizing.memory import Fit
from ..sizing.pods import requested
from ..sizing.policy import Policy
from ..sizing.report import Report
from ..sizing.stack import Service


@dataclass(frozen=True)
class ServiceFit:
    """Memory of one GPU of a service, GiB, and what it is enough for."""

    service: str
    gpu: str
    gpus: int
    """Per replica."""
    verdict: str
    """`fits`, `marginal` or `does not fit`."""
    summary: str
    visible: float
    budget: float
    """What vLLM may use of `visible`."""
    weights: float
    """With slots of LoRA adapters."""
    reserve: float
    """CUDA and NCCL, activation, CUDA graphs."""
    kv_cache: float
    """The rest; negative: the engine does not start."""
    max_model_len: int
    concurrency: float
    """Requests of `max_model_len` that a replica holds at once."""
    typical_tokens: int
    typical_concurrency: float
    largest_max_model_len: int


@dataclass(frozen=True)
class PoolCapacity:
    """GPUs and nodes of a pool, and what its services ask for at their minimum and maximum."""

    pool: str
    instance_type: str
    nodes: dict[str, int]
    gpus_held: int
    gpus: dict[str, int]
    nodes_needed: dict[str, int]


@dataclass(frozen=True)
class GroupLoad:
    """Nodes without GPU, and what the pods of add-ons and operators request of them."""

    group: str
    instance_type: str
    nodes: dict[str, int]
    pods: dict[str, int]
    cpu_m: dict[str, int]
    """Millicores, with as many nodes as the least and the most."""
    memory_mib: dict[str, int]


@dataclass(frozen=True)
class Quota:
    """A limit of the AWS account that the stack needs."""

    code: str
    name: str
    value: int
    unit: str
    region: str
    command: str


@dataclass(frozen=True)
class Money:
    """A position of the bill, USD per month; None: the price is not known."""

    what: str
    minimum: float | None
    expected: float | None
    maximum: float | None
    note: str = ""
    incomplete: bool = False
    """A price is missing from the sum, which is a lower bound."""


@dataclass(frozen=True)
class TokenPrice:
    """What a busy replica's output costs."""

    service: str
    usd_per_million: float | None
    """None: no price is known."""
    tokens_per_second: float
    assumption: str


@dataclass(frozen=True)
class Needs:
    """The answers for a stack."""

    region: str
    fit: list[ServiceFit]
    capacity: list[PoolCapacity]
    scaling: list[Policy]
    quotas: list[Quota]
    bill: list[Money]
    total: Money
    services: list[Money]
    """Each service's share of its pool."""
    tokens: list[TokenPrice]
    prices_of: str
    """ISO date of the oldest price of an instance."""
    groups: list[GroupLoad] = field(default_factory=list)
    artifacts: list[answers.Artifact] = field(default_factory=list)
    """Images, charts, add-ons and node images."""
    permissions: list[answers.Permission] = field(default_factory=list)
    flows: list[answers.Flow] = field(default_factory=list)


def needs(report: Report) -> Needs:
    """The answers in `report`."""
    cost = report.cost
    services = {service.name: service for service in report.stack.services}
    return Needs(
        region=report.stack.region,
        fit=[_fit(services[name], fit) for name, fit in report.fits.items()],
        capacity=[
            PoolCapacity(
                pool=budget.pool.name,
                instance_type=budget.pool.instance_type,
                nodes={"min": budget.pool.min_nodes, "max": budget.pool.max_nodes},
                gpus_held=budget.gpus_held,
                gpus={"min": budget.gpus_min, "max": budget.gpus_max},
                nodes_needed={"min": budget.nodes_for_min, "max": budget.nodes_for_max},
            )
            for budget in report.capacity.pools
        ],
        scaling=list(report.policies),
        quotas=[
            Quota(quota.code, quota.name, quota.value, quota.unit, quota.region, quota.command)
            for quota in report.capacity.quotas
        ],
        bill=[Money(line.what, line.minimum, line.expected, line.maximum, line.note) for line in cost.lines],
        total=Money(
            "total",
            cost.minimum,
            cost.expected,
            cost.maximum,
            note="incomplete: a price is not known" if cost.incomplete else "",
            incomplete=cost.incomplete,
        ),
        services=[Money(share.service, share.minimum, share.expected, share.maximum) for share in cost.services],
        tokens=[
            TokenPrice(share.service, share.per_million_tokens, share.tokens_per_second, share.assumption)
            for share in cost.services
        ],
        prices_of=cost.date.isoformat(),
        groups=_groups(report.needs),
        artifacts=list(report.needs.artifacts) if report.needs else [],
        permissions=list(report.needs.permissions) if report.needs else [],
        flows=list(report.needs.flows) if report.needs else [],
    )


def _groups(found: answers.Needs | None) -> list[GroupLoad]:
    loads: list[GroupLoad] = []
    for group in found.node_groups if found else ():
        nodes = {"min": group.min_nodes, "max": group.max_nodes}
        sums = {limit: requested(found.pods if found else (), number) for limit, number in nodes.items()}
        cpu, memory, pods = ({limit: sum_[index] for limit, sum_ in sums.items()} for index in range(3))
        loads.append(GroupLoad(group.name, group.instance_type, nodes, pods, cpu, memory))
    return loads


def _fit(service: Service, fit: Fit) -> ServiceFit:
    return ServiceFit(
        service=service.name,
        gpu=fit.gpu.name.removeprefix("NVIDIA "),
        gpus=service.gpus,
        verdict=fit.verdict.value,
        summary=fit.summary,
        visible=fit.gpu.visible_gib,
        budget=fit.budget,
        weights=fit.weights + fit.adapters,
        reserve=fit.non_torch + fit.activation + fit.graphs,
        kv_cache=fit.kv_cache,
        max_model_len=fit.engine.max_model_len,
        concurrency=fit.concurrency(),
        typical_tokens=service.typical,
        typical_concurrency=fit.concurrency(service.typical),
        largest_max_model_len=fit.largest_max_model_len,
    )
