"""Addresses as text: IPv4 ranges (`Cidr`) and names of AWS resources (`Arn`)."""

import re
from ipaddress import IPv4Network
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer
from pydantic_core import PydanticCustomError


def _cidr(value: Any) -> Any:
    if isinstance(value, IPv4Network):
        return value
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
