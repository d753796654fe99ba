"""What a recording says, in the terms of people who review it: a `Recording` in, a `Report` out."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..catalog.instances import GPUS, INSTANCES
from ..core.placement import GPU_RESOURCE, POOL_LABEL
from ..core.problems import folded
from ..platform.sum import of_resources
from ..sizing.own_prices import OwnPrices
from ..sizing.validity import Finding
from .against import Base
from .cascade import followed
from .diff import Comparison, compare, figures
from .needs import Needs, needs
from .recorder import Recording, Resource

Facts = dict[str, Any]
"""What matters of a resource, by name; only facts that are known. Ranges are `{"min": …, "max": …}`."""


SCHEMA = 1
"""Of the JSON form; changes when a key changes its meaning."""


@dataclass(frozen=True)
class Node:
    """A component or a resource, with what it holds."""

    kind: str
    name: str
    type: str
    urn: str
    custom: bool
    facts: Facts
    children: "list[Node]" = field(default_factory=list)

    def resources(self) -> "Iterator[Node]":
        """Every custom resource at and below this node."""
        if self.custom:
            yield self
        for child in self.children:
            yield from child.resources()


@dataclass(frozen=True)
class Totals:
    """Sums over the stack. Ranges are `{"min": …, "max": …}`."""

    resources: int
    components: int
    by_provider: dict[str, int]
    nodes: dict[str, int]
    gpus: dict[str, int]
    """GPUs that the node groups bring."""
    gpus_claimed: dict[str, int]
    """GPUs that the services ask for."""
    replicas: dict[str, int]
    """Pods that use GPUs."""
    instances: dict[str, dict[str, int]]
    """Nodes by instance type."""


@dataclass(frozen=True)
class Report:
    """A plan, ready to be shown."""

    project: str
    stack: str
    tree: list[Node]
    warnings: list[str]
    exports: dict[str, Any]
    totals: Totals
    needs: Needs | None
    """None: no component of the program serves a model."""
    against: Comparison | None
    """What changes since another revision, where one was named."""
    errors: list[str]
    """Why the stack cannot run, where the program itself has not refused it."""

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {"schema": SCHEMA, **asdict(self)}


def build(
    recording: Recording, project: str, stack: str, prices: OwnPrices | None = None, base: Base | None = None
) -> Report:
    """The report of a recording. `prices` replace the catalogue's; `base` is the revision to compare with."""
    index = _Index(recording)
    children: dict[str, list[Resource]] = {}
    urns = {item.urn for item in recording.resources}
    for item in recording.resources:
        children.setdefault(item.parent if item.parent in urns else "", []).append(item)

    def node(item: Resource) -> Node:
        below = [node(child) for child in children.get(item.urn, [])]
        facts = index.facts(item) if item.custom else _of_component(below)
        return Node(item.kind, item.name, item.type, item.urn, item.custom, facts, below)

    tree = [node(item) for item in children.get("", [])]
    sized = of_resources(settings(recording), prices)
    answers = needs(sized) if sized else None
    return Report(
        project=project,
        stack=stack,
        tree=tree,
        warnings=[*recording.warnings, *folded(_unsaid(sized.warnings, recording) if sized else [])],
        exports=recording.exports,
        totals=_totals(recording, tree),
        needs=answers,
        against=_comparison(base, recording, answers, prices) if base else None,
        errors=[str(finding) for finding in sized.errors] if sized else [],
    )


def _comparison(base: Base, head: Recording, answers: Needs | None, prices: OwnPrices | None) -> Comparison:
    """Both revisions are sized by this one's arithmetic and prices, so that only the stack makes a difference."""
    if base.recording is None:
        return Comparison(base.ref, base.commit, list(base.problems), [], [])
    sized = of_resources(settings(base.recording), prices)
    before = needs(sized) if sized else None
    changes = followed(compare(base.recording, head), base.recording, head)
    return Comparison(base.ref, base.commit, [], changes, figures(before, answers), base.new)


def settings(recording: Recording) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Type token, name and settings of the components."""
    for item in recording.resources:
        if not item.custom:
            yield item.type, item.name, item.inputs


def _unsaid(findings: list[Finding], recording: Recording) -> list[str]:
    """Findings that the program has not logged itself, in words of its own or below a path of its own."""
    return [str(item) for item in findings if not any(said.endswith(item.message) for said in recording.warnings)]


# Facts --------------------------------------------------------------------------------------------------------------


class _Index:
    """Finds what one resource says about another."""

    def __init__(self, recording: Recording) -> None:
        self.by_id = {f"‹{item.name}.id›": item for item in recording.resources if item.type == "aws:ec2/subnet:Subnet"}
        self.templates = {item.urn: item for item in recording.of("aws:ec2/launchTemplate:LaunchTemplate")}
        self.scaled = {
            (_at(item, "metadata.namespace"), _at(item, "spec.scaleTargetRef.name")): item
            for item in recording.of("ScaledObject")
        }

    def facts(self, item: Resource) -> Facts:
        reader = _READERS.get((item.type.split(":")[0], item.kind))
        found = reader(item, self) if reader else {}
        return {key: value for key, value in found.items() if value not in (None, "", [], {})}


def _at(item: Resource, path: str, default: Any = None) -> Any:
    value: Any = item.inputs
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return default
        value = value[part]
    return value


def _range(low: Any, high: Any, times: int = 1) -> dict[str, int] | None:
    if not isinstance(low, int) or not isinstance(high, int):
        return None
    return {"min": low * times, "max": high * times}


def _cluster(item: Resource, _: _Index) -> Facts:
    access = _at(item, "vpcConfig", {})
    public = access.get("publicAccessCidrs", ["0.0.0.0/0"]) if access.get("endpointPublicAccess", True) else []
    return {
        "kubernetes": _at(item, "version"),
        "endpoint": "private" if not public else f"public to {', '.join(public)}",
    }


def _node_group(item: Resource, index: _Index) -> Facts:
    template = next((index.templates[urn] for urn in sorted(item.dependencies) if urn in index.templates), None)
    types = _at(item, "instanceTypes") or ([_at(template, "instanceType")] if template else [])
    low, high = _at(item, "scalingConfig.minSize"), _at(item, "scalingConfig.maxSize")
    known = INSTANCES.get(types[0]) if types else None
    subnets = [index.by_id[subnet] for subnet in _at(item, "subnetIds") or [] if subnet in index.by_id]
    reservation = template and _at(template, "capacityReservationSpecification.capacityReservationTarget")
    capacity = str(_at(item, "capacityType", "ON_DEMAND")).lower().replace("_", " ")
    return {
        "instanceTypes": types,
        "nodes": _range(low, high),
        "gpus": _range(low, high, known.gpus) if known else None,
        "gpuModel": GPUS[known.gpu].name.removeprefix("NVIDIA ") if known else None,
        "capacity": "reservation" if reservation and capacity == "on demand" else capacity,
        "zones": [_at(subnet, "availabilityZone") for subnet in subnets],
        "amiType": _at(item, "amiType"),
        "amiRelease": _at(item, "releaseVersion"),
    }


def _workload(item: Resource, index: _Index) -> Facts:
    pod = _at(item, "spec.jobTemplate.spec.template.spec") or _at(item, "spec.template.spec", {})
    containers = pod.get("containers", [])
    gpus = sum(int(c.get("resources", {}).get("limits", {}).get(GPU_RESOURCE, 0)) for c in containers)
    scaler = index.scaled.get((_at(item, "metadata.namespace"), _at(item, "metadata.name")))
    replicas = _scale(scaler) if scaler else None
    if replicas is None and item.kind in ("Deployment", "StatefulSet"):
        replicas = _range(_at(item, "spec.replicas", 1), _at(item, "spec.replicas", 1))
    return {
        "replicas": replicas,
        "gpusPerReplica": gpus or None,
        "pool": pod.get("nodeSelector", {}).get(POOL_LABEL),
        "gpus": _range(replicas["min"], replicas["max"], gpus) if gpus and replicas else None,
        "images": [c["image"] for c in [*containers, *pod.get("initContainers", [])] if "image" in c],
    }


def _scale(item: Resource) -> dict[str, int] | None:
    return _range(_at(item, "spec.minReplicaCount", 0), _at(item, "spec.maxReplicaCount", 100))  # KEDA's defaults


def _scaled_object(item: Resource, _: _Index) -> Facts:
    triggers = _at(item, "spec.triggers") or []
    return {
        "replicas": _scale(item),
        "triggers": [
            f"{trigger.get('name') or trigger.get('type')} > {trigger.get('metadata', {}).get('threshold', '?')}"
            for trigger in triggers
        ],
    }


def _rules(item: Resource, _: _Index) -> Facts:
    rules = [rule for group in _at(item, "spec.groups") or [] for rule in group.get("rules", [])]
    return {"alerts": [rule["alert"] for rule in rules if "alert" in rule]}


def _release(item: Resource, _: _Index) -> Facts:
    return {"chart": _at(item, "chart"), "version": _at(item, "version"), "namespace": _at(item, "namespace")}


_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
_READERS: dict[tuple[str, str], Callable[[Resource, _Index], Facts]] = {
    ("aws", "Vpc"): lambda item, _: {"cidr": _at(item, "cidrBlock")},
    ("aws", "Subnet"): lambda item, _: {"cidr": _at(item, "cidrBlock"), "zone": _at(item, "availabilityZone")},
    ("aws", "VpcEndpoint"): lambda item, _: {"service": _at(item, "serviceName")},
    ("aws", "Cluster"): _cluster,
    ("aws", "NodeGroup"): _node_group,
    ("aws", "Addon"): lambda item, _: {"addon": _at(item, "addonName"), "version": _at(item, "addonVersion")},
    ("aws", "Bucket"): lambda item, _: {"bucket": item.outputs.get("bucket")},
    ("kubernetes", "Release"): _release,
    ("kubernetes", "ScaledObject"): _scaled_object,
    ("kubernetes", "PrometheusRule"): _rules,
    ("kubernetes", "Service"): lambda item, _: {"ports": [p.get("port") for p in _at(item, "spec.ports") or []]},
    **{("kubernetes", kind): _workload for kind in _WORKLOADS},
}


def _of_component(children: list[Node]) -> Facts:
    """A component's own facts: those of the resources that make it what it is, where there is only one of a kind."""
    facts: Facts = {}
    for kind in ("Vpc", "Cluster", "Release", "NodeGroup", "Bucket", *_WORKLOADS):
        found = [child for child in children if child.custom and child.kind == kind]
        if len(found) == 1 and not (kind == "NodeGroup" and "kubernetes" in facts):
            facts |= {key: value for key, value in found[0].facts.items() if key not in facts}
    zones = {child.facts["zone"]: None for child in children if child.kind == "Subnet" and "zone" in child.facts}
    return facts | ({"zones": list(zones)} if zones else {})


# Totals -------------------------------------------------------------------------------------------------------------


def _totals(recording: Recording, tree: list[Node]) -> Totals:
    resources = [resource for node in tree for resource in node.resources()]
    groups = [item for item in resources if item.kind == "NodeGroup" and "nodes" in item.facts]
    pods = [item for item in resources if item.kind in _WORKLOADS and "gpusPerReplica" in item.facts]
    instances: dict[str, dict[str, int]] = {}
    for group in groups:
        type_ = " or ".join(group.facts.get("instanceTypes", ["?"]))
        instances[type_] = _sum([instances.get(type_), group.facts["nodes"]])
    return Totals(
        resources=len(resources),
        components=len(recording.resources) - len(resources),
        by_provider=dict(sorted(Counter(_provider(item) for item in resources).items())),
        nodes=_sum([group.facts["nodes"] for group in groups]),
        gpus=_sum([group.facts.get("gpus") for group in groups]),
        gpus_claimed=_sum([pod.facts.get("gpus") for pod in pods]),
        replicas=_sum([pod.facts.get("replicas") for pod in pods]),
        instances=instances,
    )


def _provider(item: Node) -> str:
    return "providers" if item.type.startswith("pulumi:providers:") else item.type.split(":")[0]


def _sum(ranges: list[dict[str, int] | None]) -> dict[str, int]:
    known = [item for item in ranges if item]
    return {"min": sum(item["min"] for item in known), "max": sum(item["max"] for item in known)}
