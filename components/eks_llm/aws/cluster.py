"""`Cluster`: an EKS control plane with its access, add-ons and system nodes, ready for GPU pools and operators."""

import datetime
import hashlib
import json
import re
from enum import Enum
from ipaddress import IPv4Network, collapse_addresses
from typing import Annotated, Any, NotRequired, TypedDict, cast

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
from pydantic import AfterValidator, Field, field_validator, model_validator

from ..catalog.eks import CONTROL_PLANE_USD, KUBERNETES, NODES_LIMIT, AmiType, architecture
from ..catalog.instances import INSTANCES
from ..core.addresses import IAM_NAME, Arn, Cidr, SubnetId, private_range
from ..core.component import Child, Component
from ..core.customize import Customize
from ..core.faults import Fault
from ..core.identity import pod_identity_trust, service_trust
from ..core.model import In, Model, component_inputs
from ..core.names import Tags
from ..core.placement import gpu_toleration
from ..core.problems import nearest
from ..sizing import pods
from ..sizing.needs import Artifact, Context, Needs, answers, managed
from ..sizing.stack import HOURS, USD, Charge, NodeGroup
from ..sizing.validity import Finding
from .nodes import METADATA_OPTIONS, REPAIR, release_problem, root_volume, tag_specifications
from .options import expendable

# Arguments ----------------------------------------------------------------------------------------------------------


class LogType(Enum):
    """A log of the control plane that EKS can send to CloudWatch."""

    API = "api"
    AUDIT = "audit"
    AUTHENTICATOR = "authenticator"
    CONTROLLER_MANAGER = "controllerManager"
    SCHEDULER = "scheduler"


class SystemNodesArgs(TypedDict):
    instance_types: NotRequired[list[str]]
    """EC2 types without GPU, x86_64, of like size, at most 20 (EKS); it takes the first that it can get. Default
    `[m7i.xlarge]` (4 vCPU, 16 GiB): operators and Prometheus of a small platform fit on two."""
    min: NotRequired[int]
    """Nodes at least, 1 or more. Default 2, so that DNS survives the loss of one."""
    max: NotRequired[int]
    """Nodes at most, up to 450 (EKS). Default 4."""
    ami_release: NotRequired[str]
    """Release of the AL2023 image, e.g. `1.35.6-20260714`. Default: the catalogue's for the Kubernetes version."""


class ClusterArgs(TypedDict):
    version: str
    """Kubernetes minor, e.g. `1.35`. Out of support: refused. In extended support: a warning with the surcharge. No
    default, so that an upgrade of this package never upgrades a cluster."""
    admins: list[str]
    """ARNs of the IAM roles or users that administer the cluster, at least one. Nobody else gets in, not even whoever
    creates the cluster; so the identity that runs `pulumi up` belongs here."""
    subnet_ids: pulumi.Input[list[str]]
    """Private subnets in at least two zones, for the control plane's interfaces and the system nodes."""
    public_access_cidrs: NotRequired[list[str]]
    """IPv4 ranges that may call the API server from the internet, at most 40 (EKS). Default: none, then only the VPC
    reaches it, and `pulumi up` has to run there."""
    accept_open_endpoint: NotRequired[bool]
    """Accept ranges that together hold more addresses than a /8, such as `0.0.0.0/0`. Default false."""
    service_cidr: NotRequired[str]
    """Addresses of Services, /12 to /24 in a private range, apart from the VPC. Default `172.20.0.0/16`. A change
    replaces the cluster."""
    log_types: NotRequired[list[LogType]]
    """Control-plane logs to keep. Default `[api, audit, authenticator]`. EKS may write a last line after a destroy has
    deleted the log group, and makes it again, without retention. Delete it then (`aws logs delete-log-group`): it costs
    storage, and stands in the way of a new cluster of that name."""
    log_retention_days: NotRequired[int]
    """Days that CloudWatch keeps them, one of the numbers that it knows (1, 3, 5, 7, 14, 30, 60, 90, …). Default 90."""
    system_nodes: NotRequired[SystemNodesArgs]
    """Nodes without GPU, for add-ons and operators."""
    addons: NotRequired[dict[str, str]]
    """Other builds of add-ons than the catalogue pins, e.g. `{"vpc-cni": "v1.23.0-eksbuild.1"}`."""
    deletion_protection: NotRequired[bool]
    """EKS refuses to delete the cluster until this is off again. Default false."""
    tags: NotRequired[dict[str, str]]
    """Tags of the system nodes' instances, volumes and interfaces, which default tags do not reach. Default: none."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


# Models -------------------------------------------------------------------------------------------------------------


def _principal(arn: str) -> str:
    if re.match(r"arn:[^:]+:sts:", arn):
        raise ValueError("a session is not a principal of an access entry; name its role, arn:aws:iam::…:role/…")
    if not re.fullmatch(rf"arn:aws:iam::\d{{12}}:(role|user)/{IAM_NAME}", arn, re.ASCII):
        raise ValueError("not an IAM role or user such as arn:aws:iam::111122223333:role/platform-admin")
    return arn


def _supported(version: str) -> str:
    if problem := support_problem(version, _today()):
        raise ValueError(problem)
    return version


RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)  # fmt: skip  # noqa: E501
"""What CloudWatch accepts. Source: CloudWatch Logs API, PutRetentionPolicy."""

OPEN_ADDRESSES = 2**24
"""More addresses than a /8 has are a good part of the internet."""
PUBLIC_RANGES = 40
"""Most ranges for the public endpoint. Source: EKS user guide, "Service quotas" (not adjustable)."""
SERVICE_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
"""Where EKS takes the range of Services. Source: EKS API reference, KubernetesNetworkConfigRequest."""

MINIMUM_IP_TARGET = 16
"""Addresses that the VPC CNI holds for pods on each node at least."""
SYSTEM_ROOT_GIB = 80
"""Root volume of a system node: the images of add-ons and operators, and pods' scratch space."""


class SystemNodes(Model):
    instance_types: list[str] = ["m7i.xlarge"]
    min: Annotated[int, Field(ge=1)] = 2
    max: Annotated[int, Field(ge=1, le=NODES_LIMIT)] = 4
    ami_release: str | None = None

    @field_validator("instance_types")
    @classmethod
    def _plain_types(cls, types: list[str]) -> list[str]:
        if not 1 <= len(types) <= 20 or len(set(types)) != len(types):
            raise ValueError("name 1 to 20 instance types (EKS), each once")
        for name in types:
            if not re.fullmatch(
                r"[a-z][a-z0-9-]*\d[a-z0-9-]*\.(nano|micro|small|medium|\d*x?large|metal(-\w+)?)", name
            ):
                raise ValueError(f"{name!r} is not an EC2 instance type such as m7i.xlarge")
            if name in INSTANCES:
                raise ValueError(f"{name} has GPUs; system nodes run operators and DNS, so take e.g. m7i.xlarge")
            if architecture(name) != "x86_64":
                raise ValueError(f"{name} is an arm64 type; system nodes are x86_64, e.g. m7i.xlarge")
        return types

    @model_validator(mode="after")
    def _range(self) -> "SystemNodes":
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


class ClusterSettings(Model):
    """What a stack file says about the cluster."""

    version: Annotated[str, AfterValidator(_supported)]
    admins: list[Annotated[Arn, AfterValidator(_principal)]]
    public_access_cidrs: list[Cidr] = []
    accept_open_endpoint: bool = False
    service_cidr: Cidr = IPv4Network("172.20.0.0/16")
    log_types: list[LogType] = [LogType.API, LogType.AUDIT, LogType.AUTHENTICATOR]
    log_retention_days: int = 90
    system_nodes: SystemNodes = SystemNodes()
    addons: dict[str, str] = {}
    deletion_protection: bool = False

    @field_validator("admins")
    @classmethod
    def _somebody(cls, admins: list[str]) -> list[str]:
        if not admins:
            raise ValueError("name at least one administrator, or nobody can reach the cluster after it is made")
        if len(set(admins)) != len(admins):
            raise ValueError("an administrator is listed twice")
        return admins

    @field_validator("service_cidr")
    @classmethod
    def _service_range(cls, cidr: IPv4Network) -> IPv4Network:
        if not 12 <= cidr.prefixlen <= 24 or not any(cidr.subnet_of(private) for private in SERVICE_RANGES):
            raise ValueError("the range of Services is private and /12 to /24, e.g. 172.20.0.0/16 (EKS)")
        return cidr

    @field_validator("log_retention_days")
    @classmethod
    def _retention(cls, days: int) -> int:
        if days not in RETENTION_DAYS:
            raise ValueError(f"logs can be kept for {', '.join(map(str, RETENTION_DAYS))} days (CloudWatch)")
        return days

    @field_validator("public_access_cidrs")
    @classmethod
    def _from_the_internet(cls, ranges: list[IPv4Network]) -> list[IPv4Network]:
        for cidr in ranges:
            if reserved := private_range(cidr):
                raise ValueError(
                    f"{cidr} is in {reserved}, which nobody on the internet has (EKS refuses reserved addresses): list "
                    "the public addresses of your offices and runners, as their NAT shows them"
                )
            wider = [other for other in ranges if other is not cidr and cidr.subnet_of(other)]
            if wider:
                raise ValueError(f"{cidr} is within {wider[0]}, which is listed too; leave it out")
        return ranges

    @model_validator(mode="after")
    def _closed(self) -> "ClusterSettings":
        if len(self.public_access_cidrs) > PUBLIC_RANGES:
            raise Fault(
                "public_access_cidrs",
                "{count} ranges; EKS takes at most {most}, so join neighbours",
                count=len(self.public_access_cidrs),
                most=PUBLIC_RANGES,
            )
        ranges = sorted(collapse_addresses(self.public_access_cidrs), key=lambda cidr: cidr.prefixlen)
        if sum(cidr.num_addresses for cidr in ranges) > OPEN_ADDRESSES and not self.accept_open_endpoint:
            widest = ", ".join(map(str, ranges[:3])) + (", …" if ranges[3:] else "")
            raise Fault(
                "public_access_cidrs",
                "{widest} opens the API server to the internet; list the ranges of your offices and runners, or set "
                "{key.accept_open_endpoint}: true",
                widest=widest,
            )
        return self

    @model_validator(mode="after")
    def _pins(self) -> "ClusterSettings":
        known = KUBERNETES[self.version].addons
        for name, build in self.addons.items():
            if name not in known:
                hint = nearest(name, list(known))
                raise Fault("addons", "not an add-on of this cluster{hint}", at=name, hint=hint)
            if not re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", build):
                raise Fault(
                    "addons", "{build!r} is not a build such as {known}", at=name, build=build, known=known[name]
                )
        proxy = self.addons.get("kube-proxy", f"v{self.version}.")
        if not proxy.startswith(f"v{self.version}."):
            text = "{build!r} is not a build for Kubernetes {version}"
            raise Fault("addons", text, at="kube-proxy", build=proxy, version=self.version)
        release = self.system_nodes.ami_release
        if release and (problem := release_problem(release, self.version)):
            raise Fault("system_nodes.ami_release", "{problem}", problem=problem)
        return self


class _Cluster(ClusterSettings):
    subnet_ids: In[list[In[SubnetId]]]
    tags: Tags = {}
    customize: Customize = {}

    @field_validator("subnet_ids")
    @classmethod
    def _in_two_zones(cls, ids: Any) -> Any:
        if isinstance(ids, list):
            known = [subnet for subnet in cast(list[Any], ids) if isinstance(subnet, str)]
            if len(cast(list[Any], ids)) < 2 or len(set(known)) != len(known):
                raise ValueError("name subnets of at least two zones (EKS), each once")
        return ids


# Builders -----------------------------------------------------------------------------------------------------------


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def support_problem(version: str, today: datetime.date) -> str | None:
    """Why EKS does not run `version` on that day; None if it does."""
    usable = [name for name, facts in KUBERNETES.items() if facts.addons and today < facts.extended_until]
    if version not in KUBERNETES:
        return f"not a Kubernetes version of the catalogue (use {', '.join(usable)})"
    end = KUBERNETES[version].extended_until
    if today >= end or not KUBERNETES[version].addons:
        return f"out of support on EKS since {end}; EKS upgrades such a cluster by itself (use {', '.join(usable)})"
    return None


def support_warning(version: str, today: datetime.date) -> str | None:
    """What extended support costs, if `version` is in it on that day."""
    facts = KUBERNETES[version]
    if today < facts.standard_until:
        return None
    extra = CONTROL_PLANE_USD["extended"] - CONTROL_PLANE_USD["standard"]
    return (
        f"Kubernetes {version} is in extended support since {facts.standard_until}: it costs {extra:.2f} USD per hour "
        f"more (about {extra * 730:.0f} USD a month), and support ends on {facts.extended_until}"
    )


def admin_key(arn: str) -> str:
    """A name for an administrator's resources that no other ARN has: account, kind and path.

    Where the path has other characters than a name takes, a digest tells `role/a/b` and `role/a_b` apart.
    """
    account, principal = arn.split(":", 5)[4:]
    kind, path = principal.split("/", 1)
    plain = re.sub(r"[^A-Za-z0-9-]", "-", path)
    digest = "" if plain == path else f"-{hashlib.sha256(arn.encode()).hexdigest()[:7]}"
    return f"{account}-{kind}-{plain}{digest}"


def kubeconfig(name: str, region: str, endpoint: str, certificate_authority: str) -> str:
    """A kubeconfig that asks the AWS CLI for a token at each call: nothing in it expires or is secret.

    The AWS CLI takes its credentials from the environment of whoever runs Pulumi.
    """
    command: dict[str, Any] = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "aws",
        "args": ["eks", "get-token", "--cluster-name", name, "--region", region, "--output", "json"],
        "interactiveMode": "Never",
    }
    cluster = {"server": endpoint, "certificate-authority-data": certificate_authority}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"exec": command}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        },
        ensure_ascii=False,
    )


def addon_settings(addon: str) -> str | None:
    """The configuration values of an add-on, where its defaults do not do.

    vpc-cni: network policies are enforced only if switched on (the value is a string, a boolean is refused), and
    without IP targets each node keeps a whole spare interface of addresses, 50 on p4d. node monitoring: its GPU probe
    tolerates nothing by default, so it would miss exactly the tainted GPU nodes.
    """
    values: dict[str, Any] = {
        "vpc-cni": {
            "enableNetworkPolicy": "true",
            "env": {"MINIMUM_IP_TARGET": f"{MINIMUM_IP_TARGET}", "WARM_IP_TARGET": "4"},
        },
        "eks-node-monitoring-agent": {"dcgmAgent": {"tolerations": [gpu_toleration()]}},
    }
    return json.dumps(values[addon]) if addon in values else None


POLICIES = "arn:aws:iam::aws:policy"
CONTROL_PLANE_POLICY = f"{POLICIES}/AmazonEKSClusterPolicy"
NODE_POLICIES = {
    "worker": f"{POLICIES}/AmazonEKSWorkerNodePolicy",
    "images": f"{POLICIES}/AmazonEC2ContainerRegistryPullOnly",
    "ssm": f"{POLICIES}/AmazonSSMManagedInstanceCore",
}
"""What nodes may do; the VPC CNI and the EBS driver have roles of their own instead."""

BEFORE_NODES = ("eks-pod-identity-agent", "kube-proxy", "vpc-cni")
"""A node becomes Ready only with these. The agent comes first, because the CNI gets its credentials from it; both run
on the host's network and tolerate a node that is not ready (charts of aws/eks-pod-identity-agent, amazon-vpc-cni)."""
AFTER_NODES = ("coredns", "aws-ebs-csi-driver", "metrics-server", "eks-node-monitoring-agent")
"""These have pods that need a node to become active."""

POD_ROLES = {
    "vpc-cni": ("aws-node", f"{POLICIES}/AmazonEKS_CNI_Policy"),
    "aws-ebs-csi-driver": ("ebs-csi-controller-sa", f"{POLICIES}/service-role/AmazonEBSCSIDriverPolicy"),
}
"""ServiceAccount and policy of the add-ons that call AWS. Source: EKS user guide, "AWS add-ons"."""


# Needs --------------------------------------------------------------------------------------------------------------


def needs(name: str, settings: ClusterSettings, context: Context) -> Needs:
    nodes, builds = settings.system_nodes, KUBERNETES[settings.version].addons | settings.addons
    release = nodes.ami_release or KUBERNETES[settings.version].ami_release
    group = NodeGroup("system nodes", "cluster.systemNodes", tuple(nodes.instance_types), nodes.min, nodes.max)
    today = context.now.date()
    extended = today >= KUBERNETES[settings.version].standard_until
    month = CONTROL_PLANE_USD["extended" if extended else "standard"] * HOURS
    support = f"{'extended' if extended else 'standard'} support"
    least, most = nodes.min * SYSTEM_ROOT_GIB, nodes.max * SYSTEM_ROOT_GIB
    warning = support_warning(settings.version, today)
    return Needs(
        cluster=name,
        kubernetes_version=settings.version,
        node_groups=(group,),
        pods=tuple(pod for addon in builds for pod in pods.of_addon(addon)),
        charges=(
            Charge("EBS volumes", "gp3_gb_month", least, least, most, "gp3"),
            Charge("EKS control plane", USD, month, month, month, support),
        ),
        artifacts=(
            Artifact("node image", f"{AmiType.AL2023.value} {release}"),
            *(Artifact("add-on", f"{addon} {build}") for addon, build in builds.items()),
        ),
        permissions=(
            *managed(f"{name}-cluster", CONTROL_PLANE_POLICY),
            *managed(f"{name}-node", *NODE_POLICIES.values()),
            *(said for account, arn in POD_ROLES.values() for said in managed(f"kube-system/{account}", arn)),
        ),
        findings=(Finding("cluster.version", warning),) if warning else (),
    )


# Component ----------------------------------------------------------------------------------------------------------


@answers(ClusterSettings, needs)
class Cluster(Component):
    """An EKS cluster named like the component, with encrypted secrets, explicit administrators and pinned add-ons.

    `kubernetes` is the Kubernetes provider of the cluster. What uses it comes after add-ons and system nodes, and goes
    before them.

    `protect` of the options keeps the control plane and the key of its secrets; all else can be made again.
    """

    CHILDREN = {
        "control_plane": Child(
            aws.eks.Cluster,
            "cluster",
            "the EKS cluster",
            {
                "name": "roles, nodes and pods of other components are tied to it; it is the component's name",
                "version": "add-ons and images are chosen by it; set version",
                "access_config": "administrators are access entries; set admins",
                "deletion_protection": "set deletion_protection",
            },
        ),
        "secrets_key": Child(aws.kms.Key, "secrets", "the key that encrypts Kubernetes' secrets"),
        "cluster_role": Child(aws.iam.Role, "cluster", "what the control plane may do"),
        "cluster_policy": Child(aws.iam.RolePolicyAttachment, "cluster", "the policy of its role"),
        "log_group": Child(aws.cloudwatch.LogGroup, "logs", "the control plane's log; None without `log_types`"),
        "access_entries": Child(aws.eks.AccessEntry, "admin-*", "administrators, by ARN"),
        "access_policies": Child(aws.eks.AccessPolicyAssociation, "admin-*", "what administrators may do, by ARN"),
        "addons": Child(
            aws.eks.Addon,
            "*",
            "add-ons, by name",
            {"addon_name": "it is the child's key", "addon_version": "set addons"},
        ),
        "addon_roles": Child(aws.iam.Role, "*", "roles of the add-ons that call AWS, by add-on"),
        "addon_policies": Child(aws.iam.RolePolicyAttachment, "*", "policies of those roles, by add-on"),
        "node_role": Child(aws.iam.Role, "node", "what nodes may do"),
        "node_policies": Child(aws.iam.RolePolicyAttachment, "node-*", "policies of the nodes' role"),
        "system_template": Child(aws.ec2.LaunchTemplate, "system", "disks and tags of system nodes"),
        "system_nodes": Child(
            aws.eks.NodeGroup,
            "system",
            "the nodes of operators and add-ons",
            {
                "scaling_config": "the plan counts these nodes; set system_nodes",
                "instance_types": "the plan counts these nodes; set system_nodes",
                "version": "set version",
            },
        ),
        "kubernetes": Child(k8s.Provider, "kubernetes", "the Kubernetes provider of the cluster"),
    }

    cluster_name: pulumi.Output[str]
    """Name of the cluster, known once its nodes can run pods, so that GPU pools come after the add-ons."""
    arn: pulumi.Output[str]
    """ARN of the cluster."""
    endpoint: pulumi.Output[str]
    """URL of the API server."""
    certificate_authority: pulumi.Output[str]
    """Certificate authority of the API server, base64."""
    security_group_id: pulumi.Output[str]
    """The security group that EKS makes for control plane and nodes."""
    node_role_arn: pulumi.Output[str]
    """Role of nodes, for further node groups."""

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = Cluster.checked(_Cluster, args, name, "-aws-ebs-csi-driver")
        super().__init__("eks-llm:index:Cluster", name, component_inputs(model, ClusterSettings), opts, model.customize)
        if warning := support_warning(model.version, _today()):
            pulumi.log.warn(warning, self)
        self.log_group: aws.cloudwatch.LogGroup | None = None
        self.access_entries: dict[str, aws.eks.AccessEntry] = {}
        self.access_policies: dict[str, aws.eks.AccessPolicyAssociation] = {}
        self.addons: dict[str, aws.eks.Addon] = {}
        self.addon_roles: dict[str, aws.iam.Role] = {}
        self.addon_policies: dict[str, aws.iam.RolePolicyAttachment] = {}

        self.control_plane = cluster = self._control_plane(name, model)
        admitted = self._administrators(name, cluster, model.admins)
        builds = {**KUBERNETES[model.version].addons, **model.addons}

        agent = self._addon(name, cluster, "eks-pod-identity-agent", builds, [])
        network = [
            self._addon(name, cluster, addon, builds, [agent])
            for addon in BEFORE_NODES
            if addon != "eks-pod-identity-agent"
        ]
        self.system_nodes, self.node_role = nodes, role = self._system_nodes(name, model, cluster, [agent, *network])
        system = [self._addon(name, cluster, addon, builds, [nodes]) for addon in AFTER_NODES]

        self.cluster_name = nodes.cluster_name
        self.arn = cluster.arn
        self.endpoint = cluster.endpoint
        self.certificate_authority = cluster.certificate_authority.apply(lambda authority: authority.data or "")
        self.security_group_id = cluster.vpc_config.apply(lambda vpc: vpc.cluster_security_group_id or "")
        self.node_role_arn = role.arn
        self.kubernetes = k8s.Provider(
            f"{name}-kubernetes",
            kubeconfig=pulumi.Output.all(name, cluster.region, self.endpoint, self.certificate_authority).apply(
                lambda parts: kubeconfig(*parts)
            ),
            # Only another cluster replaces what was deployed; a new endpoint or certificate updates the provider.
            cluster_identifier=self.arn,
            enable_server_side_apply=True,
            opts=expendable(self, [*admitted, *system]),
        )
        self.register_outputs(
            {
                "clusterName": self.cluster_name,
                "arn": self.arn,
                "endpoint": self.endpoint,
                "certificateAuthority": self.certificate_authority,
                "securityGroupId": self.security_group_id,
                "nodeRoleArn": self.node_role_arn,
            }
        )

    def _control_plane(self, name: str, model: _Cluster) -> aws.eks.Cluster:
        here = expendable(self)
        self.secrets_key = key = aws.kms.Key(
            f"{name}-secrets",
            description=f"Secrets of the EKS cluster {name}",
            enable_key_rotation=True,
            deletion_window_in_days=30,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.cluster_role = role = aws.iam.Role(
            f"{name}-cluster", assume_role_policy=service_trust("eks.amazonaws.com"), opts=here
        )
        self.cluster_policy = aws.iam.RolePolicyAttachment(
            f"{name}-cluster", role=role.name, policy_arn=CONTROL_PLANE_POLICY, opts=here
        )
        before: list[pulumi.Resource] = [self.cluster_policy]
        if model.log_types:
            # EKS would make the group itself, and then keep logs for ever.
            self.log_group = aws.cloudwatch.LogGroup(
                f"{name}-logs",
                name=f"/aws/eks/{name}/cluster",
                retention_in_days=model.log_retention_days,
                opts=here,
            )
            before.append(self.log_group)
        vpc: aws.eks.ClusterVpcConfigArgsDict = {
            "subnet_ids": model.subnet_ids,
            "endpoint_private_access": True,
            "endpoint_public_access": bool(model.public_access_cidrs),
        }
        if model.public_access_cidrs:
            vpc["public_access_cidrs"] = [str(cidr) for cidr in model.public_access_cidrs]
        return aws.eks.Cluster(
            f"{name}-cluster",
            name=name,
            version=model.version,
            role_arn=role.arn,
            vpc_config=vpc,
            kubernetes_network_config={"ip_family": "ipv4", "service_ipv4_cidr": str(model.service_cidr)},
            access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": False},
            bootstrap_self_managed_addons=False,
            encryption_config={"resources": ["secrets"], "provider": {"key_arn": key.arn}},
            enabled_cluster_log_types=[log.value for log in model.log_types],
            # STANDARD lets AWS upgrade the control plane on a day that no preview shows. EXTENDED costs a surcharge
            # after that day, of which this component warns.
            upgrade_policy={"support_type": "EXTENDED"},
            deletion_protection=model.deletion_protection,
            opts=pulumi.ResourceOptions(parent=self, depends_on=before),
        )

    def _administrators(self, name: str, cluster: aws.eks.Cluster, admins: list[str]) -> list[pulumi.Resource]:
        associations: list[pulumi.Resource] = []
        for admin in admins:
            key = f"{name}-admin-{admin_key(admin)}"
            self.access_entries[admin] = entry = aws.eks.AccessEntry(
                key,
                cluster_name=cluster.name,
                principal_arn=admin,
                type="STANDARD",
                opts=expendable(self),
            )
            self.access_policies[admin] = aws.eks.AccessPolicyAssociation(
                key,
                cluster_name=cluster.name,
                principal_arn=admin,
                policy_arn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
                access_scope={"type": "cluster"},
                opts=expendable(self, [entry]),
            )
            associations.append(self.access_policies[admin])
        return associations

    def _addon(
        self,
        name: str,
        cluster: aws.eks.Cluster,
        addon: str,
        builds: dict[str, str],
        after: list[pulumi.Resource],
    ) -> aws.eks.Addon:
        here = expendable(self)
        associations: list[aws.eks.AddonPodIdentityAssociationArgsDict] = []
        if addon in POD_ROLES:
            account, policy_arn = POD_ROLES[addon]
            role = aws.iam.Role(
                f"{name}-{addon}", assume_role_policy=pod_identity_trust(name, "kube-system", account), opts=here
            )
            granted = aws.iam.RolePolicyAttachment(f"{name}-{addon}", role=role.name, policy_arn=policy_arn, opts=here)
            self.addon_roles[addon], self.addon_policies[addon] = role, granted
            associations.append({"role_arn": role.arn, "service_account": account})
            after = [*after, granted]
        self.addons[addon] = made = aws.eks.Addon(
            f"{name}-{addon}",
            cluster_name=cluster.name,
            addon_name=addon,
            addon_version=builds[addon],
            configuration_values=addon_settings(addon),
            pod_identity_associations=associations or None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            opts=expendable(self, after),
        )
        return made

    def _system_nodes(
        self, name: str, model: _Cluster, cluster: aws.eks.Cluster, after: list[pulumi.Resource]
    ) -> tuple[aws.eks.NodeGroup, aws.iam.Role]:
        here = expendable(self)
        role = aws.iam.Role(f"{name}-node", assume_role_policy=service_trust("ec2.amazonaws.com"), opts=here)
        self.node_policies = {
            key: aws.iam.RolePolicyAttachment(f"{name}-node-{key}", role=role.name, policy_arn=policy_arn, opts=here)
            for key, policy_arn in NODE_POLICIES.items()
        }
        granted = self.node_policies.values()
        self.system_template = template = aws.ec2.LaunchTemplate(
            f"{name}-system",
            metadata_options=METADATA_OPTIONS,
            # Operator images and Prometheus' scratch space; its data is on volumes of its own.
            block_device_mappings=root_volume(gib=SYSTEM_ROOT_GIB, throughput_mibs=125),
            tag_specifications=tag_specifications({"Name": f"{name}-system", **model.tags}),
            opts=here,
        )
        nodes = model.system_nodes
        group = aws.eks.NodeGroup(
            f"{name}-system",
            cluster_name=cluster.name,
            node_role_arn=role.arn,
            subnet_ids=model.subnet_ids,
            instance_types=nodes.instance_types,
            ami_type=AmiType.AL2023.value,
            version=model.version,
            release_version=nodes.ami_release or KUBERNETES[model.version].ami_release,
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            scaling_config={"min_size": nodes.min, "max_size": nodes.max, "desired_size": nodes.min},
            update_config={"max_unavailable": 1},
            node_repair_config=REPAIR,
            opts=expendable(
                self,
                [*after, *granted],
                ignore_changes=["scalingConfig.desiredSize"],  # belongs to the autoscaler
            ),
        )
        return group, role
