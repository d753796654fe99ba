"""Ids, ARNs, ranges, zones and names of other things in a stack file: looked at before AWS does."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from eks_llm.core.problems import InvalidArgs
from tests.unit.test_settings import platform, problems, put, settings

POOL = "gpuPools.a100"
KEY = "arn:aws:kms:us-west-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
SUBNET, OTHER = "subnet-0000000a", "subnet-0000000b"
IAM = "arn:aws:iam::111122223333"
CIDRS, ENDPOINTS, ADMINS = "cluster.publicAccessCidrs", "network.interfaceEndpoints", "cluster.admins"
ZONES, KMS = "network.zones", "weights.kmsKey"


def existing(**changes: Any) -> dict[str, Any]:
    """A network that exists."""
    given = {
        "vpcId": "vpc-0123456789abcdef0",
        "privateSubnetIds": {"us-west-2a": SUBNET, "us-west-2b": OTHER},
    }
    return {"existing": {**given, **changes}}


BAD: list[tuple[str, Callable[[dict[str, Any]], None], str, str]] = [
    # what is wrong, how, the key path that the message names, a part of the message
    (
        "zone that is none",
        put(ZONES, ["us-west-2b", "us-west-2e"]),
        ZONES,
        "us-west-2 are a, b, c, d",
    ),
    ("pool's zone that is none", put(f"{POOL}.zone", "us-west-2f"), f"{POOL}.zone", "us-west-2f does not exist"),
    (
        "endpoint with its whole name",
        put(ENDPOINTS, ["com.amazonaws.us-west-2.ecr.api"]),
        ENDPOINTS,
        "; write ecr.api",
    ),
    ("no endpoint", put(ENDPOINTS, ["bogus"]), ENDPOINTS, "such as ecr.api"),
    (
        "endpoint misspelt",
        put(ENDPOINTS, ["ecr.apo"]),
        ENDPOINTS,
        "mean 'ecr.api'?",
    ),
    (
        "private range",
        put(CIDRS, ["10.0.0.0/8"]),
        CIDRS,
        "public addresses",
    ),
    (
        "private host",
        put(CIDRS, ["192.168.1.7/32"]),
        CIDRS,
        "192.168.0.0/16",
    ),
    ("loopback", put(CIDRS, ["127.0.0.1/32"]), CIDRS, "127.0.0.0/8"),
    ("shared range", put(CIDRS, ["100.64.1.0/24"]), CIDRS, "100.64.0.0/10"),
    (
        "range within a range",
        put(CIDRS, ["203.0.113.7/32", "203.0.113.0/24"]),
        CIDRS,
        "203.0.113.7/32 is within 203.0.113.0/24",
    ),
    (
        "range twice",
        put(CIDRS, ["203.0.113.0/24", "203.0.113.0/24"]),
        CIDRS,
        "leave it out",
    ),
    (
        "a number as range",
        put(CIDRS, [8]),
        f"{CIDRS}[0]",
        "8: not an IPv4 range",
    ),
    ("a number as VPC", put("network.cidr", 10), "network.cidr", "10: not an IPv4 range such as 10.20.0.0/16"),
    ("host bits", put("network.cidr", "10.10.0.1/16"), "network.cidr", "has host bits set"),
    ("all roles", put(ADMINS, [f"{IAM}:role/*"]), f"{ADMINS}[0]", "not an IAM role"),
    (
        "role without name",
        put(ADMINS, [f"{IAM}:role/"]),
        f"{ADMINS}[0]",
        "not an IAM",
    ),
    ("the account", put(ADMINS, [f"{IAM}:root"]), f"{ADMINS}[0]", "not an IAM role"),
    ("short account", put(ADMINS, ["arn:aws:iam::1111:role/a"]), f"{ADMINS}[0]", "not an IAM role"),
    (
        "no key",
        put(KMS, f"{KEY}x"),
        KMS,
        "not the ARN of a KMS",
    ),
    (
        "alias of a key",
        put(KMS, "arn:aws:kms:us-west-2:111122223333:alias/models"),
        KMS,
        "not the ARN of a KMS key",
    ),
    (
        "key elsewhere",
        put(KMS, KEY.replace("us-west-2", "us-east-1")),
        KMS,
        "bucket is in us-west-2",
    ),
    (
        "reservation's id",
        put(f"{POOL}.capacity", {"kind": "reservation", "id": "cr-123"}),
        f"{POOL}.capacity.id",
        "not the id of a capacity reservation or block such as cr-0123456789abcdef0",
    ),
    ("another id", put("network", existing(vpcId="subnet-0123abcd")), "network.existing.vpcId", "not the id of a VPC"),
    ("no id", put("network", existing(vpcId="")), "network.existing.vpcId", "'': not the id of a VPC such as vpc-"),
    ("short id", put("network", existing(vpcId="vpc-123")), "network.existing.vpcId", "'vpc-123': not the id of a VPC"),
    (
        "subnet twice",
        put("network", existing(privateSubnetIds={"us-west-2a": SUBNET, "us-west-2b": SUBNET})),
        "network.existing.privateSubnetIds.us-west-2b",
        "given for us-west-2a too",
    ),
    (
        "subnet private and public",
        put("network", existing(publicSubnetIds={"us-west-2b": SUBNET})),
        "network.existing.publicSubnetIds.us-west-2b",
        "given for us-west-2a too",
    ),
    (
        "subnet's zone elsewhere",
        put("network", existing(publicSubnetIds={"eu-west-1c": "subnet-0000000c"})),
        "network.existing.publicSubnetIds",
        "'eu-west-1c' is not in region us-west-2",
    ),
    (
        "subnet's zone that is none",
        put("network", existing(publicSubnetIds={"us-west-2f": "subnet-0000000c"})),
        "network.existing.publicSubnetIds.us-west-2f",
        "us-west-2f does not exist",
    ),
]


@pytest.mark.parametrize(("change", "path", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_refuses(change: Callable[[dict[str, Any]], None], path: str, message: str) -> None:
    content = platform()
    change(content)
    with pytest.raises(InvalidArgs) as error:
        settings(content)
    assert [problem.path for problem in error.value.problems] == [f"platform.{path}"]
    assert message in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        put("network", existing()),
        put("network", existing(publicSubnetIds={"us-west-2a": "subnet-0123456789abcdef0"})),
        put(KMS, KEY),
        put(KMS, f"{KEY.partition('/')[0]}/mrk-{'0' * 32}"),
        put(
            ADMINS,
            [f"{IAM}:role/teams/ml/admin_1", "arn:aws:iam::444455556666:user/a.b@c"],
        ),
        put(CIDRS, ["198.51.100.0/24", "203.0.113.7/32"]),
        put(ENDPOINTS, ["ecr.api", "ecr.dkr", "eks-auth", "bedrock-runtime"]),
    ],
)
def test_references_of_the_right_shape_are_taken(change: Callable[[dict[str, Any]], None]) -> None:
    content = platform()
    change(content)
    settings(content)  # it does not raise


ROLE = f"{IAM}:role/deployer"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"aws__assumeRoles": [{"roleArn": f"{IAM}:user/me"}]},
            "assumeRoles[0].roleArn: ",
        ),
        (
            {"aws__assumeRoles": [{"roleArn": ROLE, "sessionName": "a b"}]},
            "assumeRoles[0].sessionName: 'a b': a session",
        ),
        (
            {"aws__assumeRoles": [{"roleArn": ROLE}], "aws__allowedAccountIds": ["444455556666"]},
            "aws:assumeRoles: the last role is of account 111122223333, which allowedAccountIds does not allow",
        ),
        ({"aws__allowedAccountIds": ["1234"]}, "aws:allowedAccountIds[0]: '1234': not an AWS account id"),
    ],
)
def test_a_sign_in_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    (line,) = problems(platform(), **{key: json.dumps(value) for key, value in config.items()})
    assert message in line
