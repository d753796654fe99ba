"""What a service asks of its pool and of the network, in plain values: builders of `InferenceService`'s needs."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core.quantities import Duration
from ..core.timing import Start, cut_off, drain, start, update_problem
from ..sizing.capacity import BLOCK_CLOSES_EARLY
from ..sizing.needs import Artifact, Flow
from ..sizing.policy import Policy
from ..sizing.stack import Pool, Service
from ..sizing.validity import Finding
from ..sizing.weights import weights_gib
from . import scaling
from .risks import RISKS
from .targets import problems
from .workload import share

if TYPE_CHECKING:
    from .service import ServiceSettings


# On its pool --------------------------------------------------------------------------------------------------------


def sized(name: str, service: "ServiceSettings", pool: Pool) -> Service:
    """The service as sizing needs to know it."""
    return Service(
        name=name,
        model=service.model,
        shape=service.shape,
        pool=service.pool,
        engine=service.memory_engine,
        min_replicas=service.scaling.min,
        max_replicas=service.scaling.max,
        quantization=service.quantization,
        tensor_parallel=service.tensor_parallel,
        pipeline_parallel=service.pipeline_parallel,
        expected_replicas=service.expected.replicas,
        typical_tokens=service.expected.tokens_per_request,
        tokens_per_second=service.expected.tokens_per_second,
        accept_memory=service.accept_memory,
        in_flight=service.targets(pool.instance_type).in_flight,
        shm_gib=share(pool.instance_type, service.gpus).shm_gib,
    )


def scale_down_window(service: "ServiceSettings", node_start: Duration) -> float:
    """Seconds that the service waits before it gives up a replica."""
    return scaling.scale_down_window(service.scaling, _start(service, node_start).for_scaling)


def _start(service: "ServiceSettings", node_start: Duration) -> Start:
    ending = drain(service.limits.request_timeout)
    return start(weights_gib(service.shape, service.quantization), ending, node_start)


def policy(name: str, service: "ServiceSettings", pool: Pool) -> Policy:
    """How the service scales, with the arithmetic of its thresholds."""
    found, begin = service.targets(pool.instance_type), _start(service, Duration(pool.node_start_s))
    triton = service.runtime.value == "triton"
    up, down = scaling.in_words(scaling.behavior(service.scaling, begin.for_scaling))
    return Policy(
        service=name,
        min=service.scaling.min,
        max=service.scaling.max,
        in_flight=found.in_flight,
        in_flight_why=found.in_flight_why,
        max_queued=found.max_queued if triton else None,
        max_queued_why=found.max_queued_why if triton else "",
        pod_start=begin.expected,
        node_start=begin.node,
        scale_up=up,
        scale_down=down,
    )


def doubts(name: str, service: "ServiceSettings", pool: Pool) -> Iterator[Finding]:
    """What the service's policy will do badly on this pool."""
    path, found = f"services.{name}", service.targets(pool.instance_type)
    begin = _start(service, Duration(pool.node_start_s))
    most = math.inf
    if found.estimate and service.runtime.value == "triton":
        most = found.estimate.slots + found.max_queued
    for argument in sorted(service.engine.accept_risk):
        yield Finding(f"{path}.engine.acceptRisk", f"{argument} is accepted: {RISKS[argument]}")
    for key, message in problems(service.scaling, service.slo, found, service.expected.tokens_per_request is not None):
        yield Finding(f"{path}.{key}", message)
    for key, message in scaling.warnings(service.scaling, begin.for_scaling, found.in_flight, most):
        yield Finding(f"{path}.scaling.{key}", message)
    if pool.made:
        yield from _endings(path, service, pool)


def _endings(path: str, service: "ServiceSettings", pool: Pool) -> Iterator[Finding]:
    """What the service loses, or holds up, when nodes of its pool go away."""
    ending, begin = drain(service.limits.request_timeout), _start(service, Duration(pool.node_start_s))
    if lost := cut_off(pool.capacity, ending):
        yield Finding(f"{path}.limits.requestTimeout", lost)
    if held := update_problem(begin, ending, _together(service, pool)):
        yield Finding(f"{path}.limits.requestTimeout", held)
    if pool.block_ends:
        stops = pool.block_ends - BLOCK_CLOSES_EARLY
        for key, message in scaling.block_warnings(service.scaling, stops, ending.grace):
            yield Finding(f"{path}.scaling.{key}", message)


def _together(service: "ServiceSettings", pool: Pool) -> int:
    """Replicas that always share a node: as many as run at the least demand, spread as evenly as its nodes allow."""
    least = math.ceil(service.scaling.min / max(1, pool.min_nodes))
    return max(1, min(pool.instance.gpus // service.gpus, least))


# Of manifests -------------------------------------------------------------------------------------------------------


def images(manifest: dict[str, Any]) -> tuple[Artifact, ...]:
    """The images of a workload's pods."""
    pod = manifest["spec"]["template"]["spec"]
    containers = [*pod.get("initContainers", []), *pod["containers"]]
    return tuple(Artifact("image", container["image"]) for container in containers)


def flows(name: str, policy: dict[str, Any]) -> tuple[Flow, ...]:
    """What a NetworkPolicy lets through to and from the pods of `name`."""
    spec = policy["spec"]
    return tuple(
        Flow(
            name,
            direction,
            _peer(peer, policy["metadata"]["namespace"]),
            tuple(f"{port['protocol']} {port['port']}" for port in rule["ports"]),
        )
        for rules, direction in (("ingress", "from"), ("egress", "to"))
        for rule in spec[rules]
        for peer in rule[direction]
    )


def _peer(peer: dict[str, Any], own: str) -> str:
    """A peer of a NetworkPolicy in the namespace `own`, in words."""
    if block := peer.get("ipBlock"):
        closed = f" but {', '.join(block['except'])}" if block.get("except") else ""
        return f"{block['cidr']}{closed}"
    names = [
        value for term in peer.get("namespaceSelector", {}).get("matchExpressions", []) for value in term["values"]
    ]
    labels = [f"{key}={value}" for key, value in peer.get("podSelector", {}).get("matchLabels", {}).items()]
    pods = f"pods with {', '.join(labels)}" if labels else "all pods"
    if names:
        where = f"namespace {', '.join(names)}"
    else:
        where = "every namespace" if "namespaceSelector" in peer else f"namespace {own}"
    return f"{pods} of {where}"
