"""`GpuNodePool`: a managed node group of one GPU instance type in one zone, from p4d to p6."""

import base64
import datetime
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart
from enum import Enum
from typing import Annotated, Any, NotRequired, TypedDict

import pulumi
import pulumi_aws as aws
import yaml
from pydantic import AwareDatetime, Field, field_validator, model_validator

from ..catalog.eks import KUBERNETES, NODES_LIMIT, AmiType, architecture
from ..catalog.instances import INSTANCES, InstanceType
from ..catalog.regions import zone_problem
from ..core.addresses import ReservationId, RoleArn, SecurityGroupId, SubnetId, VpcId
from ..core.component import Child, Component
from ..core.customize import Customize
from ..core.faults import Fault
from ..core.model import In, Model, component_inputs
from ..core.names import Tags
from ..core.placement import GPU_RESOURCE, NODE_FOLDER, NVME_MOUNT, node_labels
from ..core.problems import nearest
from ..core.quantities import Duration, Size
from ..core.timing import LONGEST_NODE_START_SECONDS, NODE_START_SECONDS
from ..sizing.needs import Artifact, Context, Needs, answers
from ..sizing.stack import Pool
from .nodes import METADATA_OPTIONS, REPAIR, release_problem, root_volume, tag_specifications

# Arguments ----------------------------------------------------------------------------------------------------------


class CapacityKind(Enum):
    """How EC2 capacity is bought."""

    ON_DEMAND = "onDemand"
    SPOT = "spot"
    RESERVATION = "reservation"
    CAPACITY_BLOCK = "capacityBlock"


class CapacityArgs(TypedDict):
    kind: CapacityKind
    """`onDemand`, `spot` (taken back at two minutes' notice), `reservation` (an On-Demand Capacity Reservation) or
    `capacityBlock` (a Capacity Block for ML)."""
    id: NotRequired[str]
    """Id of the reservation or block, `cr-…`. Required with those two kinds, refused with the others. It has to be in
    the pool's zone and of its instance type."""
    ends_at: NotRequired[str]
    """When the capacity block ends, with a zone and in quotes, e.g. `"2026-12-14T11:30:00Z"`. EKS drains the pool 40
    minutes before. A block that has ended gives a warning. Default: not known."""


class NodesArgs(TypedDict):
    min: int
    """Nodes at least, 0 or more; 0 with a capacity block, which may not have begun when the pool is made."""
    max: int
    """Nodes at most, 1 to 450 (EKS)."""
    start: NotRequired[str]
    """How long a new node takes from the pod that waits for it until it runs that pod's image: launch, join, GPU
    operator, image. Where `max` is above `min`, scaling reckons with it, and the node autoscaler, rollouts and alerts
    wait half as long again, at least 30 minutes. Default `10m`, assumed; measure yours by
    `kube_pod_status_scheduled_time - kube_pod_created`, plus the pull of the image."""


class GpuNodePoolArgs(TypedDict):
    instance_type: str
    """A GPU type of the catalogue, e.g. `p4d.24xlarge`."""
    zone: str
    """Availability zone of `subnet_id`, e.g. `us-west-2b`. One zone: GPU capacity is bought by zone, EFA does not cross
    zones, and an Auto Scaling group over several would end healthy nodes to balance them."""
    nodes: NodesArgs
    """Range within which cluster-autoscaler moves."""
    cluster_name: pulumi.Input[str]
    """Name of the cluster."""
    kubernetes_version: str
    """Kubernetes minor of the cluster, e.g. `1.35`."""
    subnet_id: pulumi.Input[str]
    """The private subnet of `zone`."""
    security_group_id: pulumi.Input[str]
    """The security group that EKS made for the cluster."""
    node_role_arn: pulumi.Input[str]
    """Role of the nodes."""
    vpc_id: NotRequired[pulumi.Input[str]]
    """VPC of `subnet_id`. Required with `efa`, which needs a security group."""
    capacity: NotRequired[CapacityArgs]
    """How the capacity is bought. Default `{kind: onDemand}`."""
    ami_type: NotRequired[AmiType]
    """Node image of EKS. Default `AL2023_x86_64_NVIDIA`."""
    ami_release: NotRequired[str]
    """Its release, e.g. `1.35.6-20260714`. Default: the catalogue's for the Kubernetes version. A change replaces all
    nodes, one after the other."""
    efa: NotRequired[bool]
    """Attach all EFA interfaces of the type, for models that span nodes. Pods get at them by an EFA device
    plugin, which nothing here installs: a warning says so. Default false: GPUs within a node talk over NVLink or
    PCIe."""
    placement_group: NotRequired[bool]
    """Launch close together in a cluster placement group; refused with reservations and capacity blocks. Default false:
    it makes scarce capacity scarcer."""
    root_volume: NotRequired[str]
    """Root volume, e.g. `200GiB`. Default 50GiB on types with instance-store disks, where images, logs and pods'
    scratch space live on those, and 200GiB on types without: two or three serving images of 20 to 30 GiB unpacked."""
    tags: NotRequired[dict[str, str]]
    """Tags of instances, volumes and interfaces, which default tags do not reach. They are part of the launch template:
    a changed tag replaces all nodes, one after the other. Default: none."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


# Models -------------------------------------------------------------------------------------------------------------

AMI_ROOT_GIB = 20
"""Snapshot of the AL2023 image, below which no root volume goes. Source: amazon-eks-ami, variables-default.json."""

GP3_LIMIT_GIB = 64 * 1024
"""Largest gp3 volume. Source: EBS user guide, "General Purpose SSD volumes"."""


class Capacity(Model):
    kind: CapacityKind
    id: ReservationId | None = None
    ends_at: AwareDatetime | None = None

    @property
    def reserved(self) -> bool:
        """Bought ahead: there is nothing to launch beyond it."""
        return self.kind in (CapacityKind.RESERVATION, CapacityKind.CAPACITY_BLOCK)

    @model_validator(mode="after")
    def _id_where_reserved(self) -> "Capacity":
        if self.reserved and not self.id:
            raise ValueError(f"{self.kind.value} needs the id of what was bought, cr-…")
        if not self.reserved and self.id:
            raise ValueError(f"{self.kind.value} takes no id; use kind: reservation or capacityBlock for {self.id}")
        if self.ends_at and self.kind is not CapacityKind.CAPACITY_BLOCK:
            raise Fault("", "{key.ends_at} belongs to capacityBlock; {kind} has no end", kind=self.kind.value)
        return self


class Nodes(Model):
    min: Annotated[int, Field(ge=0)]
    max: Annotated[int, Field(ge=1, le=NODES_LIMIT)]
    start: Duration = Duration(NODE_START_SECONDS)

    @field_validator("start")
    @classmethod
    def _some_time(cls, value: Duration) -> Duration:
        if not 1 <= value <= LONGEST_NODE_START_SECONDS:
            raise ValueError(
                "a node takes 1s to 60m; an HPA looks back no longer, so no scaling policy could reckon with it"
            )
        return value

    @model_validator(mode="after")
    def _range(self) -> "Nodes":
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


class PoolSettings(Model):
    """What a stack file says about a pool of GPU nodes."""

    instance_type: str
    zone: str
    nodes: Nodes
    capacity: Capacity = Capacity(kind=CapacityKind.ON_DEMAND)
    ami_type: AmiType = AmiType.AL2023_NVIDIA
    ami_release: str | None = None
    efa: bool = False
    placement_group: bool = False
    root_volume: Size | None = None

    @field_validator("instance_type")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in INSTANCES:
            raise ValueError(f"not a GPU instance type of the catalogue{nearest(name, list(INSTANCES))}")
        return name

    @field_validator("zone")
    @classmethod
    def _zone_name(cls, zone: str) -> str:
        if problem := zone_problem(zone):
            raise ValueError(problem)
        return zone

    @field_validator("root_volume")
    @classmethod
    def _holds_the_image(cls, size: Size | None) -> Size | None:
        if size is not None and (not AMI_ROOT_GIB <= size <= GP3_LIMIT_GIB or size % 1):
            raise ValueError(
                f"a root volume is whole GiB, at least {AMI_ROOT_GIB}GiB, the size of the node image, and at most "
                f"{GP3_LIMIT_GIB // 1024}TiB (EBS gp3)"
            )
        return size

    @model_validator(mode="after")
    def _image_fits(self) -> "PoolSettings":
        if problem := image_problem(self.instance_type, self.ami_type):
            raise problem
        return self

    @model_validator(mode="after")
    def _interconnect(self) -> "PoolSettings":
        if self.efa and not self.instance.efa:
            raise Fault("efa", "{instance_type} has no EFA interface", instance_type=self.instance_type)
        if self.placement_group and self.capacity.reserved:
            raise Fault(
                "placement_group",
                "{kind} capacity that was not bought in that group cannot be launched in it, and EC2 answers "
                "InsufficientInstanceCapacity; leave {key.placement_group} out",
                kind=self.capacity.kind.value,
            )
        return self

    @model_validator(mode="after")
    def _block_starts_empty(self) -> "PoolSettings":
        if self.capacity.kind is CapacityKind.CAPACITY_BLOCK and self.nodes.min:
            raise Fault("nodes.min", "set 0 with a capacityBlock; nodes can only be launched while the block lasts")
        return self

    @property
    def instance(self) -> InstanceType:
        return INSTANCES[self.instance_type]

    @property
    def node_start(self) -> Duration:
        """What a pod may have to wait for a node; 0s where none is ever added."""
        return self.nodes.start if self.nodes.max > self.nodes.min else Duration(0)


class _GpuNodePool(PoolSettings):
    cluster_name: In[str]
    kubernetes_version: str
    subnet_id: In[SubnetId]
    security_group_id: In[SecurityGroupId]
    node_role_arn: In[RoleArn]
    vpc_id: In[VpcId] | None = None
    tags: Tags = {}
    customize: Customize = {}

    @model_validator(mode="after")
    def _release_fits(self) -> "_GpuNodePool":
        if self.kubernetes_version not in KUBERNETES:
            raise Fault("kubernetes_version", "{version!r} is not in the catalogue", version=self.kubernetes_version)
        if problem := release_problem(self.release, self.kubernetes_version):
            raise Fault("ami_release", "{problem}", problem=problem)
        if self.efa and self.vpc_id is None:
            raise Fault("vpc_id", "required with efa, whose interfaces need a security group of their own")
        return self

    @property
    def release(self) -> str:
        return self.ami_release or KUBERNETES[self.kubernetes_version].ami_release


# Builders -----------------------------------------------------------------------------------------------------------


def image_problem(instance_type: str, ami: AmiType) -> Fault | None:
    """Why nodes of this type cannot run this image; None if they can."""
    facts, cpu, needed = ami.facts, architecture(instance_type), INSTANCES[instance_type].minimum_driver
    if not facts.nvidia:
        text = "{ami} has no NVIDIA driver, and {type} has GPUs; use AL2023_x86_64_NVIDIA"
        return Fault("ami_type", text, ami=ami.value, type=instance_type)
    if facts.architecture != cpu:
        text = "{ami} is an {image} image, and {type} is {cpu}"
        return Fault("ami_type", text, ami=ami.value, image=facts.architecture, type=instance_type, cpu=cpu)
    if not facts.nodeadm:
        return Fault(
            "ami_type",
            "{ami} does not read nodeadm's NodeConfig, so the instance-store disks would not be mounted where weights "
            "go; use AL2023_x86_64_NVIDIA",
            ami=ami.value,
        )
    if needed and int(facts.driver.split(".", maxsplit=1)[0]) < needed:
        return Fault(
            "instance_type",
            "{type} needs NVIDIA driver {needed} or later; {ami} carries {driver} (amazon-eks-ami, "
            "doc/usage/g7-ami.md, builds an image that does; pools of own images are not supported)",
            type=instance_type,
            needed=needed,
            ami=ami.value,
            driver=facts.driver,
        )
    return None


def node_config(instance: InstanceType) -> str:
    """The part of nodeadm's NodeConfig that EKS does not write itself, as YAML.

    EKS appends its own part, whose keys win: name of the cluster, labels, taint, max pods. RAID0 makes one file system
    of the instance-store disks at /mnt/k8s-disks/0 and puts containerd, kubelet and pod logs on it. FastImagePull
    fetches and unpacks image layers in parallel. Source: amazon-eks-ami, nodeadm/doc.
    """
    spec: dict[str, Any] = {"featureGates": {"FastImagePull": True}}
    if instance.nvme_disks:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    return yaml.safe_dump({"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}, sort_keys=False)


FOLDER_SCRIPT = f"""#!/bin/sh
systemd-run --unit=eks-llm-folder --collect /bin/sh -c \\
  'until mountpoint -q {NVME_MOUNT}; do sleep 1; done; mkdir -p -m 0755 {NODE_FOLDER}'
"""
"""Makes the folder for pods on the array. Cloud-init runs it before nodeadm makes the array, so it waits beside."""


def user_data(instance: InstanceType) -> str:
    """EC2 user data: a NodeConfig, and with NVMe disks the script that makes the folder for pods; MIME in base64.

    The boundary is fixed, so that an unchanged pool has unchanged user data and keeps its nodes. Source of the form:
    EKS user guide, "Customize managed nodes with launch templates".
    """
    parts = [("application", "node.eks.aws", node_config(instance))]
    if instance.nvme_disks:
        parts.append(("text", "x-shellscript", FOLDER_SCRIPT))
    document = MIMEMultipart("mixed", boundary="NODECONFIG")
    for main, sub, text in parts:
        part = MIMENonMultipart(main, sub)
        part.set_payload(text)
        document.attach(part)
    return base64.b64encode(document.as_bytes()).decode()


def root_gib(instance: InstanceType, chosen: Size | None) -> int:
    """Size of the root volume: see `root_volume` of the arguments."""
    if chosen is not None:
        return int(chosen)
    return 50 if instance.nvme_disks else 200


def root_throughput(instance: InstanceType) -> int:
    """MiB/s of the root volume: gp3's free 125 where images go to NVMe, else what nodeadm asks for (600 to 1,000)."""
    return 125 if instance.nvme_disks else 1000


def pod_storage_gib(instance: InstanceType, root: int) -> int:
    """Ephemeral storage that pods can ask for, rounded down.

    Of the disks, kubelet keeps 10 % (its hard eviction threshold) and 1 GiB, and the file system takes about 1 %.
    """
    disk = instance.nvme_gb * 1e9 / 2**30 if instance.nvme_disks else root - AMI_ROOT_GIB
    return int(disk * 0.89) - 1


def autoscaler_tags(instance: InstanceType, root: int, efa: bool) -> dict[str, str]:
    """What cluster-autoscaler cannot know of an empty pool: with these tags, pods that ask for it start a first node.

    It knows CPU, memory and GPUs of the type, and reads labels and taints from the node group. Source:
    cluster-autoscaler, cloudprovider/aws/README.md.
    """
    prefix = "k8s.io/cluster-autoscaler/node-template/resources"
    tags = {f"{prefix}/ephemeral-storage": f"{pod_storage_gib(instance, root)}Gi"}
    return {**tags, f"{prefix}/vpc.amazonaws.com/efa": str(instance.efa)} if efa else tags


def efa_interfaces(
    instance: InstanceType, security_groups: list[pulumi.Input[str]]
) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgsDict]:
    """One interface for IP traffic, and an EFA-only one for each EFA that the type has.

    The primary interface may not be EFA-only, so card 0 carries its EFA on device 1 and the other cards on device 0.
    Where cards outnumber EFAs, card 0 is without. Source: EC2 user guide, "Maximize network bandwidth on instances with
    multiple network cards".
    """
    cards = range(max(0, instance.network_cards - instance.efa), instance.network_cards)
    places = [(0, 0, "interface"), *((card, 1 if card == 0 else 0, "efa-only") for card in cards)]
    return [
        {
            "network_card_index": card,
            "device_index": device,
            "interface_type": kind,
            "security_groups": security_groups,
            "delete_on_termination": "true",
        }
        for card, device, kind in places
    ]


def market(capacity: Capacity) -> dict[str, Any]:
    """The launch template's arguments that tie it to a reservation or a capacity block."""
    if not capacity.reserved:
        return {}
    target = {"capacity_reservation_id": capacity.id}
    if capacity.kind is CapacityKind.CAPACITY_BLOCK:
        return {
            "instance_market_options": {"market_type": "capacity-block"},
            "capacity_reservation_specification": {"capacity_reservation_target": target},
        }
    return {
        # Without the preference, EC2 would go on at on-demand prices where the reservation is used up.
        "capacity_reservation_specification": {
            "capacity_reservation_preference": "capacity-reservations-only",
            "capacity_reservation_target": target,
        }
    }


CAPACITY_TYPES = {
    CapacityKind.ON_DEMAND: "ON_DEMAND",
    CapacityKind.RESERVATION: "ON_DEMAND",
    CapacityKind.SPOT: "SPOT",
    CapacityKind.CAPACITY_BLOCK: "CAPACITY_BLOCK",
}


def update_config(capacity: Capacity) -> aws.eks.NodeGroupUpdateConfigArgsDict:
    """How nodes are replaced by an update, one at a time.

    MINIMAL ends the old node first: a reservation has no place for one more. Otherwise DEFAULT launches the new one
    first, because capacity that is given back may not return. Source: EKS API reference, NodegroupUpdateConfig.
    """
    return {"max_unavailable": 1, "update_strategy": "MINIMAL" if capacity.reserved else "DEFAULT"}


def block_warning(capacity: Capacity, now: datetime.datetime) -> str | None:
    """A capacity block that has ended can launch nothing."""
    if capacity.ends_at is None or now < capacity.ends_at:
        return None
    return f"capacity block {capacity.id} ended at {capacity.ends_at.isoformat()}: this pool gets no nodes any more"


EFA_WARNING = (
    "efa: no pod can ask for vpc.amazonaws.com/efa before a device plugin runs on these nodes, and nothing here "
    "installs one; install the chart aws-efa-k8s-device-plugin of https://aws.github.io/eks-charts with a toleration "
    f"of {GPU_RESOURCE}, or leave efa out"
)


# Needs --------------------------------------------------------------------------------------------------------------


def needs(name: str, settings: PoolSettings, _context: Context) -> Needs:
    pool = Pool(
        name=name,
        instance_type=settings.instance_type,
        min_nodes=settings.nodes.min,
        max_nodes=settings.nodes.max,
        capacity=settings.capacity.kind.value,
        block_ends=settings.capacity.ends_at,
        root_volume_gib=root_gib(settings.instance, settings.root_volume),
        root_volume_mbps=root_throughput(settings.instance),
        node_start_s=settings.node_start,
    )
    image = f"{settings.ami_type.value} {settings.ami_release or 'of the cluster'}"
    return Needs(region=settings.zone[:-1], pools=(pool,), artifacts=(Artifact("node image", image),))


# Component ----------------------------------------------------------------------------------------------------------


@answers(PoolSettings, needs)
class GpuNodePool(Component):
    """GPU nodes of one type in one zone, named like the component: services choose the pool by that name."""

    CHILDREN = {
        "node_group": Child(
            aws.eks.NodeGroup,
            "nodes",
            "the managed node group",
            {
                "scaling_config": "the plan counts these nodes; set nodes",
                "instance_types": "the plan sizes pods by it; set instance_type",
                "capacity_type": "the plan prices it; set capacity",
                "ami_type": "the GPU operator is set for it; set ami_type",
                "version": "set kubernetes_version",
                "subnet_ids": "set zone and subnet_id",
                'labels."eks-llm.dev/pool"': "services find the pool by it",
                "taints": "all other pods are kept off by it",
            },
        ),
        "launch_template": Child(aws.ec2.LaunchTemplate, "nodes", "disks, user data and network of the nodes"),
        "placement_group": Child(aws.ec2.PlacementGroup, "placement", "nodes close to each other; None without it"),
        "efa_security_group": Child(aws.ec2.SecurityGroup, "efa", "EFA's traffic among the nodes; None without `efa`"),
    }

    node_group_name: pulumi.Output[str]
    """Name of the managed node group, known once its first nodes are ready."""

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = GpuNodePool.checked(_GpuNodePool, args, name)
        super().__init__(
            "eks-llm:index:GpuNodePool", name, component_inputs(model, PoolSettings), opts, model.customize
        )
        if warning := block_warning(model.capacity, datetime.datetime.now(datetime.UTC)):
            pulumi.log.warn(warning, self)
        if model.efa:
            pulumi.log.warn(EFA_WARNING, self)

        self.placement_group: aws.ec2.PlacementGroup | None = None
        self.efa_security_group: aws.ec2.SecurityGroup | None = None
        block = model.capacity.kind is CapacityKind.CAPACITY_BLOCK
        root = root_gib(model.instance, model.root_volume)
        self.node_group = group = aws.eks.NodeGroup(
            f"{name}-nodes",
            cluster_name=model.cluster_name,
            node_role_arn=model.node_role_arn,
            subnet_ids=[model.subnet_id],
            ami_type=model.ami_type.value,
            version=model.kubernetes_version,
            release_version=model.release,
            capacity_type=CAPACITY_TYPES[model.capacity.kind],
            # EKS wants the type of a capacity block in the launch template, and takes it in one place only.
            instance_types=None if block else [model.instance_type],
            launch_template=self._template(name, model, root, block),
            scaling_config={"min_size": model.nodes.min, "max_size": model.nodes.max, "desired_size": model.nodes.min},
            update_config=update_config(model.capacity),
            node_repair_config=REPAIR,
            labels=node_labels(name, model.instance_type),
            taints=[{"key": GPU_RESOURCE, "value": "present", "effect": "NO_SCHEDULE"}],
            tags=autoscaler_tags(model.instance, root, model.efa),
            opts=pulumi.ResourceOptions(
                parent=self,
                ignore_changes=["scalingConfig.desiredSize"],  # belongs to the autoscaler
                # What was bought ahead cannot hold the old and the new nodes at once.
                delete_before_replace=model.capacity.reserved,
            ),
        )
        self.node_group_name = group.node_group_name
        self.register_outputs({"nodeGroupName": self.node_group_name})

    def _template(
        self, name: str, model: _GpuNodePool, root: int, block: bool
    ) -> aws.eks.NodeGroupLaunchTemplateArgsDict:
        here = pulumi.ResourceOptions(parent=self)
        placement: aws.ec2.LaunchTemplatePlacementArgsDict | None = None
        if model.placement_group:
            self.placement_group = aws.ec2.PlacementGroup(f"{name}-placement", strategy="cluster", opts=here)
            placement = {"group_name": self.placement_group.name}
        interfaces: list[aws.ec2.LaunchTemplateNetworkInterfaceArgsDict] | None = None
        if model.efa and model.vpc_id is not None:
            self.efa_security_group = fabric = aws.ec2.SecurityGroup(
                f"{name}-efa",
                vpc_id=model.vpc_id,
                description="EFA: all traffic among the nodes of the pool, which EFA requires both ways",
                ingress=[{"self": True, "protocol": "-1", "from_port": 0, "to_port": 0}],
                egress=[{"self": True, "protocol": "-1", "from_port": 0, "to_port": 0}],
                tags={"Name": f"{name}-efa"},
                opts=here,
            )
            interfaces = efa_interfaces(model.instance, [model.security_group_id, fabric.id])
        self.launch_template = template = aws.ec2.LaunchTemplate(
            f"{name}-nodes",
            instance_type=model.instance_type if block else None,
            user_data=user_data(model.instance),
            metadata_options=METADATA_OPTIONS,
            block_device_mappings=root_volume(root, root_throughput(model.instance)),
            # EKS adds the cluster's group only where the template names none, so it is always named here.
            vpc_security_group_ids=None if interfaces else [model.security_group_id],
            network_interfaces=interfaces,
            placement=placement,
            tag_specifications=tag_specifications({"Name": name, **model.tags}),
            opts=here,
            **market(model.capacity),
        )
        return {"id": template.id, "version": template.latest_version.apply(str)}
