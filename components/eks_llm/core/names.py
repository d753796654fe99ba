"""Names that a component is given, and what AWS and Kubernetes make of them: `checked`, `Name`, `Namespace`,
`Tags`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from .model import Model
from .problems import InvalidArgs, Problem, validated

M = TypeVar("M", bound=Model)

NAME_LIMIT = 40
"""Longest name of a pool or service: derived names (`keda-hpa-…`, Pod hashes) must stay within Kubernetes' 63."""


def _name(value: str) -> str:
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", value):
        raise PydanticCustomError(
            "name", "a name has lower-case letters a-z, digits and '-', begins with a letter and does not end with '-'"
        )
    if len(value) > NAME_LIMIT:
        raise PydanticCustomError(
            "name", "{length} characters; a name has at most {limit}", {"length": len(value), "limit": NAME_LIMIT}
        )
    return value


Name = Annotated[str, AfterValidator(_name)]
"""A DNS label that leaves room for what Kubernetes and KEDA append."""

ROLE_NAME_LIMIT = 64
"""Longest name of an IAM role, characters. Source: IAM user guide, "IAM and AWS STS quotas"."""
RANDOM_SUFFIX = len("-0123456")
"""What Pulumi appends to a name that it generates."""


def name_problem(name: str, longest_suffix: str = "") -> str | None:
    """Why a component cannot be named so; None if it can.

    `longest_suffix`: what the longest name among its IAM roles appends, e.g. `-aws-ebs-csi-driver`.
    """
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        return error.errors()[0]["msg"]
    limit = ROLE_NAME_LIMIT - RANDOM_SUFFIX - len(longest_suffix)
    if len(name) > limit:
        return f"{len(name)} characters; at most {limit}, as its IAM role {name}{longest_suffix}-0123456 has at most 64"
    return None


def check_name(component: str, name: str, longest_suffix: str = "") -> None:
    """Raises `InvalidArgs` if a component, e.g. `Network`, cannot be named so; see `name_problem`."""
    if problem := name_problem(name, longest_suffix):
        raise InvalidArgs(f'{component} "{name}"', [Problem("name", problem)])


def checked(model: type[M], args: Mapping[str, Any], component: str, name: str, longest_suffix: str = "") -> M:
    """The arguments of a component as a checked `model`; raises `InvalidArgs` that names every bad key, or the name."""
    check_name(component, name, longest_suffix)
    return validated(model, args, f'{component} "{name}"')


def _namespace(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", value):
        raise PydanticCustomError(
            "namespace", "not a namespace: 1 to 63 lower-case letters, digits and '-', and no '-' at either end"
        )
    return value


Namespace = Annotated[str, AfterValidator(_namespace)]
"""Name of a Kubernetes namespace: a DNS label (RFC 1123)."""

TAG_LIMIT = 40
"""Most tags of a user. AWS allows 50 per resource, and on a node's instance EKS and the components put up to ten."""


def _tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > TAG_LIMIT:
        raise ValueError(f"{len(tags)} tags; at most {TAG_LIMIT}: AWS allows 50, and some are added here and by EKS")
    for key, value in tags.items():
        if key.lower().startswith("aws:"):
            raise ValueError(f"{key}: AWS keeps tags that begin with aws: for itself")
        if not 1 <= len(key) <= 128 or len(value) > 256:
            raise ValueError(f"{key[:40]}: a tag's key has 1 to 128 characters and its value at most 256 (AWS)")
        if bad := re.search(r"[^\w\s.:/=+@-]", key + value):
            raise ValueError(f"{key}: a tag has letters, digits, spaces and _.:/=+-@, no {bad[0]!r} (AWS)")
    return tags


Tags = Annotated[dict[str, str], AfterValidator(_tags)]
"""AWS tags. Source: Tagging AWS Resources user guide, "Tag naming limits and requirements"."""
