"""Nodes with GPUs."""

from collections.abc import Iterator

from .. import metrics
from ..rules import Alert, Severity


def alerts() -> Iterator[Alert]:
    gpu_node = f"on (node) {metrics.NODE_CAPACITY}{{{metrics.OF_GPUS}}} > 0"
    yield Alert(
        "GPUNodeNotReady",
        f'{metrics.NODE_CONDITION}{{condition="Ready",status="true"}} == 0 and {gpu_node}',
        Severity.CRITICAL,
        summary="GPU node {{ $labels.node }} is not ready",
        description="Its pods are lost or soon will be. EKS repairs nodes after some time; see its events.",
        fires="a GPU node is not ready for 5 minutes",
        meaning="A node with GPUs has not been ready for five minutes.",
        impact="Its replicas are lost, or will be when their pods are evicted.",
        after=300,
    )
    yield Alert(
        "GPUHardwareUnhealthy",
        f'{metrics.NODE_CONDITION}{{condition="AcceleratedHardwareReady",status="false"}} == 1',
        Severity.CRITICAL,
        summary="the node monitoring agent calls the GPUs of {{ $labels.node }} broken",
        description="EKS replaces the node by itself after about ten minutes; the node's events name the fault.",
        fires="the node monitoring agent calls a node's GPUs broken",
        meaning="EKS's node monitoring agent has set AcceleratedHardwareReady to false.",
        impact="The node is about to be replaced; its pods are evicted.",
        after=60,
    )
    yield Alert(
        "GPUMissing",
        f"{metrics.NODE_CAPACITY}{{{metrics.OF_GPUS}}} - on (node) {metrics.NODE_ALLOCATABLE}{{{metrics.OF_GPUS}}} > 0",
        Severity.WARNING,
        summary="{{ $labels.node }} offers {{ $value }} GPUs less than it has",
        description="The device plugin took them out as unhealthy. Pods for all GPUs of the node no longer fit.",
        fires="a node offers fewer GPUs than it has, for 5 minutes",
        meaning="For five minutes a node has offered fewer GPUs than it has.",
        impact="Pods that need all GPUs of a node no longer fit, and wait.",
        after=300,
    )
    checks = "|".join(metrics.GPU_NODE_CHECKS)
    yield Alert(
        "GPUNodeNotValidated",
        f'min by (node) ({{__name__=~"gpu_operator_node_({checks})_ready"}}) == 0',
        Severity.WARNING,
        summary="a check of the GPU operator fails on {{ $labels.node }}",
        description=(
            "Driver, toolkit, device plugin or CUDA fails there, so the node offers no GPUs. See the validator's log."
        ),
        fires="a check of the GPU operator fails for 15 minutes",
        meaning=(
            "For 15 minutes a check of the GPU operator has failed on a node: driver, container toolkit, device "
            "plugin or CUDA."
        ),
        impact="The node offers no GPUs, or broken ones.",
        after=900,
    )
