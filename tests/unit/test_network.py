"""`Network`: address plan, routing, endpoints and what it refuses."""

from ipaddress import IPv4Network

import pytest

from eks_llm.aws.network import AIR_GAPPED_ENDPOINTS, ExistingNetworkArgs, Nat, Network, NetworkArgs, subnet_cidrs
from eks_llm.core.problems import InvalidArgs
from eks_llm.plan.recorder import Recording, record

ZONES = ["us-west-2a", "us-west-2b", "us-west-2c"]


def network(args: NetworkArgs) -> Recording:
    return record(lambda: Network("main", args))


def test_subnets_of_all_zones_lie_in_the_vpc_and_never_overlap() -> None:
    for vpc in (IPv4Network("10.0.0.0/16"), IPv4Network("10.1.16.0/20")):
        ranges = [IPv4Network(c) for letter in "abcdef" for c in subnet_cidrs(vpc, f"us-east-1{letter}")]
        assert all(r.subnet_of(vpc) for r in ranges)
        assert not any(a.overlaps(b) for i, a in enumerate(ranges) for b in ranges[:i])


def test_a_zone_keeps_its_ranges_when_another_is_removed() -> None:
    assert subnet_cidrs(IPv4Network("10.0.0.0/16"), "us-west-2c") == ("10.0.64.0/19", "10.0.226.0/24")


@pytest.mark.parametrize(("nat", "gateways", "default_routes"), [(Nat.PER_ZONE, 3, 4), (Nat.SINGLE, 1, 4)])
def test_every_private_subnet_reaches_a_nat_gateway(nat: Nat, gateways: int, default_routes: int) -> None:
    run = network({"region": "us-west-2", "zones": ZONES, "nat": nat})
    assert len(run.of("NatGateway")) == gateways
    assert len(run.of("Route")) == default_routes  # one per private subnet and one for all public ones


def test_load_balancers_find_subnets_by_tag() -> None:
    run = network({"region": "us-west-2", "zones": ZONES})
    tags = {s.name: s.inputs["tags"] for s in run.of("Subnet")}
    assert tags["main-private-us-west-2a"]["kubernetes.io/role/internal-elb"] == "1"
    assert tags["main-public-us-west-2a"]["kubernetes.io/role/elb"] == "1"


def test_s3_traffic_of_all_private_subnets_bypasses_nat() -> None:
    run = network({"region": "us-west-2", "zones": ZONES})
    endpoint = run.one("VpcEndpoint")
    assert endpoint.inputs["vpcEndpointType"] == "Gateway"
    assert len(endpoint.inputs["routeTableIds"]) == len(ZONES)


def test_an_existing_vpc_creates_nothing() -> None:
    existing: ExistingNetworkArgs = {
        "vpc_id": "vpc-00000001",
        "private_subnet_ids": {"us-west-2a": "subnet-00000001", "us-west-2b": "subnet-00000002"},
    }
    run = network({"region": "us-west-2", "existing": existing})
    assert [item.type for item in run.resources] == ["eks-llm:index:Network"]
    assert next(iter(run.outputs.values()))["privateSubnetIds"] == existing["private_subnet_ids"]


def test_without_nat_public_registries_are_out_of_reach_which_is_warned_of() -> None:
    run = network(
        {"region": "us-west-2", "zones": ZONES, "nat": Nat.NONE, "interface_endpoints": [*AIR_GAPPED_ENDPOINTS]}
    )
    assert run.of("NatGateway") == []
    assert "the charts and images of the operators and services lie in public ones" in run.warnings[0]
    assert network({"region": "us-west-2", "zones": ZONES}).warnings == []


@pytest.mark.parametrize("cidr", ["10.0.0.0/16", "172.16.0.0/16", "192.168.0.0/16", "100.64.0.0/16"])
def test_ranges_of_a_vpc(cidr: str) -> None:
    assert network({"region": "us-west-2", "zones": ZONES, "cidr": cidr}).one("Vpc").inputs["cidrBlock"] == cidr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"zones": ["us-west-2a"]}, 'Network "main": zones: 1 zone(s) given; EKS needs subnets in at least two zones'),
        ({"zones": ["us-west-2a", "us-east-1a"]}, "us-east-1a is not in region us-west-2"),
        ({"zones": ["us-west-2a", "us-west-2a"]}, "listed twice"),
        ({"zones": ZONES, "cidr": "10.0.0.0/24"}, "/16 to /20, not /24"),
        ({"zones": ZONES, "cidr": "10.0.0.1/16"}, "cidr: '10.0.0.1/16': not an IPv4 range"),
        ({"zones": ZONES, "cidr": "172.17.0.0/16"}, "cidr: '172.17.0.0/16': overlaps 172.17.0.0/16, which some AWS"),
        (
            {"zones": ZONES, "cidr": "8.8.0.0/16"},
            "cidr: '8.8.0.0/16': not a private range; a VPC here lies in one of 10.",
        ),
        ({"zones": ZONES, "cidr": "169.254.0.0/16"}, "not a private range"),
        ({"zones": ZONES, "interface_endpoints": ["s3"]}, "s3 has a gateway endpoint already; leave it out"),
        ({"zones": ZONES, "interface_endpoints": ["sts", "sts"]}, "a service is listed twice"),
        ({"zones": ZONES, "interface_endpoints": ["ecr.api", "ecr-api"]}, "did you mean 'ecr.api'?"),
        (
            {"zones": ZONES, "interface_endpoints": ["ECR"]},
            "'ECR' is not a service with an interface endpoint",
        ),
        ({"region": "cn-north-1"}, "region: 'cn-north-1': in partition aws-cn; the components know only aws"),
        ({"region": "us-gov-west-1"}, "region: 'us-gov-west-1': in partition aws-us-gov"),
        ({"region": "mars-west-2"}, "region: 'mars-west-2': not an AWS region; did you mean"),
        ({"zones": ZONES, "nat": Nat.NONE}, "nat: none leaves nodes without autoscaling"),
        ({"zones": ZONES, "zoness": 1}, "zoness: unknown key; did you mean 'zones'?"),
        ({"zones": ZONES, "nat": "perzone"}, "'perzone' is not one of 'perZone', 'single' or 'none'"),
    ],
)
def test_refuses(args: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgs) as error:
        record(lambda: Network("main", {"region": "us-west-2", **args}))  # type: ignore[typeddict-item]
    assert message in str(error.value)
