"""`Network`: the VPC of a cluster, with one private and one public subnet per zone; or an existing VPC by ids."""

import re
from enum import Enum
from ipaddress import IPv4Network
from typing import NotRequired, TypedDict

import pulumi
import pulumi_aws as aws
from pydantic import field_validator, model_validator

from ..catalog.endpoints import ENDPOINTS
from ..catalog.regions import OTHER_PARTITIONS, REGIONS, zone_problem
from ..core.addresses import Cidr, SubnetId, VpcId
from ..core.component import Child, Component
from ..core.customize import Customize
from ..core.faults import Fault, Faults
from ..core.model import In, Model, component_inputs
from ..core.problems import nearest
from ..sizing.needs import Context, Needs, answers
from ..sizing.stack import HOURS, Charge
from .options import expendable

# Arguments ----------------------------------------------------------------------------------------------------------


class Nat(Enum):
    """How private subnets reach the internet."""

    PER_ZONE = "perZone"
    SINGLE = "single"
    NONE = "none"


class ExistingNetworkArgs(TypedDict):
    vpc_id: pulumi.Input[str]
    """Id of the VPC. It needs DNS support and DNS hostnames switched on."""
    private_subnet_ids: dict[str, pulumi.Input[str]]
    """Id of one private subnet per zone, e.g. `{"us-west-2a": "subnet-…"}`. At least two zones (EKS). Internal load
    balancers find them by the tag `kubernetes.io/role/internal-elb: 1`."""
    public_subnet_ids: NotRequired[dict[str, pulumi.Input[str]]]
    """Id of one public subnet per zone, for internet-facing load balancers, which find them by the tag
    `kubernetes.io/role/elb: 1`. Default: none."""


class NetworkArgs(TypedDict):
    region: str
    """AWS region of the partition `aws`, e.g. `us-west-2`; not GovCloud or China. Every zone must lie in it."""
    zones: NotRequired[list[str]]
    """Availability zones, at least two (EKS). Required unless `existing` is given."""
    cidr: NotRequired[str]
    """IPv4 range of the VPC, /16 to /20 (AWS allows /16 to /28; smaller ones leave no room for pods). Default
    `10.0.0.0/16`. Private (RFC 1918) or in 100.64.0.0/10, and apart from 172.17.0.0/16. A zone's letter fixes its
    blocks, so adding or removing a zone moves no other subnet."""
    nat: NotRequired[Nat]
    """`perZone` (default: survives the loss of a zone), `single` (cheaper; it lies in the first of `zones`, and another
    first zone replaces it and its address) or `none` (no way out: then list what the nodes need in
    `interface_endpoints`). With `none` the charts and images of the operators and services, which lie in public
    registries, cannot be pulled: it is for clusters whose workloads come from ECR, and a warning says so."""
    interface_endpoints: NotRequired[list[str]]
    """AWS services reached by a private endpoint in each zone, e.g. `ecr.api`, `sts`, each once. Default: none (NAT is
    used). Not `s3`, which always gets a gateway endpoint, at no cost."""
    existing: NotRequired[ExistingNetworkArgs]
    """Use this VPC and create nothing. Excludes all keys above but `region`."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


class ExistingNetwork(Model):
    vpc_id: In[VpcId]
    private_subnet_ids: dict[str, In[SubnetId]]
    public_subnet_ids: dict[str, In[SubnetId]] = {}

    @model_validator(mode="after")
    def _each_once(self) -> "ExistingNetwork":
        found: list[Fault] = []
        given: dict[str, str] = {}
        for field in ("private_subnet_ids", "public_subnet_ids"):
            for zone, subnet in getattr(self, field).items():
                if problem := zone_problem(zone):
                    found.append(Fault(field, "{problem}", at=zone, problem=problem))
                if isinstance(subnet, str) and subnet in given:
                    text = "{subnet} is given for {other} too, and a subnet lies in one zone and is of one kind"
                    found.append(Fault(field, text, at=zone, subnet=subnet, other=given[subnet]))
                elif isinstance(subnet, str):
                    given[subnet] = zone
        if found:
            raise Faults(*found)
        return self


AIR_GAPPED_ENDPOINTS = ("autoscaling", "ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "sts")
"""What nodes, the autoscaler and Pod Identity call. Source: AWS EKS user guide, "Private clusters"."""

VPC_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
"""Ranges for a VPC: private ones, and the shared one that EKS takes too. The services' NetworkPolicies close these."""
NAT_GB_MONTH = 100
"""Traffic through the NAT gateways that the bill reckons with, GB a month; weights come from S3 without it."""
DOCKER_RANGE = IPv4Network("172.17.0.0/16")
"""Docker's default bridge, which some AWS services use. Source: VPC user guide, "VPC CIDR blocks"."""


class NetworkSettings(Model):
    """What a stack file says about the network."""

    zones: list[str] = []
    cidr: Cidr = IPv4Network("10.0.0.0/16")
    nat: Nat = Nat.PER_ZONE
    interface_endpoints: list[str] = []
    existing: ExistingNetwork | None = None

    @field_validator("cidr")
    @classmethod
    def _room_for_pods(cls, cidr: IPv4Network) -> IPv4Network:
        if not 16 <= cidr.prefixlen <= 20:
            raise ValueError(f"a VPC range here is /16 to /20, not /{cidr.prefixlen}: pods take an address each")
        if not any(cidr.subnet_of(private) for private in VPC_RANGES):
            raise ValueError(f"not a private range; a VPC here lies in one of {', '.join(map(str, VPC_RANGES))}")
        if cidr.overlaps(DOCKER_RANGE):
            raise ValueError(f"overlaps {DOCKER_RANGE}, which some AWS services use inside; take another range")
        return cidr

    @field_validator("interface_endpoints")
    @classmethod
    def _endpoints(cls, services: list[str]) -> list[str]:
        for service in services:
            if service == "s3":
                raise ValueError("s3 has a gateway endpoint already; leave it out")
            if service not in ENDPOINTS:
                short = re.sub(r"^com\.amazonaws\.[a-z0-9-]+\.", "", service)
                hint = f"; write {short}" if short in ENDPOINTS else nearest(short, list(ENDPOINTS))
                known = hint if hint.startswith(";") else ""
                raise ValueError(f"{service!r} is not a service with an interface endpoint, such as ecr.api{known}")
        if len({service.replace(".", "-") for service in services}) != len(services):
            raise ValueError("a service is listed twice")
        return services

    @field_validator("zones")
    @classmethod
    def _zone_names(cls, zones: list[str]) -> list[str]:
        for zone in zones:
            if problem := zone_problem(zone):
                raise ValueError(problem)
        if len(set(zones)) != len(zones):
            raise ValueError("a zone is listed twice")
        return zones

    @model_validator(mode="after")
    def _two_zones(self) -> "NetworkSettings":
        if self.existing and self.model_fields_set - {"existing", "region"}:
            raise Fault(
                "", "existing excludes zones, cidr, nat and {key.interface_endpoints}: that VPC is used as it is"
            )
        if len(self.zone_names) < 2:
            zones = "existing.private_subnet_ids" if self.existing else "zones"
            text = "{count} zone(s) given; EKS needs subnets in at least two zones"
            raise Fault(zones, text, count=len(self.zone_names))
        if self.nat is Nat.NONE and not self.existing:
            missing = [name for name in AIR_GAPPED_ENDPOINTS if name not in self.interface_endpoints]
            if missing:
                text = "none leaves nodes without {missing}; add them to {key.interface_endpoints}"
                raise Fault("nat", text, missing=", ".join(missing))
        return self

    @property
    def zone_names(self) -> list[str]:
        return list(self.existing.private_subnet_ids) if self.existing else self.zones


class _Network(NetworkSettings):
    region: str
    customize: Customize = {}

    @field_validator("region")
    @classmethod
    def _partition(cls, region: str) -> str:
        if region in OTHER_PARTITIONS:
            raise ValueError(f"in partition {OTHER_PARTITIONS[region]}; the components know only aws, as ARNs are made")
        if region not in REGIONS:
            raise ValueError(f"not an AWS region{nearest(region, list(REGIONS))}")
        return region

    @model_validator(mode="after")
    def _zones_in_region(self) -> "_Network":
        public = list(self.existing.public_subnet_ids) if self.existing else []
        outside = [zone for zone in dict.fromkeys([*self.zone_names, *public]) if zone[:-1] != self.region]
        if outside:
            raise ValueError(f"{', '.join(outside)} is not in region {self.region}")
        return self


# Builders -----------------------------------------------------------------------------------------------------------


def subnet_cidrs(vpc: IPv4Network, zone: str) -> tuple[str, str]:
    """The private and the public range of a zone, fixed by the zone's letter.

    A /16 gives each of six zones (a to f) a private /19 (8,187 pod addresses) and a public /24.
    """
    blocks = list(vpc.subnets(prefixlen_diff=3))
    index = ord(zone[-1]) - ord("a")
    public = list(blocks[7].subnets(prefixlen_diff=5))
    return str(blocks[index]), str(public[index])


def subnet_tags(name: str, zone: str, public: bool) -> dict[str, str]:
    """Tags by which the AWS load balancer controller finds subnets."""
    role = "elb" if public else "internal-elb"
    side = "public" if public else "private"
    return {"Name": f"{name}-{side}-{zone}", f"kubernetes.io/role/{role}": "1"}


def nat_zones(nat: Nat, zones: list[str]) -> dict[str, str]:
    """For each zone the zone whose NAT gateway it uses; empty without NAT."""
    if nat is Nat.NONE:
        return {}
    return {zone: zone if nat is Nat.PER_ZONE else zones[0] for zone in zones}


def endpoint_ingress(cidr: IPv4Network) -> aws.ec2.SecurityGroupIngressArgsDict:
    """The one rule of the interface endpoints' security group: HTTPS from inside the VPC."""
    return {
        "protocol": "tcp",
        "from_port": 443,
        "to_port": 443,
        "cidr_blocks": [str(cidr)],
        "description": "HTTPS from the VPC",
    }


NO_NAT_WARNING = (
    "nat: none: nodes reach no registry but ECR, and the charts and images of the operators and services lie in public "
    "ones; there is no setting yet to mirror them, so use nat: single where those are to run"
)


# Needs --------------------------------------------------------------------------------------------------------------


def needs(_name: str, settings: NetworkSettings, _context: Context) -> Needs:
    region = settings.zone_names[0][:-1]
    if settings.existing:
        return Needs(region=region)
    gateways = len(set(nat_zones(settings.nat, settings.zones).values()))
    interfaces = len(settings.interface_endpoints) * len(settings.zones)
    charges: list[Charge] = []
    if gateways:
        hours = gateways * HOURS
        note = f"{gateways}; from expected on with {NAT_GB_MONTH:g} GB a month"
        charges += [
            Charge("NAT gateways", "nat_hour", hours, hours, hours, note),
            Charge("NAT gateways", "nat_gb", 0, NAT_GB_MONTH, NAT_GB_MONTH),
        ]
    if interfaces:
        hours = interfaces * HOURS
        charges.append(
            Charge("interface endpoints", "endpoint_hour", hours, hours, hours, f"{interfaces}, traffic excluded")
        )
    return Needs(region=region, charges=tuple(charges))


SUBNETS = "subnets are cut out of it, and the plan shows them"
SUBNET_OWNED = {
    "cidr_block": "ranges must not overlap; set cidr",
    "availability_zone": "pools are placed by it; set zones",
    "vpc_id": "the subnet belongs to this component's VPC",
}

# Component ----------------------------------------------------------------------------------------------------------


@answers(NetworkSettings, needs)
class Network(Component):
    """A VPC with private and public subnets per zone, NAT, and an S3 gateway endpoint; or an existing VPC.

    `protect` of the options keeps the VPC and its subnets; all else can be made again.
    """

    CHILDREN = {
        "vpc": Child(aws.ec2.Vpc, "vpc", "the VPC; None with `existing`", {"cidr_block": f"{SUBNETS}; set cidr"}),
        "default_security_group": Child(aws.ec2.DefaultSecurityGroup, "default", "its default group, without rules"),
        "internet_gateway": Child(aws.ec2.InternetGateway, "internet", "the way out for public subnets"),
        "private_subnets": Child(aws.ec2.Subnet, "private-*", "subnets of nodes and pods, by zone", SUBNET_OWNED),
        "public_subnets": Child(aws.ec2.Subnet, "public-*", "subnets of NAT and load balancers, by zone", SUBNET_OWNED),
        "private_route_tables": Child(aws.ec2.RouteTable, "private-*", "routes of the private subnets, by zone"),
        "public_route_table": Child(aws.ec2.RouteTable, "public", "routes of all public subnets"),
        "route_table_associations": Child(
            aws.ec2.RouteTableAssociation, "*", "which subnet has which routes, by `private-` or `public-` and the zone"
        ),
        "internet_route": Child(aws.ec2.Route, "public", "the public subnets' route to the internet"),
        "nat_routes": Child(aws.ec2.Route, "private-*", "the private subnets' routes to NAT, by zone"),
        "nat_addresses": Child(aws.ec2.Eip, "nat-*", "addresses of the NAT gateways, by zone"),
        "nat_gateways": Child(aws.ec2.NatGateway, "nat-*", "NAT gateways, by zone"),
        "s3_endpoint": Child(aws.ec2.VpcEndpoint, "s3", "the gateway by which weights come from S3"),
        "endpoint_security_group": Child(aws.ec2.SecurityGroup, "endpoints", "who reaches the interface endpoints"),
        "interface_endpoints": Child(aws.ec2.VpcEndpoint, "*", "interface endpoints, by the service's short name"),
    }

    vpc_id: pulumi.Output[str]
    """Id of the VPC."""
    private_subnet_ids: pulumi.Output[dict[str, str]]
    """Id of the private subnet of each zone: nodes and pods run here."""
    public_subnet_ids: pulumi.Output[dict[str, str]]
    """Id of the public subnet of each zone: load balancers and NAT gateways."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = Network.checked(_Network, args, name)
        super().__init__("eks-llm:index:Network", name, component_inputs(model, NetworkSettings), opts, model.customize)
        if model.nat is Nat.NONE:
            pulumi.log.warn(NO_NAT_WARNING, self)
        self.vpc: aws.ec2.Vpc | None = None
        self.default_security_group: aws.ec2.DefaultSecurityGroup | None = None
        self.internet_gateway: aws.ec2.InternetGateway | None = None
        self.private_subnets: dict[str, aws.ec2.Subnet] = {}
        self.public_subnets: dict[str, aws.ec2.Subnet] = {}
        self.private_route_tables: dict[str, aws.ec2.RouteTable] = {}
        self.public_route_table: aws.ec2.RouteTable | None = None
        self.route_table_associations: dict[str, aws.ec2.RouteTableAssociation] = {}
        self.internet_route: aws.ec2.Route | None = None
        self.nat_routes: dict[str, aws.ec2.Route] = {}
        self.nat_addresses: dict[str, aws.ec2.Eip] = {}
        self.nat_gateways: dict[str, aws.ec2.NatGateway] = {}
        self.s3_endpoint: aws.ec2.VpcEndpoint | None = None
        self.endpoint_security_group: aws.ec2.SecurityGroup | None = None
        self.interface_endpoints: dict[str, aws.ec2.VpcEndpoint] = {}
        if model.existing:
            self.vpc_id = pulumi.Output.from_input(model.existing.vpc_id)
            self.private_subnet_ids = pulumi.Output.all(**model.existing.private_subnet_ids)
            self.public_subnet_ids = pulumi.Output.all(**model.existing.public_subnet_ids)
        else:
            self._create(name, model)
        self.register_outputs(
            {
                "vpcId": self.vpc_id,
                "privateSubnetIds": self.private_subnet_ids,
                "publicSubnetIds": self.public_subnet_ids,
            }
        )

    def _create(self, name: str, model: _Network) -> None:
        lasting, here = pulumi.ResourceOptions(parent=self), expendable(self)
        self.vpc = vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=str(model.cidr),
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": name},
            opts=lasting,
        )
        # The VPC's default group admits all its members to each other; nothing here uses it, so it gets no rules.
        self.default_security_group = aws.ec2.DefaultSecurityGroup(
            f"{name}-default", vpc_id=vpc.id, ingress=[], egress=[], opts=here
        )
        self.internet_gateway = gateway = aws.ec2.InternetGateway(
            f"{name}-internet", vpc_id=vpc.id, tags={"Name": name}, opts=here
        )

        def subnet(zone: str, public: bool) -> aws.ec2.Subnet:
            return aws.ec2.Subnet(
                f"{name}-{'public' if public else 'private'}-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=subnet_cidrs(model.cidr, zone)[public],
                tags=subnet_tags(name, zone, public),
                opts=lasting,
            )

        def routes(side: str, subnets: dict[str, aws.ec2.Subnet]) -> aws.ec2.RouteTable:
            table = aws.ec2.RouteTable(f"{name}-{side}", vpc_id=vpc.id, tags={"Name": f"{name}-{side}"}, opts=here)
            for zone, member in subnets.items():
                self.route_table_associations[f"{side}-{zone}" if len(subnets) > 1 else side] = (
                    aws.ec2.RouteTableAssociation(
                        f"{name}-{side}-{zone}" if len(subnets) > 1 else f"{name}-{side}",
                        subnet_id=member.id,
                        route_table_id=table.id,
                        opts=here,
                    )
                )
            return table

        self.private_subnets = private = {zone: subnet(zone, public=False) for zone in model.zones}
        self.public_subnets = public = {zone: subnet(zone, public=True) for zone in model.zones}

        self.public_route_table = public_table = routes("public", public)
        self.internet_route = internet = aws.ec2.Route(
            f"{name}-public",
            route_table_id=public_table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.id,
            opts=here,
        )

        exits = nat_zones(model.nat, model.zones)
        gateways = self.nat_gateways
        for zone in dict.fromkeys(exits.values()):
            self.nat_addresses[zone] = address = aws.ec2.Eip(
                f"{name}-nat-{zone}", domain="vpc", tags={"Name": f"{name}-nat-{zone}"}, opts=here
            )
            gateways[zone] = aws.ec2.NatGateway(
                f"{name}-nat-{zone}",
                subnet_id=public[zone].id,
                allocation_id=address.id,
                tags={"Name": f"{name}-{zone}"},
                opts=expendable(self, [internet]),
            )

        self.private_route_tables = private_tables = {
            zone: routes(f"private-{zone}", {zone: private[zone]}) for zone in model.zones
        }
        for zone, via in exits.items():
            self.nat_routes[zone] = aws.ec2.Route(
                f"{name}-private-{zone}",
                route_table_id=private_tables[zone].id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=gateways[via].id,
                opts=here,
            )

        self.s3_endpoint = aws.ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=vpc.id,
            service_name=f"com.amazonaws.{model.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in private_tables.values()],
            tags={"Name": f"{name}-s3"},
            opts=here,
        )
        if model.interface_endpoints:
            self.endpoint_security_group = group = aws.ec2.SecurityGroup(
                f"{name}-endpoints",
                vpc_id=vpc.id,
                description="Interface endpoints",
                ingress=[endpoint_ingress(model.cidr)],
                tags={"Name": f"{name}-endpoints"},
                opts=here,
            )
            for service in model.interface_endpoints:
                self.interface_endpoints[service] = aws.ec2.VpcEndpoint(
                    f"{name}-{service.replace('.', '-')}",
                    vpc_id=vpc.id,
                    service_name=f"com.amazonaws.{model.region}.{service}",
                    vpc_endpoint_type="Interface",
                    private_dns_enabled=True,
                    subnet_ids=[member.id for member in private.values()],
                    security_group_ids=[group.id],
                    tags={"Name": f"{name}-{service}"},
                    opts=here,
                )

        self.vpc_id = vpc.id
        self.private_subnet_ids = pulumi.Output.all(**{zone: member.id for zone, member in private.items()})
        self.public_subnet_ids = pulumi.Output.all(**{zone: member.id for zone, member in public.items()})
