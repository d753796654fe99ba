"""The answers about fit, capacity, quotas and cost in words, for text and Markdown: rows of a name and what to know."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..sizing.needs import Artifact, Flow, Permission
from ..sizing.policy import Policy
from .diff import Change, Comparison, KeyChange
from .needs import GroupLoad, Money, Needs, PoolCapacity, Quota, ServiceFit, TokenPrice

BAR = 24
"""Characters of a memory bar."""
SHADES = "█▓░"
"""Weights, reserve and KV cache; what vLLM may not use stays empty."""


@dataclass(frozen=True)
class Section:
    """A title and its rows: a name, and lines whose facts are parted by ` · `."""

    title: str
    rows: list[tuple[str, list[str]]]


COST = "cost"
"""Title of the section that is a table: every format draws it from `bill`, and it has no rows of its own."""


def sections(needs: Needs, shades: str = SHADES) -> Iterator[Section]:
    """The answers, in the order of every format. A section with nothing to say is left out."""
    pools = [(item.pool, [_capacity(item)]) for item in needs.capacity]
    listed = [
        Section("fit", [(item.service, _fit(item, shades)) for item in needs.fit]),
        Section("capacity", [*pools, *map(group_row, needs.groups)]),
        Section("scaling", [(item.service, scaling(item)) for item in needs.scaling]),
        Section(COST, [(COST, [])] if needs.bill else []),
        Section("quotas", [(item.code, _quota(item)) for item in needs.quotas]),
        Section("images", _images(needs.artifacts)),
        Section("permissions", _permissions(needs.permissions)),
        Section("network", _flows(needs.flows)),
    ]
    yield from (section for section in listed if section.rows)


def bar(item: ServiceFit, shades: str = SHADES, width: int = BAR) -> str:
    """The memory of one GPU as a line of `width` characters."""
    edges = [item.weights, item.weights + item.reserve, max(item.weights + item.reserve, item.budget)]
    ends = [min(width, round(edge / item.visible * width)) for edge in edges]
    parts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    return "".join(shade * part for shade, part in zip(shades, parts, strict=True)).ljust(width)


def _fit(item: ServiceFit, shades: str) -> list[str]:
    return [
        item.summary,
        f"[{bar(item, shades)}] weights {item.weights:.1f} · reserve {item.reserve:.1f} · {kv_cache(item)}"
        f" · of {item.visible:.1f} GiB per {item.gpu}",
        f"{item.typical_concurrency:.1f} requests of {item.typical_tokens:,} at once · largest maxModelLen "
        f"{item.largest_max_model_len:,}",
    ]


def kv_cache(item: ServiceFit) -> str:
    """What is left for the KV cache, or by how much the rest is more than vLLM may use."""
    return f"KV cache {item.kv_cache:.1f}" if item.kv_cache > 0 else f"no KV cache, {-item.kv_cache:.1f} over budget"


def _capacity(item: PoolCapacity) -> str:
    def asked(limit: str) -> str:
        nodes = item.nodes_needed[limit]
        return f"{item.gpus[limit]} asked for at {limit} ({nodes} node{'s' * (nodes != 1)})"

    nodes = f"{item.nodes['max']} × {item.instance_type}"
    return f"{item.gpus_held} GPUs held ({nodes}) · {asked('min')} · {asked('max')}"


def scaling(item: Policy) -> list[str]:
    """How a service scales, with the arithmetic of its thresholds."""
    waits = f"{item.pod_start:,} s to start a pod"
    if item.node_start:
        waits += f", {item.node_start:,} s more where it needs a new node"
    queue = []
    if item.max_queued is not None:
        queue = [f"{item.max_queued} may wait in a full pod = {item.max_queued_why}"]
    return [
        f"{item.min} to {item.max} replicas · {waits}" if item.max > item.min else f"{item.min} replicas · {waits}",
        f"{item.in_flight} requests per replica = {item.in_flight_why}",
        *queue,
        *([f"up {item.scale_up} · down {item.scale_down}"] if item.max > item.min else []),
    ]


def _quota(item: Quota) -> list[str]:
    return [f"{item.value:,} {item.unit} · {item.name} · {item.region}", item.command]


def group_row(item: GroupLoad) -> tuple[str, list[str]]:
    """What the pods of add-ons and operators request of a node group."""
    low, high = item.nodes["min"], item.nodes["max"]
    asked = " · ".join(
        f"{item.pods[limit]} pods request {item.cpu_m[limit] / 1000:.1f} CPUs and "
        f"{item.memory_mib[limit] / 1024:.1f} GiB at {limit}"
        for limit in ("min", "max")
    )
    return item.group, [f"{low} to {high} × {item.instance_type} · {asked}"]


def _images(artifacts: list[Artifact]) -> list[tuple[str, list[str]]]:
    kinds = dict.fromkeys(item.kind for item in artifacts)
    return [(f"{kind}s", [item.reference for item in artifacts if item.kind == kind]) for kind in kinds]


STATEMENTS = 3
"""Statements of a role that are shown; of more, only the number of actions of each service is."""


def _permissions(permissions: list[Permission]) -> list[tuple[str, list[str]]]:
    rows: dict[str, list[Permission]] = {}
    for item in permissions:
        rows.setdefault(item.role, []).append(item)
    return [(role, _statements(items)) for role, items in rows.items()]


def _statements(items: list[Permission]) -> list[str]:
    if len(items) > STATEMENTS and not any(item.managed for item in items):
        counts = Counter(action.split(":")[0] for action in dict.fromkeys(a for item in items for a in item.actions))
        services = " · ".join(f"{service}: {number} action{'s' * (number != 1)}" for service, number in counts.items())
        return [f"{services} · in {len(items)} statements"]
    return [
        item.managed
        or f"{', '.join(item.actions)} · on {', '.join(item.resources)}"
        + (f" · where {item.condition}" if item.condition else "")
        for item in items
    ]


def _flows(flows: list[Flow]) -> list[tuple[str, list[str]]]:
    rows: dict[str, list[str]] = {}
    for item in flows:
        rows.setdefault(item.pods, []).append(f"{item.direction} {item.peer} · {', '.join(item.ports)}")
    return list(rows.items())


# Money --------------------------------------------------------------------------------------------------------------


def bill(needs: Needs) -> list[Money]:
    """The bill with its total."""
    return [*needs.bill, needs.total]


def usd(value: float | None, incomplete: bool = False) -> str:
    """Whole dollars with separators; a lower bound where the sum is `incomplete`."""
    if value is None:
        return "–"
    return f"≥ {value:,.0f}" if incomplete else f"{value:,.0f}"


def amounts(item: Money) -> list[str]:
    """Minimum, expected and maximum."""
    return [usd(value, item.incomplete) for value in (item.minimum, item.expected, item.maximum)]


def token_price(item: TokenPrice) -> str:
    """USD per million output tokens, with the assumption."""
    if not item.tokens_per_second:
        return f"no output to price: {item.assumption}"
    if item.usd_per_million is None:
        return f"price not known, at {item.tokens_per_second:,.0f} a second ({item.assumption})"
    price = f"{item.usd_per_million:.2f} USD per 1M output tokens"
    return f"{price} at {item.tokens_per_second:,.0f} a second ({item.assumption})"


# Changes ------------------------------------------------------------------------------------------------------------

MARKS = {"+": "green", "~": "yellow", "±": "magenta", "-": "red", "!": "bold yellow"}
"""What a line of changes begins with, and its colour: added, changed, replaced, removed, and what to know."""
_MARK_OF = {"added": "+", "changed": "~", "replaced": "±", "removed": "-"}
LONGEST_VALUE = 48
"""Characters of a value that is shown; of a longer one only the key is."""


def changes(against: Comparison) -> Iterator[tuple[str, str, list[str]]]:
    """Mark, title and lines of each change; what goes or comes with its component is only counted."""
    for problem in against.problems:
        yield "!", f"{against.ref} cannot be planned, so nothing is compared:", problem.splitlines()
    if against.problems:
        return
    if against.new:
        yield "!", f"{against.ref} has no such stack: it is new, and all of it is added", []
    whole = {change.urn: change.action for change in against.changes if change.action in ("added", "removed")}
    for change in against.changes:
        if whole.get(change.parent) == change.action:
            continue
        inside = sum(1 for other in against.changes if other.parent == change.urn and other.action == change.action)
        held = [f"with {inside} resource{'s' * (inside != 1)}"] if inside and change.urn in whole else []
        yield _MARK_OF[change.action], f"{change.kind} {change.name}", [*held, *_keys(change)]
    if not against.changes:
        yield "!", "no resource changes", []


def figures(against: Comparison) -> Iterator[tuple[str, str]]:
    """What is summed up, and how it changes."""
    if against.problems:
        return
    counts = against.counts()
    yield "resources", ", ".join(f"{number} {action}" for action, number in counts.items())
    for figure in against.figures:
        if figure.before is None and figure.after is None:
            continue
        if figure.before is None or figure.after is None:
            shown = f"{_known(figure.before)} → {_known(figure.after)}"
        elif any(figure.incomplete):
            before, after = figure.incomplete
            shown = f"{usd(figure.before, before)} → {usd(figure.after, after)}, incomplete: a price is not known"
        elif figure.before == figure.after:
            shown = f"{figure.after:,.0f}, unchanged"
        else:
            shown = f"{figure.before:,.0f} → {figure.after:,.0f} ({figure.after - figure.before:+,.0f})"
        yield figure.what, shown


def _known(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.0f}"


def _keys(change: Change) -> list[str]:
    return [f"{item.key}{_values(item)}{', which replaces it' if item.replaces else ''}" for item in change.keys]


def _written(value: Any) -> str:
    """A value as YAML writes it on one line."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return str(value)


def _values(item: KeyChange) -> str:
    shown = [_written(value) for value in (item.before, item.after)]
    if any(len(text) > LONGEST_VALUE or "\n" in text for text in shown):
        return ""
    return f" {shown[0]} → {shown[1]}"
