"""What changes between two revisions of a stack: resources and their keys, cost, GPUs and quotas. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .needs import Needs
from .recorder import Recording, Resource
from .replacements import replacing, within

ACTIONS = ("added", "changed", "replaced", "removed")


@dataclass(frozen=True)
class KeyChange:
    """An input that differs; None: not there."""

    key: str
    before: Any
    after: Any
    replaces: bool = False


@dataclass(frozen=True)
class Change:
    """A resource or component that differs."""

    action: str
    """One of `ACTIONS`."""
    kind: str
    name: str
    type: str
    urn: str
    parent: str
    custom: bool
    keys: list[KeyChange]
    """Of changed and replaced resources."""


@dataclass(frozen=True)
class Figure:
    """A sum before and after; None: not known."""

    what: str
    before: float | None
    after: float | None
    incomplete: tuple[bool, bool] = (False, False)
    """Whether the sum before, and after, lacks a price and is a lower bound."""


@dataclass(frozen=True)
class Comparison:
    """A stack against another revision of it."""

    ref: str
    commit: str
    problems: list[str]
    """Why the other revision cannot be planned; the rest is empty then."""
    changes: list[Change]
    figures: list[Figure]
    new: bool = False
    """The other revision has no such stack, so everything is added."""

    def counts(self) -> dict[str, int]:
        """How many resources (not components) are added, changed, replaced and removed."""
        found = Counter(change.action for change in self.changes if change.custom)
        return {action: found[action] for action in ACTIONS}


def compare(base: Recording, head: Recording) -> list[Change]:
    """Every resource that differs, in the order of the head's program; removed ones last."""
    before = {item.urn: item for item in base.resources}
    after = {item.urn for item in head.resources}
    keys = {item.urn: list(_keys(before[item.urn], item)) for item in head.resources if item.urn in before}
    replaced = _replaced(head, keys)
    changes: list[Change] = []
    for item in head.resources:
        if item.urn not in before:
            changes.append(_change("added", item))
        elif keys[item.urn]:
            changes.append(_change("replaced" if item.urn in replaced else "changed", item, keys[item.urn]))
    return changes + [_change("removed", item) for item in base.resources if item.urn not in after]


def figures(base: Needs | None, head: Needs | None) -> list[Figure]:
    """Cost, GPUs and quotas before and after."""

    def both(what: str, value: Any, incomplete: tuple[bool, bool] = (False, False)) -> Figure:
        return Figure(what, value(base) if base else None, value(head) if head else None, incomplete)

    lacking = (bool(base and base.total.incomplete), bool(head and head.total.incomplete))
    found = [
        both(f"USD per month, {what}", lambda needs, limit=limit: round(getattr(needs.total, limit)), lacking)
        for what, limit in (("min", "minimum"), ("expected", "expected"), ("max", "maximum"))
    ]
    found.append(both("GPUs held", lambda needs: sum(pool.gpus_held for pool in needs.capacity)))
    found.append(both("GPUs asked for at max", lambda needs: sum(pool.gpus["max"] for pool in needs.capacity)))
    codes = {quota.code: quota.unit for needs in (base, head) if needs for quota in needs.quotas}
    for code, unit in codes.items():
        found.append(
            both(f"quota {code}, {unit}", lambda needs, code=code: sum(q.value for q in needs.quotas if q.code == code))
        )
    return found


def _change(action: str, item: Resource, keys: list[KeyChange] | None = None) -> Change:
    return Change(action, item.kind, item.name, item.type, item.urn, item.parent, item.custom, keys or [])


def _keys(before: Resource, after: Resource) -> Iterator[KeyChange]:
    forcing = replacing(after)
    for key, old, new in _differences("", before.inputs, after.inputs):
        if not within(key, after.ignore_changes):
            yield KeyChange(key, old, new, within(key, forcing))
    if before.protect != after.protect:
        yield KeyChange("protect", before.protect, after.protect)


def _differences(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """The smallest parts that differ, with their path."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _differences(f"{path}.{key}" if path else key, before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(f"{path}[{index}]", old, new)
    elif before != after:
        yield path, before, after


def _replaced(head: Recording, keys: dict[str, list[KeyChange]]) -> set[str]:
    """Resources that a key replaces, and those that a replaced resource gives a new id or name.

    Adds the key that takes them along, since its text is the same before and after.
    """
    replaced = {urn for urn, changed in keys.items() if any(key.replaces for key in changed)}
    names = {item.urn: item.name for item in head.resources}
    grew = True
    while grew:
        grew = False
        for item in head.resources:
            if item.urn in replaced or item.urn not in keys:
                continue
            marks = {names[urn]: f"‹{names[urn]}." for urn in item.dependencies & replaced}
            for key in replacing(item):
                value = str(_at(item.inputs, key))
                for name, mark in marks.items():
                    if mark in value and item.urn not in replaced:
                        keys[item.urn].append(KeyChange(key, f"of {name}", f"of the new {name}", replaces=True))
                        replaced.add(item.urn)
                        grew = True
    return replaced


def _at(inputs: Any, path: str) -> Any:
    for part in path.split("."):
        inputs = inputs.get(part) if isinstance(inputs, dict) else None
    return inputs
