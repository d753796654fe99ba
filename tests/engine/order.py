"""In which order resources may be deleted, and which order the dependencies of a state enforce."""

import re
from collections.abc import Iterator
from typing import Any

Resource = dict[str, Any]
"""A resource as it stands in the state."""


def is_deleted_by_provider(item: Resource) -> bool:
    return bool(item["custom"]) and not item["type"].startswith("pulumi:")


def is_kubernetes_object(item: Resource) -> bool:
    """Whether it is sent to the API server as it stands, unlike a Helm release."""
    return item["type"].startswith("kubernetes:") and item["type"] != "kubernetes:helm.sh/v3:Release"


CRD_OWNERS = {"keda.sh": "keda", "monitoring.coreos.com": "kube-prometheus-stack"}
"""Chart that brings the CRDs of an API group. Source: the charts' own CRD templates."""


def must_precede(state: dict[str, Resource]) -> Iterator[tuple[str, str, str]]:
    """Pairs of URNs whose deletion order matters in AWS and Kubernetes, and the rule that says so."""

    def of(pattern: str) -> list[str]:
        return [urn for urn, item in state.items() if is_deleted_by_provider(item) and re.search(pattern, item["type"])]

    releases = {urn: state[urn]["inputs"]["chart"] for urn in of("^kubernetes:helm.sh/v3:Release$")}
    objects = [urn for urn, item in state.items() if is_kubernetes_object(item)]
    node_groups = of(":NodeGroup$")
    clusters = of("aws:eks/cluster:Cluster$")

    for urn in objects:
        group = state[urn]["inputs"]["apiVersion"].split("/")[0]
        for release, chart in releases.items():
            if chart.rsplit("/", 1)[-1] == CRD_OWNERS.get(group):
                yield "a custom resource needs its operator to run finalizers", urn, release
    for release, chart in releases.items():
        for node_group in node_groups:
            # Only the GPU operator has pods on tainted nodes; the others run on the system nodes.
            if chart == "gpu-operator" or not state[node_group]["inputs"].get("taints"):
                yield "an operator needs nodes to run its uninstall hooks", release, node_group
    for urn in of("^kubernetes:apps/v1:Deployment$"):
        for node_group in node_groups:
            yield "pods need their nodes to finish what they have begun", urn, node_group
    for node_group in node_groups:
        for cluster in clusters:
            yield "EKS refuses to delete a cluster with node groups", node_group, cluster
    for cluster in clusters:
        for part in of("aws:ec2/(subnet:Subnet|vpc:Vpc)$"):
            yield "the cluster's network interfaces hold subnets", cluster, part
    for namespace in of("^kubernetes:core/v1:Namespace$"):
        for urn in objects:
            if state[urn]["inputs"]["metadata"].get("namespace") == state[namespace]["inputs"]["metadata"]["name"]:
                yield "a namespace that goes first takes along what is in it", urn, namespace
    for urn in [*objects, *releases]:
        for access in of("aws:eks/access(Entry|PolicyAssociation):"):
            yield "without access nobody can delete Kubernetes objects", urn, access


def waits_for(state: dict[str, Resource]) -> dict[str, set[str]]:
    """For each URN all URNs that are deleted after it: its dependencies, parent, provider, and theirs in turn."""
    direct = {
        urn: {
            *item.get("dependencies", []),
            *(dep for deps in (item.get("propertyDependencies") or {}).values() for dep in deps or []),
            *([item["parent"]] if item.get("parent") else []),
            *([item["provider"].rsplit("::", 1)[0]] if item.get("provider") else []),
        }
        for urn, item in state.items()
    }
    closed: dict[str, set[str]] = {}
    for urn in state:  # the engine writes a state in an order where dependencies come first
        closed[urn] = direct[urn].union(*(closed[dep] for dep in direct[urn] if dep in closed))
    return closed
