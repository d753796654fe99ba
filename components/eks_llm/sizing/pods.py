"""Pods on nodes without GPU: what charts and add-ons bring, and whether the nodes hold them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Any, cast

from ..catalog.nodes import NODES, NodeType
from ..catalog.pods import ADDON_PODS, CHART_PODS, PodFacts, PodKind
from .needs import Pod
from .stack import NodeGroup
from .validity import Finding

KUBELET_MIB = 255 + 100
"""Memory that kubelet keeps: reserved, and the hard eviction threshold. 11 MiB for each pod come on top. Source:
amazon-eks-ami, nodeadm/internal/kubelet."""
POD_MIB = 11
OVERHEAD = 0.075
"""Share of an instance's memory that its operating system does not see, at most. Source: Karpenter's default of
`vmMemoryOverheadPercent`, which its page of instance types reckons with."""


# What there is ------------------------------------------------------------------------------------------------------


def of_chart(chart: str, values: Mapping[str, Any]) -> tuple[Pod, ...]:
    """The pods of a chart with these values; what they leave open is the chart's own default."""
    return tuple(_pod(facts, values) for facts in CHART_PODS[chart])


def of_addon(addon: str) -> tuple[Pod, ...]:
    """The pods of an EKS add-on."""
    return tuple(_pod(facts, {}) for facts in ADDON_PODS[addon])


def _pod(facts: PodFacts, values: Mapping[str, Any]) -> Pod:
    requests = cast(Mapping[str, Any], (_at(values, facts.resources) or {}).get("requests", {}))
    cpu = millicores(requests["cpu"]) if "cpu" in requests else facts.cpu_m
    memory = mebibytes(requests["memory"]) if "memory" in requests else facts.memory_mib
    return Pod(
        facts.name,
        replicas=_at(values, facts.replicas) or facts.default,
        cpu_m=cpu + facts.besides.cpu_m,
        memory_mib=memory + facts.besides.memory_mib,
        every_node=facts.kind is PodKind.DAEMON_SET,
    )


def _at(values: Any, path: str | None) -> Any:
    for key in path.split(".") if path else []:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values if path else None


def millicores(quantity: Any) -> int:
    """A Kubernetes quantity of CPU, such as `500m`, `2` or `0.5`."""
    text = str(quantity)
    return int(text[:-1]) if text.endswith("m") else ceil(float(text) * 1000)


def mebibytes(quantity: Any) -> int:
    """A Kubernetes quantity of memory, such as `4Gi` or `128Mi`, rounded up."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?", str(quantity))
    if not match:
        raise ValueError(f"{quantity!r} is not a quantity of memory such as 128Mi")
    power = {None: 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    return ceil(float(match[1]) * power[match[2]] / 2**20)


# Whether it fits ----------------------------------------------------------------------------------------------------


def allocatable(node: NodeType) -> tuple[int, int, int]:
    """Millicores, MiB and pods that a node offers. The memory is what EC2 states: none has more, most a little less."""
    free = [60, 10, 5, 5]
    reserved = sum(free[: node.vcpus]) + max(0, node.vcpus - len(free)) * 2.5
    return node.vcpus * 1000 - ceil(reserved), node.memory_mib - KUBELET_MIB - POD_MIB * node.max_pods, node.max_pods


def requested(pods: Iterable[Pod], nodes: int) -> tuple[int, int, int]:
    """Millicores, MiB and number of all pods on that many nodes."""
    cpu = memory = number = 0
    for pod in pods:
        count = nodes if pod.every_node else pod.replicas
        cpu, memory, number = cpu + count * pod.cpu_m, memory + count * pod.memory_mib, number + count
    return cpu, memory, number


def misfits(group: NodeGroup, pods: Iterable[Pod]) -> Iterator[Finding]:
    """Why a node group cannot hold the pods (errors), and what is close or not known (warnings)."""
    listed, path = list(pods), f"{group.path}.instanceTypes"
    if not listed or not group.max_nodes:
        return
    for type_ in group.instance_types:
        if type_ not in NODES:
            yield Finding(path, f"the size of {type_} is not known, so nothing says whether the operators fit on it")
            continue
        yield from _misfits(group, type_, listed)


def _misfits(group: NodeGroup, type_: str, pods: list[Pod]) -> Iterator[Finding]:
    path, node = f"{group.path}.instanceTypes", NODES[type_]
    cpu, memory, places = allocatable(node)
    base = [pod for pod in pods if pod.every_node]
    base_cpu, base_memory, base_number = requested(base, 1)
    if base_number > places:
        yield Finding(
            path,
            f"{type_} takes {places} pods, and {base_number} run on every node ({_names(base)}); use a larger type",
            error=True,
        )
        return
    close = int(memory - OVERHEAD * node.memory_mib)
    for pod in (pod for pod in pods if not pod.every_node):
        room = (cpu - base_cpu, memory - base_memory)
        asks = f"{pod.name} requests {_amounts(pod.cpu_m, pod.memory_mib)}"
        if pod.cpu_m > room[0] or pod.memory_mib > room[1]:
            held = _amounts(max(0, room[0]), max(0, room[1]))
            what = f"{asks}; a {type_} has at most {held} beside what runs on every node; use a larger type"
            yield Finding(path, what, error=True)
        elif pod.memory_mib > close - base_memory:
            left = _amounts(room[0], max(0, close - base_memory))
            yield Finding(path, f"{asks}; a {type_} may have no more than {left} for it, so it may find no node")
    if any(pod.cpu_m > cpu - base_cpu or pod.memory_mib > memory - base_memory for pod in pods if not pod.every_node):
        return
    nodes = group.max_nodes
    asked = requested(pods, nodes)
    room = (nodes * cpu, nodes * memory, nodes * places)
    if any(ask > has for ask, has in zip(asked, room, strict=True)):
        yield Finding(
            f"{group.path}.max",
            f"{asked[2]} pods of add-ons and operators request {_amounts(*asked[:2])}; {nodes} x {type_} hold "
            f"{room[2]} pods and {_amounts(*room[:2])}; raise max or use a larger type",
            error=True,
        )


def _names(pods: Iterable[Pod]) -> str:
    return ", ".join(pod.name for pod in pods)


def _amounts(cpu_m: float, memory_mib: float) -> str:
    return f"{cpu_m / 1000:.2f} CPUs and {memory_mib / 1024:.1f} GiB"
