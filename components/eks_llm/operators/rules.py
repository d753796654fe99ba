"""Alerts of the platform: GPUs and their nodes, node autoscaler, KEDA, kube-state-metrics, capacity blocks.

What kube-prometheus-stack already alarms on is not repeated: Prometheus, Alertmanager, its operator, system nodes,
volumes. An operator that is missing altogether makes no metric, so its absence counts only where it is installed.
"""

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.placement import GPU_RESOURCE
from ..observe import metrics
from ..observe.rules import RUNBOOKS, Alert, Severity, duration, group
from ..observe.rules import prometheus_rule as rule_object

NAME = "eks-llm-platform"

GPU = f'resource="{GPU_RESOURCE.replace(".", "_").replace("/", "_")}"'
"""kube-state-metrics writes resource names with underscores."""
HARDWARE_XIDS = (48, 62, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 121, 140, 143)
"""XIDs of memory, NVLink, PCIe and the GPU's own processor, after which a GPU needs a reset or goes. Others come from
the application. Source: NVIDIA, "XID Errors"."""
BLOCK_WARNING_SECONDS = 24 * 3600
"""A working day to buy the next block."""
BLOCK_CRITICAL_SECONDS = 2 * 3600
"""EKS drains the nodes 40 minutes before the end, so this leaves 80."""
IDLE_SECONDS = 6 * 3600


def prometheus_rule(
    namespace: str, *, capacity_blocks: Mapping[str, datetime.datetime], runbooks: str = RUNBOOKS
) -> dict[str, Any]:
    """The platform's PrometheusRule. `capacity_blocks`: pools and when their capacity block ends."""
    rules = (alert.rule({}, runbooks) for alert in alerts(capacity_blocks))
    return rule_object({"name": NAME, "namespace": namespace}, group(NAME, rules))


def alerts(capacity_blocks: Mapping[str, datetime.datetime]) -> list[Alert]:
    """The alerts of the platform."""
    return [*_gpus(), *_nodes(), *_node_autoscaler(), *_autoscaling(), *_capacity_blocks(capacity_blocks)]


def _gpus() -> Iterator[Alert]:
    where = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
    hardware = "|".join(map(str, HARDWARE_XIDS))
    yield Alert(
        "GPUXidHardware",
        f'{metrics.GPU_XID}{{xid=~"{hardware}"}} > 0',
        Severity.CRITICAL,
        f"{where}: XID {{{{ $labels.xid }}}}, a hardware fault",
        "Work on this GPU fails or gives wrong results until it is reset. EKS replaces the node, or do it by hand.",
    )
    yield Alert(
        "GPUXidApplication",
        f'{metrics.GPU_XID}{{xid!~"0||{hardware}"}} > 0',
        Severity.WARNING,
        f"{where}: XID {{{{ $labels.xid }}}}",
        "The driver ended work on this GPU, most likely for a fault of the program. Look at the pod's log.",
    )
    yield Alert(
        "GPUMemoryErrors",
        f"increase({metrics.GPU_DOUBLE_BIT_ERRORS}[15m]) > 0 or increase({metrics.GPU_UNCORRECTABLE_ROWS}[15m]) > 0",
        Severity.CRITICAL,
        f"{where}: uncorrectable memory errors",
        "The program that used the memory was ended. The rows are replaced when the GPU is reset: replace the node.",
    )
    yield Alert(
        "GPURowRemapFailure",
        f"{metrics.GPU_REMAP_FAILURE} == 1",
        Severity.CRITICAL,
        f"{where}: a faulty memory row cannot be replaced",
        "The GPU has no spare rows left there and will fail again. Replace the node.",
    )
    yield Alert(
        "GPUThermalThrottling",
        f"rate({metrics.GPU_THERMAL_VIOLATION}[5m]) > 0",
        Severity.WARNING,
        f"{where}: slowed down by heat",
        "A GPU in a cloud should never be. With tensor parallelism it slows all GPUs of its pod. Replace the node.",
        600,
    )
    yield Alert(
        "GPUIdle",
        f'max_over_time({metrics.GPU_ACTIVE}{{exported_pod!=""}}[1h]) < 0.01',
        Severity.INFO,
        f"{where}: {{{{ $labels.exported_pod }}}} has not used it for {duration(IDLE_SECONDS)}",
        "It costs the same. Lower scaling.min, or let the service rest with a front door.",
        IDLE_SECONDS,
    )
    seen = f"count(count by (UUID) ({metrics.GPU_UTILISATION})) or vector(0)"
    yield Alert(
        "GPUMetricsMissing",
        f"sum({metrics.NODE_CAPACITY}{{{GPU}}}) - ({seen}) > 0",
        Severity.WARNING,
        "{{ $value }} GPUs of nodes have no metrics",
        "The other GPU alerts are blind for them. Look at the pods nvidia-dcgm-exporter in gpu-operator.",
        900,
    )


def _nodes() -> Iterator[Alert]:
    gpu_node = f"on (node) {metrics.NODE_CAPACITY}{{{GPU}}} > 0"
    yield Alert(
        "GPUNodeNotReady",
        f'{metrics.NODE_CONDITION}{{condition="Ready",status="true"}} == 0 and {gpu_node}',
        Severity.CRITICAL,
        "GPU node {{ $labels.node }} is not ready",
        "Its pods are lost or soon will be. EKS repairs nodes after some time; see its events.",
        300,
    )
    yield Alert(
        "GPUHardwareUnhealthy",
        f'{metrics.NODE_CONDITION}{{condition="AcceleratedHardwareReady",status="false"}} == 1',
        Severity.CRITICAL,
        "the node monitoring agent calls the GPUs of {{ $labels.node }} broken",
        "EKS replaces the node by itself after about ten minutes; the node's events name the fault.",
        60,
    )
    yield Alert(
        "GPUMissing",
        f"{metrics.NODE_CAPACITY}{{{GPU}}} - on (node) {metrics.NODE_ALLOCATABLE}{{{GPU}}} > 0",
        Severity.WARNING,
        "{{ $labels.node }} offers {{ $value }} GPUs less than it has",
        "The device plugin took them out as unhealthy. Pods for all GPUs of the node no longer fit.",
        300,
    )
    checks = "|".join(metrics.GPU_NODE_CHECKS)
    yield Alert(
        "GPUNodeNotValidated",
        f'min by (node) ({{__name__=~"gpu_operator_node_({checks})_ready"}}) == 0',
        Severity.WARNING,
        "a check of the GPU operator fails on {{ $labels.node }}",
        "Driver, toolkit, device plugin or CUDA fails there, so the node offers no GPUs. See the validator's log.",
        900,
    )


def _node_autoscaler() -> Iterator[Alert]:
    installed = 'namespace="kube-system",deployment=~"cluster-autoscaler.*"'
    last = f'{metrics.AUTOSCALER_LAST_ACTIVITY}{{activity="main"}}'
    yield Alert(
        "NodeScaleUpFailing",
        f"sum by (reason) (increase({metrics.AUTOSCALER_FAILED}[15m])) > 0",
        Severity.WARNING,
        "the node autoscaler cannot add nodes: {{ $labels.reason }}",
        "EC2 has no capacity, or the order was wrong. Pods for GPUs go on waiting.",
    )
    yield Alert(
        "NodePoolAtMax",
        f"max by (node_group) ({metrics.AUTOSCALER_GROUP_TARGET}) >= max by (node_group)"
        f" ({metrics.AUTOSCALER_GROUP_MAX}) and on () sum({metrics.AUTOSCALER_UNSCHEDULABLE}) > 0",
        Severity.WARNING,
        "{{ $labels.node_group }} has all its {{ $value }} nodes, and pods wait",
        "Raise the pool's nodes.max, if the quota and EC2 allow it, or lower a service's scaling.max.",
        600,
    )
    yield Alert(
        "NodeAutoscalerUnsafe",
        f"min({metrics.AUTOSCALER_SAFE}) == 0",
        Severity.CRITICAL,
        "the node autoscaler has stopped: too many nodes are not ready",
        "It neither adds nor removes nodes until they are. Look at the nodes first.",
        900,
    )
    yield Alert(
        "NodeAutoscalerDown",
        f"(absent({last}) and on () sum({metrics.DEPLOYMENT_WANTED}{{{installed}}}) > 0)"
        f" or (time() - max({last}) > 300)",
        Severity.CRITICAL,
        "the node autoscaler does nothing",
        "No node comes for pods that wait. Look at its pods in kube-system, and at its AWS permissions.",
        300,
    )


def _autoscaling() -> Iterator[Alert]:
    installed = 'namespace="keda",deployment="keda-operator"'
    yield Alert(
        "KedaDown",
        f"absent({metrics.KEDA_BUILD}) and on () max({metrics.DEPLOYMENT_WANTED}{{{installed}}}) >= 0",
        Severity.CRITICAL,
        "KEDA's operator cannot be scraped",
        "No service scales while it is down: HPAs keep their replicas.",
        300,
    )
    yield Alert(
        "ExternalMetricsDown",
        f'max({metrics.UNAVAILABLE_API}{{name="v1beta1.external.metrics.k8s.io"}}) == 1',
        Severity.CRITICAL,
        "the external metrics API is not available",
        "No HPA of a service gets its signals. Look at keda-operator-metrics-apiserver and the APIService.",
        300,
    )
    yield Alert(
        "KubeStateMetricsMissing",
        f"absent({metrics.NODE_INFO})",
        Severity.CRITICAL,
        "kube-state-metrics cannot be scraped",
        "Every alert on pods, replicas and nodes is silent meanwhile.",
        300,
    )


def _capacity_blocks(ends: Mapping[str, datetime.datetime]) -> Iterator[Alert]:
    """Silent once a block has ended: there is nothing left to lose."""
    for pool, end in ends.items():
        for name, seconds, severity in (
            ("CapacityBlockEndsSoon", BLOCK_WARNING_SECONDS, Severity.WARNING),
            ("CapacityBlockEnding", BLOCK_CRITICAL_SECONDS, Severity.CRITICAL),
        ):
            yield Alert(
                name,
                f"(vector({end.timestamp():.0f}) - time() < {seconds}) > 0",
                severity,
                f"{pool}: the capacity block ends in {{{{ $value | humanizeDuration }}}}",
                "EKS drains the pool 40 minutes before, and its services have no GPUs then. Extend the block or buy "
                "another, and move the services.",
                labels={"pool": pool},
            )
