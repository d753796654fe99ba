"""Configuration as the engine hands it to a program: objects as JSON, dates as Go prints them, secrets in clear."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ..core.go_time import written
from ..core.problems import Problem
from ..core.secrets import SECRET


def parsed(text: str | None) -> Any:
    """A config value that may be structured: Pulumi hands objects and lists over as JSON."""
    try:
        return json.loads(text) if text else None
    except (json.JSONDecodeError, RecursionError):
        return text


def as_written(value: Any, path: str, found: list[Problem]) -> Any:
    """`value` with each date as the user wrote it, where Pulumi's CLI took it for a time: without quotes."""
    if isinstance(value, dict):
        named = {as_written(key, path, found): item for key, item in cast(dict[str, Any], value).items()}
        return {key: as_written(item, f"{path}.{key}", found) for key, item in named.items()}
    if isinstance(value, list):
        return [as_written(item, f"{path}[{index}]", found) for index, item in enumerate(cast(list[Any], value))]
    date = written(value) if isinstance(value, str) else None
    if date:
        text = f'Pulumi makes {value!r} of a date without quotes; write it in quotes, such as "{date}"'
        found.append(Problem(path, text))
    return date or value


# Secrets ------------------------------------------------------------------------------------------------------------


def secrets_below_platform(raw: Any, project: str) -> list[Problem]:
    """What is wrong with a `platform` that holds a `secure:` value. It is not read further: messages repeat values.

    A plan knows the places. The engine tells the program only that there is one, and hands it over in clear, so it
    would stand in the state and in the cluster for everyone to read.
    """
    told = (
        "a secret here would end in clear text in the state and in the cluster: write it without secure: if it is "
        f"none. A platform's secrets are keys beside it, {project}:grafanaAdminPassword and those that apiKeySecret "
        "of services names; set them with pulumi config set --secret"
    )
    places = list(_stand_ins(raw, "platform"))
    return [Problem(path, told) for path in places or ["platform"]]


def _stand_ins(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in cast(dict[str, Any], value).items():
            yield from _stand_ins(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(cast(list[Any], value)):
            yield from _stand_ins(item, f"{path}[{index}]")
    elif value == SECRET:
        yield path


def secret_access(key: str) -> Problem:
    """What is wrong with a secret key of `aws:` other than `assumeRoles`."""
    return Problem(
        f"aws:{key}", f"is no secret, and messages and the state show it; run: pulumi config set aws:{key} VALUE"
    )


def secret_roles(roles: Any, allowed: Any) -> Any:
    """`aws:assumeRoles` that hold a secret, with a role in place of each that a plan does not know."""
    account = str(cast(list[Any], allowed)[0]) if isinstance(allowed, list) and allowed else "000000000000"
    role = {"roleArn": f"arn:aws:iam::{account}:role/secret"}
    if roles == SECRET:
        return [role]
    if not isinstance(roles, list):
        return roles
    return [_known(item, role) for item in cast(list[Any], roles)]


def _known(item: Any, role: Mapping[str, str]) -> Any:
    if item == SECRET:
        return role
    if not isinstance(item, dict):
        return item
    known = {**role, "sessionName": "secret"}
    return {
        key: known.get(key, value) if value == SECRET else value for key, value in cast(dict[str, Any], item).items()
    }


def unshown(problem: Problem) -> Problem:
    """A problem of `aws:assumeRoles` that repeats nothing of a secret."""
    return Problem(f"aws:{problem.path}", "not right, and not shown, as it is a secret; write a list of roleArn, "
                   "externalId and sessionName, each as AWS has it")  # fmt: skip
