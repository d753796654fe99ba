"""What a component needs, as one plain value: `Needs`. Each component answers for itself; everything else sums up.

A component states it as a function `needs(name, settings, context)` of its module, and registers it at its class:

    @answers(KedaSettings, needs)
    class Keda(pulumi.ComponentResource): ...

Plan, bill, policy and reference read the sum, so a component that answers is known to all of them.
"""

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from ..core.model import Model
from .policy import Policy
from .stack import Charge, NodeGroup, Pool, QuotaNeed, Service
from .validity import Finding

T = TypeVar("T")


@dataclass(frozen=True)
class Pod:
    """Pods on nodes without GPU, with what they request."""

    name: str
    replicas: int
    cpu_m: int
    """Millicores that each requests; 0: none."""
    memory_mib: int
    every_node: bool = False
    """One on every node, whatever `replicas` says."""


@dataclass(frozen=True)
class Artifact:
    """What has to be fetched from a registry or repository before anything runs."""

    kind: str
    """`image`, `chart`, `add-on` or `node image`."""
    reference: str
    """As whoever fetches it writes it, e.g. `keda 2.20.2` or `nvcr.io/nvidia/tritonserver:26.08@sha256:…`."""
    source: str = ""
    """The repository of a chart."""


@dataclass(frozen=True)
class Flow:
    """Traffic that a NetworkPolicy lets through; all other traffic of those pods is dropped."""

    pods: str
    direction: str
    """`from` or `to`."""
    peer: str
    ports: tuple[str, ...]
    """E.g. `TCP 8000`."""


@dataclass(frozen=True)
class Permission:
    """What a role may do in AWS."""

    role: str
    """Who takes it, e.g. `kube-system/cluster-autoscaler`."""
    actions: tuple[str, ...]
    """Of a statement; empty where `managed` names a policy of AWS."""
    resources: tuple[str, ...] = ()
    condition: str = ""
    """As JSON; empty: none."""
    managed: str = ""
    """ARN of a policy that AWS keeps."""


@dataclass(frozen=True)
class Needs:
    """What a component, or all of them together, need. Fields that a component has nothing to say about stay empty."""

    region: str = ""
    """The AWS region, where the settings tell it."""
    cluster: str = ""
    """Name of the EKS cluster, of the component that makes it."""
    kubernetes_version: str = ""
    """Minor of that cluster, e.g. `1.35`."""
    pools: tuple[Pool, ...] = ()
    """Nodes with GPUs."""
    node_groups: tuple[NodeGroup, ...] = ()
    """Nodes without."""
    services: tuple[Service, ...] = ()
    """What runs on the pools."""
    pods: tuple[Pod, ...] = ()
    """What runs on the node groups."""
    charges: tuple[Charge, ...] = ()
    quotas: tuple[QuotaNeed, ...] = ()
    """Beside those that follow from nodes."""
    artifacts: tuple[Artifact, ...] = ()
    flows: tuple[Flow, ...] = ()
    permissions: tuple[Permission, ...] = ()
    policies: tuple[Policy, ...] = ()
    """How services scale."""
    findings: tuple[Finding, ...] = ()


def total(answers: Iterable[Needs]) -> Needs:
    """The sum. Of facts about the stack the first counts; what is said twice, as an image, counts once."""
    listed = list(answers)
    sums: dict[str, Any] = {}
    for name in (item.name for item in fields(Needs)):
        said = [getattr(answer, name) for answer in listed]
        if isinstance(getattr(Needs(), name), str):
            sums[name] = next(filter(None, said), "")
        else:
            sums[name] = tuple(value for values in said for value in values)
    once = {name: tuple(dict.fromkeys(sums[name])) for name in ("artifacts", "flows", "permissions", "findings")}
    sums |= once
    return Needs(**sums)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True)
class Context:
    """What a component may have to know of the others."""

    region: str = ""
    cluster: str = ""
    kubernetes_version: str = ""
    now: datetime.datetime = field(default_factory=_now)
    pools: Mapping[str, Pool] = field(default_factory=dict[str, Pool])
    """GPU pools of the whole stack, by name."""


# Who answers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A component, and how it answers."""

    token: str
    """Type token, e.g. `eks-llm:index:Keda`."""
    component: type[Any]
    settings: type[Model]
    """Model of what the component tells the engine of itself (its inputs)."""
    needs: Callable[[str, Any, Context], Needs]


KINDS: dict[str, Kind] = {}
"""Components by type token: those whose modules have been imported. `platform.sum.kinds` imports this package's."""


def answers(
    settings: type[Model], needs: Callable[[str, Any, Context], Needs], package: str = "eks-llm"
) -> Callable[[type[T]], type[T]]:
    """Registers a component class with its settings model and its answer. `package`: the first part of its token."""

    def register(component: type[T]) -> type[T]:
        token = f"{package}:index:{component.__name__}"
        KINDS[token] = Kind(token, component, settings, needs)
        return component

    return register


# Building blocks ----------------------------------------------------------------------------------------------------


def permissions(role: str, document: str) -> tuple[Permission, ...]:
    """What an IAM policy document, as JSON, allows."""

    def listed(value: Any) -> tuple[str, ...]:
        return (value,) if isinstance(value, str) else tuple(value)

    return tuple(
        Permission(
            role,
            actions=listed(statement["Action"]),
            resources=listed(statement["Resource"]),
            condition=json.dumps(statement["Condition"], sort_keys=True) if "Condition" in statement else "",
        )
        for statement in json.loads(document)["Statement"]
        if statement["Effect"] == "Allow"
    )


def managed(role: str, *policies: str) -> tuple[Permission, ...]:
    """What policies of AWS allow, by their ARNs."""
    return tuple(Permission(role, (), managed=arn) for arn in policies)
