"""The sections of a stack file, each checked by itself: `Sections`, which holds what is right."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from ..aws.cluster import ClusterSettings
from ..aws.network import NetworkSettings
from ..aws.node_pool import PoolSettings
from ..aws.weights import WeightsSettings
from ..core.model import Model
from ..core.names import Name
from ..core.problems import Problem, nearest, problems, shown
from ..operators.monitoring import MonitoringSettings
from ..serving.existing_cluster import ExistingPool
from .schema import ClusterAccess, EksPlatform, ExistingPlatform, Platform, StackService


@dataclass
class Sections:
    """What of a stack file is right so far. A section (or pool, or service) that is wrong by itself is absent."""

    network: NetworkSettings | None = None
    cluster: ClusterSettings | None = None
    weights: WeightsSettings | None = None
    monitoring: MonitoringSettings | None = None
    existing_cluster: ClusterAccess | None = None
    gpu_pools: dict[str, PoolSettings | ExistingPool] = field(default_factory=dict)
    services: dict[str, StackService] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    protect: bool = False
    pool_names: list[str] | None = None
    """Those that the file holds, also in what is wrong: a rule must not call a name missing that only stands in a
    broken part. None: it holds none."""
    secret_names: set[str] = field(default_factory=set)
    """Likewise."""


def form_of(raw: Any) -> type[EksPlatform] | type[ExistingPlatform]:
    """Which of the two forms a stack file means."""
    existing = isinstance(raw, dict) and cast(dict[str, Any], raw).get("existingCluster") is not None
    return ExistingPlatform if existing else EksPlatform


def read(raw: Any, form: type[Model], root: Path) -> tuple[Sections, list[Problem]]:
    """Each section on its own, so that an error in one does not hide the errors of another.

    A section with nothing below it, as when all services are commented out, is as good as absent. `root`: where paths
    start.
    """
    sections = Sections()
    if not isinstance(raw, dict) or not raw:
        what = "is missing or empty" if not raw else f"is {shown(raw)}, not a mapping"
        return sections, [Problem("platform", f"{what}; it describes the stack, see docs/reference/stack-file.md")]
    fields = {field.alias or name: (name, field) for name, field in form.model_fields.items()}
    others = {field.alias or name for model in get_args(Platform) for name, field in model.model_fields.items()}
    raw = {key: value for key, value in raw.items() if value is not None or key not in others}
    found = [Problem(f"platform.{key}", _unknown_section(key, fields, others)) for key in raw if key not in fields]
    for key, (name, info) in fields.items():
        path = f"platform.{key}"
        if key not in raw:
            if info.is_required():
                instead = "; or existingCluster, for a cluster that exists" if key == "cluster" else ""
                found.append(Problem(path, f"required, but missing{instead}"))
            else:
                setattr(sections, name, info.get_default(call_default_factory=True))
        elif get_origin(info.annotation) is dict and get_args(info.annotation)[1] is not str:
            setattr(sections, name, _items(raw[key], get_args(info.annotation)[1], path, root, found))
        else:
            type_: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
            value, ok = _checked(type_, raw[key], path, root, found)
            if ok:
                setattr(sections, name, value)
    if isinstance(pools := raw.get("gpuPools"), dict):
        sections.pool_names = list(pools)
    services = raw["services"].values() if isinstance(raw.get("services"), dict) else ()
    sections.secret_names = {str(service.get("apiKeySecret")) for service in services if isinstance(service, dict)}
    return sections, found


NOT_BESIDE = "beside existingCluster nothing is made in AWS"
"""Why a key has nothing to describe in a stack for a cluster that exists."""


def _unknown_section(key: str, fields: Iterable[str], others: Iterable[str]) -> str:
    if key in others:  # the form of a stack is the existing cluster's as soon as it names one
        return f"{NOT_BESIDE}, so this describes nothing; remove it, or remove existingCluster to make a new cluster"
    return f"unknown key{nearest(key, [*fields, 'existingCluster'])}"


def _items(raw: Any, model: type[Model], path: str, root: Path, found: list[Problem]) -> dict[str, Any]:
    """The named members of a section such as `services`, without those that are wrong."""
    if not isinstance(raw, dict):
        found.append(Problem(path, f"{shown(raw)} is not a mapping from names to settings"))
        return {}
    members: dict[str, Any] = {}
    for name, value in raw.items():
        _, name_ok = _checked(Name, name, f"{path}.{name}", root, found)
        member, ok = _checked(model, value, f"{path}.{name}", root, found)
        if ok and name_ok:
            members[name] = member
    return members


def _checked(type_: Any, value: Any, path: str, root: Path, found: list[Problem]) -> tuple[Any, bool]:
    try:
        return TypeAdapter(type_).validate_python(value, context={"root": root}), True
    except ValidationError as error:
        for problem in problems(error, type_):
            inner = problem.path if problem.path.startswith("[") or not problem.path else f".{problem.path}"
            found.append(Problem(f"{path}{inner}", problem.message))
        return None, False
