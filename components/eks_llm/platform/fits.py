"""Rules across sections on room: addresses for nodes, and what only one pool or one model can have."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from math import ceil

from ..aws.cluster import MINIMUM_IP_TARGET
from ..aws.network import subnet_cidrs
from ..aws.node_pool import PoolSettings
from ..core.problems import Problem
from .sections import Sections

RESERVED_ADDRESSES = 5
"""Of each subnet, which AWS keeps. Source: VPC user guide, "Subnet sizing"."""
CONTROL_PLANE_ADDRESSES = 6
"""That EKS wants free in each subnet of a cluster. Source: EKS user guide, "VPC and subnet considerations"."""
NODE_ADDRESSES = 1 + MINIMUM_IP_TARGET
"""A node's own, and those that the VPC CNI holds for pods, used or not. Source: amazon-vpc-cni-k8s, README.md."""


def addresses(sections: Sections, _region: str) -> Iterator[Problem]:
    """Each zone's subnet holds the addresses of its nodes. The sizes of existing subnets are not known."""
    network, cluster = sections.network, sections.cluster
    if not network or network.existing or not network.zones:
        return
    system = ceil(cluster.system_nodes.max / len(network.zones)) if cluster else 0
    for zone in network.zones:
        subnet = IPv4Network(subnet_cidrs(network.cidr, zone)[0])
        pools = {name: pool.nodes.max for name, pool in _own(sections).items() if pool.zone == zone}
        nodes = system + sum(pools.values())
        has = subnet.num_addresses - RESERVED_ADDRESSES - CONTROL_PLANE_ADDRESSES - len(network.interface_endpoints)
        if nodes * NODE_ADDRESSES > has:
            listed = ", ".join([*(f"gpuPools.{name} {most}" for name, most in pools.items()), f"system nodes {system}"])
            yield Problem(
                "platform.network.cidr",
                f"{zone} has {subnet}, with {has:,} addresses for nodes; {nodes:,} nodes ({listed}) take at least "
                f"{nodes * NODE_ADDRESSES:,}, {NODE_ADDRESSES} each: take a wider range, or lower the largest numbers",
            )


def reservations(sections: Sections, _region: str) -> Iterator[Problem]:
    """What was bought once is not in two pools, whose GPUs would count twice."""
    seen: dict[str, str] = {}
    for name, pool in _own(sections).items():
        if not (bought := pool.capacity.id):
            continue
        if bought in seen:
            text = (
                f"{bought} is gpuPools.{seen[bought]}'s too, and its instances would count twice; give it to one pool"
            )
            yield Problem(f"platform.gpuPools.{name}.capacity.id", text)
        seen.setdefault(bought, name)


def prefixes(sections: Sections, _region: str) -> Iterator[Problem]:
    """A prefix holds one model: a pod copies all that lies below it, and its role may read all of it."""
    services = list(sections.services.items())
    for index, (name, service) in enumerate(services):
        for other, earlier in services[:index]:
            path, theirs = f"platform.services.{name}", f"services.{other}.weights"
            if service.weights == earlier.weights:
                if service.model != earlier.model:
                    yield Problem(
                        f"{path}.weights", f"{theirs} too, which is of {earlier.model}; a prefix holds one model"
                    )
            elif service.weights.startswith(earlier.weights):
                yield Problem(
                    f"{path}.weights", f"lies below {theirs} ({earlier.weights}), whose pods would copy it too"
                )
            elif earlier.weights.startswith(service.weights):
                yield Problem(f"{path}.weights", f"{theirs} lies below it, so its pods would copy that too")


def _own(sections: Sections) -> dict[str, PoolSettings]:
    return {name: pool for name, pool in sections.gpu_pools.items() if isinstance(pool, PoolSettings)}


RULES = [addresses, reservations, prefixes]
