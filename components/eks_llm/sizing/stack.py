"""What sizing needs to know of a stack, as plain values: `Stack`, its nodes, services, charges and quotas."""

import datetime
from dataclasses import dataclass

from ..catalog.instances import GPUS, INSTANCES, Gpu, InstanceType
from ..catalog.models import ModelShape
from .memory import Engine
from .own_prices import OwnPrices

EXISTING = "existing"
"""Capacity of nodes that somebody else runs: this stack neither asks EC2 for them nor pays for them."""


@dataclass(frozen=True)
class Pool:
    """A GPU node pool."""

    name: str
    instance_type: str
    min_nodes: int
    max_nodes: int
    capacity: str = "onDemand"
    """`onDemand`, `spot`, `reservation` or `capacityBlock`, as in a stack file, or `EXISTING`."""
    block_ends: datetime.datetime | None = None
    """When a Capacity Block ends, with a time zone."""
    root_volume_gib: int = 100
    root_volume_mbps: int = 125
    root_volume_iops: int = 3000
    node_start_s: float = 0
    """How long a pod may have to wait for a node, seconds; 0 where none is ever added."""

    @property
    def made(self) -> bool:
        """Whether its nodes are this stack's own."""
        return self.capacity != EXISTING

    @property
    def instance(self) -> InstanceType:
        return INSTANCES[self.instance_type]

    @property
    def gpu(self) -> Gpu:
        return GPUS[self.instance.gpu]


@dataclass(frozen=True)
class Service:
    """An inference service."""

    name: str
    model: str
    """For messages."""
    shape: ModelShape
    pool: str
    engine: Engine
    min_replicas: int
    max_replicas: int
    quantization: str = "none"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expected_replicas: float | None = None
    """Mean number of replicas over a month; None: half-way between min and max."""
    typical_tokens: int | None = None
    """Prompt and output of an ordinary request, three quarters of it prompt; None: a quarter of `maxModelLen`."""
    in_flight: int | None = None
    """Requests per replica that autoscaling aims at; None: as many as the engine runs."""
    tokens_per_second: float | None = None
    """Output rate of one replica as measured; None: estimated."""
    memory_gib: float | None = None
    """Host memory that one replica needs, GiB, /dev/shm included; None: estimated."""
    shm_gib: float = 2.0
    """Size of the pod's /dev/shm."""
    accept_memory: bool = False
    """Only warn where memory does not suffice by calculation."""

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def expected(self) -> float:
        return (self.min_replicas + self.max_replicas) / 2 if self.expected_replicas is None else self.expected_replicas

    @property
    def typical(self) -> int:
        return self.typical_tokens or max(1, self.engine.max_model_len // 4)


@dataclass(frozen=True)
class NodeGroup:
    """Nodes without GPU, for add-ons and operators."""

    name: str
    """As the bill calls it, e.g. `system nodes`."""
    path: str
    """Key path of its settings below `platform`, for findings."""
    instance_types: tuple[str, ...]
    """EC2 types, of which it takes the first that it can get."""
    min_nodes: int
    max_nodes: int

    @property
    def instance_type(self) -> str:
        """The type that is reckoned with."""
        return self.instance_types[0]


USD = "usd"
"""`Charge.price` of amounts that are US dollars already."""


@dataclass(frozen=True)
class Charge:
    """What a component costs beside its nodes: amounts a month at a price of the region."""

    what: str
    """The position of the bill; charges of one position are added up."""
    price: str
    """Name of a price of `catalog.prices.RegionPrices`, such as `gp3_gb_month`, or `USD`."""
    minimum: float
    expected: float
    maximum: float
    """Units a month. Hourly prices: hours, of which a month has `HOURS`."""
    note: str = ""


HOURS = 730
"""Hours in a month, as AWS counts them."""


@dataclass(frozen=True)
class QuotaNeed:
    """A Service Quotas limit that the stack needs."""

    code: str
    name: str
    value: int
    """vCPUs, or whatever `unit` says."""
    unit: str
    pools: tuple[str, ...]
    """Who needs it."""
    region: str
    service: str = "ec2"
    """Service code, as Service Quotas has it."""

    @property
    def command(self) -> str:
        """The command that asks for it."""
        return (
            f"aws service-quotas request-service-quota-increase --service-code {self.service} "
            f"--quota-code {self.code} --desired-value {self.value} --region {self.region}"
        )


@dataclass(frozen=True)
class Stack:
    """Everything that is sized and paid for."""

    region: str
    """Empty where nothing is bought in AWS."""
    pools: tuple[Pool, ...]
    services: tuple[Service, ...]
    node_groups: tuple[NodeGroup, ...] = ()
    charges: tuple[Charge, ...] = ()
    quotas: tuple[QuotaNeed, ...] = ()
    """Quotas beside those that follow from the nodes."""
    prices: OwnPrices | None = None
    """Prices that replace the catalogue's."""

    def own_price(self, instance_type: str, capacity: str = "onDemand") -> float | None:
        """USD per hour as the owner of the stack states it; None: the catalogue's price counts."""
        return self.prices.hourly(instance_type, self.region, capacity) if self.prices else None

    def used_by(self, pool: Pool) -> list[Service]:
        """Services on `pool`, without those whose replica no node of it can hold: that is a fault of their own."""
        held = pool.instance.gpus
        return [service for service in self.services if service.pool == pool.name and service.gpus <= held]
