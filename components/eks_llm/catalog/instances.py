"""GPU instance types of EC2 and their GPUs: `INSTANCES`, `GPUS`, `QUOTAS`."""

from ._load import Fact, load


class Gpu(Fact):
    """A GPU model as EC2 offers it."""

    name: str
    """Marketing name, as `nvidia-smi` prints it."""
    accelerator: str
    """Value of the node label `k8s.amazonaws.com/accelerator`, by which cluster-autoscaler knows GPU nodes."""
    compute_capability: str
    """CUDA compute capability, e.g. `8.0`."""
    api_mib: int
    """MiB per GPU as EC2's API reports them: decimal for G5 to G6e, binary for P4 and P5. Not what CUDA sees."""
    visible_gib: float
    """GiB that CUDA sees: what memory arithmetic starts from."""
    bandwidth_gbs: int
    """Memory bandwidth, GB/s."""
    bf16_tflops: int
    """Dense bfloat16 rate of the tensor cores, TFLOP/s."""
    nvlink_gbs: int = 0
    """GPU-to-GPU bandwidth over NVLink, GB/s; 0: PCIe only."""
    fp8: bool = False
    """Has FP8 tensor cores."""
    fp4: bool = False
    """Has FP4 tensor cores."""
    mig: int = 0
    """MIG slices at most; 0: no MIG."""
    unverified: tuple[str, ...] = ()
    """Keys whose values rest on one secondary source or an inference."""


class InstanceType(Fact):
    """An EC2 instance type with NVIDIA GPUs."""

    gpu: str
    """Key into `GPUS`."""
    gpus: int
    """GPUs per instance."""
    vcpus: int
    memory_gib: int
    nvme_disks: int
    """Instance-store disks."""
    nvme_gb: int
    """Instance-store capacity of all disks, decimal GB."""
    network_gbps: float
    efa: int = 0
    """EFA interfaces; 0: the type has none."""
    network_cards: int = 1
    enis_per_card: int | None = None
    """Network interfaces on each card at most; None: not known."""
    ipv4_per_eni: int | None = None
    max_pods: int
    """Pods with the VPC CNI and secondary IPs: ENIs of the default card x (IPv4 - 1) + 2."""
    quota: str
    """Key into `QUOTAS`."""
    minimum_driver: int = 0
    """Major version of the NVIDIA driver that it needs; 0: any that the EKS AMI carries."""
    sold_on_demand: bool = True
    """False: spot, reservations and Capacity Blocks only."""
    on_demand_usd: dict[str, float] = {}
    """On-demand price per hour by region; empty: not sold on demand, or not known."""
    spot_usd: tuple[float, float] | None = None
    """Lowest and highest spot price per hour seen in any zone; None: not known. It moves by the hour."""
    capacity_block_usd: float | None = None
    """Price of a Capacity Block per instance and hour; None: not known. AWS reviews it each quarter."""
    capacity_block_date: str = ""
    """When `capacity_block_usd` was valid, ISO date."""
    zone_ids: tuple[str, ...] = ()
    """Ids of zones known to offer the type; empty: not known."""
    unverified: tuple[str, ...] = ()
    """Keys whose values rest on one secondary source or an inference; a price as `onDemandUsd.<region>`."""


class Quota(Fact):
    """Service Quotas codes (service `ec2`) of an instance family; the unit is vCPUs, blocks count instances."""

    on_demand: str
    on_demand_name: str
    spot: str
    spot_name: str
    capacity_block: dict[str, str] = {}
    """Code by instance type."""


class _File(Fact):
    sources: list[str]
    date: str
    gpus: dict[str, Gpu]
    quotas: dict[str, Quota]
    instances: dict[str, InstanceType]


_file = load("instances.yaml", _File)

INSTANCES: dict[str, InstanceType] = _file.instances
"""Every known GPU instance type by name."""
GPUS: dict[str, Gpu] = _file.gpus
"""GPU models by the key that `InstanceType.gpu` uses."""
QUOTAS: dict[str, Quota] = _file.quotas
PRICES_DATE: str = _file.date
"""When the prices and zones were read, ISO date."""
