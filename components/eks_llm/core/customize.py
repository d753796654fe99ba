"""Changes to a component's child resources from outside: checked against the provider SDK's types, then merged.

A patch is a mapping of properties, as Kubernetes' strategic merge patch reads one: mappings are merged, `None` takes a
property away, lists that Kubernetes merges are merged by their key, tolerations are added, and other lists replace.
Keys may be written as the provider's schema has them (`nodeSelector`) or as its Python SDK does (`node_selector`).
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from types import ModuleType, UnionType
from typing import Any, ForwardRef, NotRequired, Required, Union, cast, get_args, get_origin

import pulumi

from .problems import Problem, nearest, shown

Customize = dict[str, dict[str, Any]]
"""Properties to merge, by child."""

MERGE_KEYS = {
    "containers": ("name",),
    "env": ("name",),
    "hostaliases": ("ip",),
    "imagepullsecrets": ("name",),
    "initcontainers": ("name",),
    "ports": ("containerPort", "port"),
    "topologyspreadconstraints": ("topologyKey",),
    "volumemounts": ("mountPath",),
    "volumes": ("name",),
}
"""Lists whose items are told apart by a key. Source: `x-kubernetes-patch-merge-key` in Kubernetes' OpenAPI."""
ADDED = ("tolerations",)
"""Lists to which a patch adds. Kubernetes would replace them, and with them what brings the pods to their nodes."""
_NOT_PROPERTIES = ("resource_name", "opts", "__props__", "return")


def plain_key(key: str) -> str:
    """One spelling for `nodeSelector` and `node_selector`."""
    return key.replace("_", "").casefold()


class Place:
    """What the SDK of a provider lets stand at a place of a resource."""

    def __init__(self, annotation: Any, module: ModuleType) -> None:
        self._kinds, self._module = list(_kinds(annotation)), module

    @classmethod
    def of(cls, resource: type[pulumi.Resource]) -> "Place":
        """The properties of a resource."""
        place = cls(None, sys.modules[resource.__module__])
        init = getattr(resource, "_internal_init", resource.__init__)
        place.fields = {
            plain_key(name): (name, cls(annotation, place._module))
            for name, annotation in init.__annotations__.items()
            if name not in _NOT_PROPERTIES
        }
        return place

    @cached_property
    def fields(self) -> "dict[str, tuple[str, Place]] | None":
        """The properties by their plain key; None where any key may stand."""
        for kind in self._kinds:
            name = kind.__forward_arg__ if isinstance(kind, ForwardRef) else ""
            if name.endswith(("Args", "ArgsDict")):
                typed = reduce(getattr, f"{name.removesuffix('Dict')}Dict".split("."), cast(Any, self._module))
                module = sys.modules[typed.__module__]
                return {plain_key(key): (key, Place(value, module)) for key, value in typed.__annotations__.items()}
        return None

    @cached_property
    def item(self) -> "Place | None":
        """What stands in a list; None where no list may stand."""
        return next((Place(get_args(k)[0], self._module) for k in self._kinds if get_origin(k) is Sequence), None)

    @property
    def wants(self) -> str:
        """What must stand here, in words; empty: anything may."""
        if self.fields is not None or any(get_origin(kind) is Mapping for kind in self._kinds):
            return "mapping"
        return "list" if self.item else ""

    def below(self, key: str) -> "Place":
        """What may stand at a property, which is known."""
        return (self.fields or {}).get(plain_key(key), ("", ANYTHING))[1]

    def spelling(self, key: str, there: Iterable[str]) -> str:
        """How a key is written that may stand there in another way."""
        if self.fields is None:
            return key
        same = (other for other in there if plain_key(other) == plain_key(key))
        return next(same, self.fields[plain_key(key)][0] if plain_key(key) in self.fields else key)


def _kinds(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) in (NotRequired, Required):
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for inner in get_args(annotation):
            yield from _kinds(inner)
    else:
        yield annotation


ANYTHING = Place(Any, sys.modules[__name__])


# Checks -------------------------------------------------------------------------------------------------------------


def problems(patch: Any, place: Place, path: str, owned: Mapping[str, str]) -> Iterator[Problem]:
    """What is wrong with a patch: properties that do not exist, other shapes than theirs, and what is not for others.

    `owned`: paths such as `spec.template.spec.containers[server].args`, and why a patch may not change what is there.
    """
    reasons = {_parts(where): reason for where, reason in owned.items()}
    yield from _problems(patch, place, path, (), reasons)


def _problems(
    patch: Any, place: Place, path: str, parts: tuple[str, ...], owned: Mapping[tuple[str, ...], str]
) -> Iterator[Problem]:
    keys = MERGE_KEYS.get(parts[-1]) if parts else None
    merged_list = isinstance(patch, list) and (keys or (parts and parts[-1] in ADDED))
    leaf = not isinstance(patch, Mapping) and not merged_list
    if place.wants == "mapping" and patch is not None and not isinstance(patch, (Mapping, pulumi.Output)):
        yield Problem(path, f"{shown(patch)}: write a mapping of properties")
    elif place.wants == "list" and patch is not None and not isinstance(patch, (list, pulumi.Output)):
        yield Problem(path, f"{shown(patch)}: write a list")
    elif reason := next((text for where, text in owned.items() if _touches(parts, where, leaf)), None):
        yield Problem(path, f"not for others to change: {reason}")
    elif isinstance(patch, Mapping):
        for key, value in cast(Mapping[str, Any], patch).items():
            here = f"{path}.{key}"
            if place.fields is not None and plain_key(key) not in place.fields:
                yield Problem(here, f"no such property{nearest(key, [name for name, _ in place.fields.values()])}")
            else:
                yield from _problems(value, place.below(key), here, (*parts, plain_key(key)), owned)
    elif isinstance(patch, list):
        for number, item in enumerate(cast(list[Any], patch)):
            here, named = f"{path}[{number}]", _identity(item, keys or ())
            if keys and named is None:
                yield Problem(here, f"needs {' or '.join(keys)}, which tells the items of this list apart")
            else:
                inner = (*parts, f"[{named}]") if keys else (*parts, f"#{number}")
                yield from _problems(item, place.item or ANYTHING, here, inner, owned)


def _touches(parts: tuple[str, ...], owned: tuple[str, ...], leaf: bool) -> bool:
    """Whether a patch at `parts` changes what is `owned`: there, below it, or by replacing what holds it."""
    return parts[: len(owned)] == owned or (leaf and owned[: len(parts)] == parts)


def _parts(path: str) -> tuple[str, ...]:
    """The steps of a path; `[x]` is a step of its own, and `a."b.c"` has a key with dots."""
    steps: list[str] = []
    for quoted, text in enumerate(path.split('"')):
        if quoted % 2:
            steps.append(plain_key(text))
            continue
        found = filter(None, text.replace("[", ".[").split("."))
        steps += [step if step.startswith("[") else plain_key(step) for step in found]
    return tuple(steps)


def _identity(item: Any, keys: Sequence[str]) -> Any:
    """What tells an item of a list apart; None: it has nothing of the kind."""
    if not isinstance(item, Mapping):
        return None
    known = {plain_key(key): value for key, value in cast(Mapping[str, Any], item).items()}
    return next((known[plain_key(key)] for key in keys if plain_key(key) in known), None)


# Merge --------------------------------------------------------------------------------------------------------------


def merged(base: Any, patch: Any, place: Place, field: str = "") -> Any:
    """`base` with the patch. What is known only after `pulumi up` is merged then."""
    if isinstance(base, pulumi.Output) and isinstance(patch, (Mapping, list)):
        known = cast("pulumi.Output[Any]", base)
        return known.apply(lambda value: merged(value, patch, place, field))
    if isinstance(patch, Mapping):
        result = dict(cast(Mapping[str, Any], base or {}))
        for key, value in cast(Mapping[str, Any], patch).items():
            spelling = place.spelling(key, result)
            if value is None:
                result.pop(spelling, None)
            else:
                result[spelling] = merged(result.get(spelling), value, place.below(key), plain_key(key))
        return result
    if isinstance(patch, list) and field in ADDED:
        return [*(base or []), *(item for item in cast(list[Any], patch) if item not in (base or []))]
    if isinstance(patch, list) and field in MERGE_KEYS:
        return _merged_list(
            cast(list[Any], base or []), cast(list[Any], patch), place.item or ANYTHING, MERGE_KEYS[field]
        )
    return patch


def _merged_list(base: list[Any], patch: list[Any], place: Place, keys: Sequence[str]) -> list[Any]:
    changes = {_identity(item, keys): item for item in patch}
    kept = [merged(item, changes.pop(_identity(item, keys), {}), place) for item in base]
    return [*kept, *changes.values()]
