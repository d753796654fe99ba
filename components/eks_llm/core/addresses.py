"""Addresses as text: IPv4 ranges (`Cidr`), ids of AWS resources (`VpcId`, …) and their names (`Arn`, `RoleArn`)."""

import re
from ipaddress import IPv4Network
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer
from pydantic_core import PydanticCustomError


def _cidr(value: Any) -> Any:
    if isinstance(value, IPv4Network):
        return value
    if not isinstance(value, str):  # Python takes a number for the address that it stands for
        raise PydanticCustomError("cidr", "not an IPv4 range such as 10.20.0.0/16")
    try:
        return IPv4Network(value)
    except ValueError as error:
        raise PydanticCustomError(
            "cidr", "not an IPv4 range such as 10.20.0.0/16 ({why})", {"why": str(error)}
        ) from None


Cidr = Annotated[IPv4Network, BeforeValidator(_cidr), PlainSerializer(str)]
"""An IPv4 address range without host bits."""


def _arn(value: str) -> str:
    if re.match(r"arn:aws-[a-z-]+:", value):
        raise PydanticCustomError("arn", "of another partition than arn:aws, the only one that the components know")
    if not re.fullmatch(r"arn:aws:[a-z0-9-]+:[a-z0-9-]*:\d*:.+", value):
        raise PydanticCustomError("arn", "not an ARN such as arn:aws:iam::111122223333:role/platform-admin")
    return value


Arn = Annotated[str, AfterValidator(_arn)]


NEVER_PUBLIC = tuple(
    map(
        IPv4Network,
        (
            *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),  # private networks (RFC 1918)
            *("0.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"),
        ),
    )
)
"""Ranges that no packet from the internet comes from. Source: IANA IPv4 Special-Purpose Address Registry."""


def private_range(cidr: IPv4Network) -> IPv4Network | None:
    """The private or reserved range that `cidr` lies in; None: it has public addresses."""
    return next((reserved for reserved in NEVER_PUBLIC if cidr.subnet_of(reserved)), None)


def _id(what: str, prefix: str) -> AfterValidator:
    def check(value: str) -> str:
        # Eight digits in resources of before 2018. Source: EC2 user guide, "Longer IDs".
        if not re.fullmatch(rf"{prefix}-([0-9a-f]{{8}}|[0-9a-f]{{17}})", value):
            text = "not the id of {what} such as {prefix}-0123456789abcdef0"
            raise PydanticCustomError("id", text, {"what": what, "prefix": prefix})
        return value

    return AfterValidator(check)


VpcId = Annotated[str, _id("a VPC", "vpc")]
SubnetId = Annotated[str, _id("a subnet", "subnet")]
SecurityGroupId = Annotated[str, _id("a security group", "sg")]
ReservationId = Annotated[str, _id("a capacity reservation or block", "cr")]

IAM_NAME = r"([!-.0-~]+/)*[\w+=,.@-]{1,64}"
"""Path and name of a role or user. Source: IAM API reference, CreateRole."""


def _role_arn(arn: str) -> str:
    if not re.fullmatch(rf"arn:aws:iam::\d{{12}}:role/{IAM_NAME}", arn, re.ASCII):
        raise PydanticCustomError("role", "not the ARN of an IAM role such as arn:aws:iam::111122223333:role/deployer")
    return arn


RoleArn = Annotated[Arn, AfterValidator(_role_arn)]

KEY_ID = r"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|mrk-[0-9a-f]{32})"


def _key_arn(arn: str) -> str:
    if not re.fullmatch(rf"arn:aws:kms:[a-z0-9-]+:\d{{12}}:key/{KEY_ID}", arn):
        example = "arn:aws:kms:us-west-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
        raise PydanticCustomError("key", "not the ARN of a KMS key such as {example}", {"example": example})
    return arn


KeyArn = Annotated[Arn, AfterValidator(_key_arn)]
"""ARN of a KMS key; an alias does not do, as policies name keys."""
