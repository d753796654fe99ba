"""The node autoscaler."""

from collections.abc import Iterator

from .. import metrics
from ..rules import Alert, Severity, duration

FAILED_SECONDS = 75 * 60
"""Longer than the node autoscaler pauses after a failure: up to 30 minutes (`--max-node-group-backoff-duration`), and
it takes up to 30 more to see the next one (`maxNodeProvisionTime`). A shorter window would end between two failures."""


def alerts() -> Iterator[Alert]:
    installed = 'namespace="kube-system",deployment=~"cluster-autoscaler.*"'
    last = f'{metrics.AUTOSCALER_LAST_ACTIVITY}{{activity="main"}}'
    yield Alert(
        "NodeScaleUpFailing",
        f"sum by (reason) ({metrics.events(metrics.AUTOSCALER_FAILED, duration(FAILED_SECONDS))}) > 0"
        f" and on () sum({metrics.AUTOSCALER_UNSCHEDULABLE}) > 0",
        Severity.WARNING,
        summary="the node autoscaler cannot add nodes: {{ $labels.reason }}",
        description="EC2 has no capacity, or the order was wrong. Pods for GPUs go on waiting.",
        fires="the node autoscaler failed to add nodes within 75 minutes, and pods wait for them",
        meaning=(
            "The node autoscaler failed to add nodes within the last 75 minutes, and pods still wait for them; "
            "`reason` says how. It tries again after a pause that grows to 30 minutes."
        ),
        impact="Pods for GPUs go on waiting; services stay at the replicas they have.",
    )
    yield Alert(
        "NodePoolAtMax",
        f"max by (node_group) ({metrics.AUTOSCALER_GROUP_TARGET}) >= max by (node_group)"
        f" ({metrics.AUTOSCALER_GROUP_MAX}) and on () sum({metrics.AUTOSCALER_UNSCHEDULABLE}) > 0",
        Severity.WARNING,
        summary="{{ $labels.node_group }} has all its {{ $value }} nodes, and pods wait",
        description="Raise the pool's nodes.max, if the quota and EC2 allow it, or lower a service's scaling.max.",
        fires="a pool is at `nodes.max` and pods wait, for 10 minutes",
        meaning="A node group has as many nodes as it may have, and for ten minutes pods have found no place.",
        impact="Services stay below the replicas that demand asks for.",
        after=600,
    )
    yield Alert(
        "NodeAutoscalerUnsafe",
        f"min({metrics.AUTOSCALER_SAFE}) == 0",
        Severity.CRITICAL,
        summary="the node autoscaler has stopped: too many nodes are not ready",
        description="It neither adds nor removes nodes until they are. Look at the nodes first.",
        fires="the node autoscaler has stopped for 15 minutes: too many nodes are not ready",
        meaning="For 15 minutes the node autoscaler has called the cluster unsafe: too many nodes are not ready.",
        impact="It adds no nodes and removes none.",
        after=900,
    )
    yield Alert(
        "NodeAutoscalerDown",
        f"(absent({last}) and on () sum({metrics.DEPLOYMENT_WANTED}{{{installed}}}) > 0)"
        f" or (time() - max({last}) > 300)",
        Severity.CRITICAL,
        summary="the node autoscaler does nothing",
        description="No node comes for pods that wait. Look at its pods in kube-system, and at its AWS permissions.",
        fires="the node autoscaler's loop does not run",
        meaning=(
            "The node autoscaler is installed and its loop has not run for five minutes, or it cannot be scraped."
        ),
        impact="No node comes for pods that wait, and none goes.",
        after=300,
    )
