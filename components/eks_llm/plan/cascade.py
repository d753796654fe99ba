"""What a replaced resource takes along though no input of the other one reads differently. Pure.

`diff` sees that a subnet's `vpcId` is that of another VPC. What it cannot see in the inputs is here: the provider, a
VPC that stands behind subnets, and a cluster whose name stays.
"""

from collections.abc import Iterable, Iterator

from .diff import Change, KeyChange
from .recorder import Recording, Resource
from .replacements import replacing

CLUSTER, SUBNET, VPC = "aws:eks/cluster:Cluster", "aws:ec2/subnet:Subnet", "aws:ec2/vpc:Vpc"


def followed(changes: Iterable[Change], base: Recording, head: Recording) -> list[Change]:
    """`changes`, with those that follow from a replacement in their place in the program."""
    found = {change.urn: change for change in changes}
    known = {item.urn for item in base.resources}
    replaced = {change.urn: change.name for change in found.values() if change.action == "replaced"}
    resources = {item.urn: item for item in head.resources}
    ordered: list[Change] = []
    for item in head.resources:  # whatever a resource depends on stands before it
        change = found.pop(item.urn, None)
        cause = next(_causes(item, resources, replaced), None) if item.urn in known - replaced.keys() else None
        if cause:
            key, name = cause
            keys = [*(change.keys if change else []), KeyChange(key, f"of {name}", f"of the new {name}", replaces=True)]
            change = Change("replaced", item.kind, item.name, item.type, item.urn, item.parent, item.custom, keys)
            replaced[item.urn] = item.name
        if change:
            ordered.append(change)
    return [*ordered, *found.values()]


def _causes(item: Resource, resources: dict[str, Resource], replaced: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Key of `item`, and name of the replaced resource that it refers to."""
    provider = item.provider.rpartition("::")[0]
    if provider in replaced:
        yield "provider", replaced[provider]
    needed = [resources[urn] for urn in sorted(item.dependencies) if urn in resources]
    if item.type == CLUSTER:
        # Subnets of a cluster can change within its VPC only. Source: EKS user guide, "Amazon EKS networking
        # requirements for VPC and subnets", Subnet requirements.
        behind = {urn for subnet in needed if subnet.type == SUBNET for urn in subnet.dependencies & replaced.keys()}
        yield from (("vpcConfig.subnetIds", replaced[urn]) for urn in sorted(behind) if resources[urn].type == VPC)
    for other in needed:
        if other.urn not in replaced:
            continue
        for key in replacing(item):
            value = str(item.inputs.get(key))
            of_cluster = other.type == CLUSTER and key == "clusterName" and value == other.inputs.get("name")
            if of_cluster or f"‹{other.name}." in value:
                yield key, other.name
