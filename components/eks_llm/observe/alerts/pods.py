"""Pods of a service on their way to the first request, and what ends them.

Series of kube-state-metrics carry no label of ours, so pods are told by the names that their Deployment gives them.
"""

from collections.abc import Iterator

from ...core.timing import PROVISION_SECONDS
from .. import metrics, thresholds
from ..rules import Alert, Severity, duration
from ..watched import WatchedService


def alerts(of: WatchedService) -> Iterator[Alert]:
    pods = metrics.pod_selector(*of.here)
    main, weights = f'{pods},container="server"', f'{pods},container="weights"'
    budget = of.start.prepared
    yield Alert(
        "LLMPodPending",
        f'max by (pod) ({metrics.POD_SCHEDULED}{{{pods},condition="false"}}) == 1',
        Severity.WARNING,
        summary=f"{of.name}: {{{{ $labels.pod }}}} waits for GPUs, longer than a new node takes",
        description=(
            "No node has its GPUs free and none comes. See the pod's events, NodeScaleUpFailing and NodePoolAtMax."
        ),
        fires="a pod has no node for the time that a new one takes",
        meaning=(
            f"A pod has had no node for {PROVISION_SECONDS // 60} minutes, or half as long again as the pool's "
            "`nodes.start`: a new node would offer its GPUs by then, and the node autoscaler gives one up that does "
            "not."
        ),
        impact="The replica does not come.",
        after=of.start.placed,
    )
    live = f'max by (pod) ({metrics.POD_PHASE}{{{pods},phase=~"Pending|Running"}}) == 1'
    yield Alert(
        "LLMPodStartSlow",
        f"max by (pod) (time() - {metrics.POD_SCHEDULED_TIME}{{{pods}}}) > {budget} and on (pod) {live}"
        f' and on (pod) max by (pod) ({metrics.POD_READY}{{{pods},condition="true"}}) == 0'
        f" unless on (pod) {metrics.POD_DELETED}{{{pods}}}",
        Severity.WARNING,
        summary=(
            f"{of.name}: {{{{ $labels.pod }}}} is not ready {{{{ $value | humanizeDuration }}}} after it got its node"
        ),
        description=(
            f"Image, weights and load should take {duration(budget)} at most. kubectl describe pod shows its step."
        ),
        fires="a pod has its node and is not ready after image, weights and load at their slowest",
        meaning=(
            "A pod got its node and is not ready after the time that image, weights and load may take together, "
            "three times of what is usual."
        ),
        impact="The replica comes late or never.",
        after=300,
    )
    crashes = "CrashLoopBackOff|CreateContainerConfigError|CreateContainerError|RunContainerError"
    failing = " or ".join((
        f'max by (pod) ({metrics.INIT_WAITING_REASON}{{{weights},reason=~"{crashes}"}}) == 1',
        f"max by (pod) (increase({metrics.INIT_RESTARTS}{{{weights}}}[10m])) > 0",
    ))  # fmt: skip
    yield Alert(
        "LLMWeightsMissing",
        failing,
        Severity.CRITICAL,
        summary=f"{of.name}: {{{{ $labels.pod }}}} cannot fetch its weights",
        description="The init container `weights` fails, so no new replica starts. Its last log line says why.",
        fires="the init container that fetches weights fails",
        meaning="The init container `weights` fails: the model's files do not get onto the node.",
        impact="No new replica starts on this node. Those that run are not affected.",
        after=60,
    )
    images = 'reason=~"ErrImagePull|ImagePullBackOff|InvalidImageName"'
    yield Alert(
        "LLMImagePullFailing",
        " or ".join(
            f"max by (pod) ({name}{{{pods},{images}}}) == 1"
            for name in (metrics.WAITING_REASON, metrics.INIT_WAITING_REASON)
        ),
        Severity.WARNING,
        summary=f"{of.name}: {{{{ $labels.pod }}}} cannot pull an image",
        description=(
            "No new replica starts on this node. See the pod's events: a wrong name, no access, or no way to the "
            "registry."
        ),
        fires="an image cannot be pulled for 5 minutes",
        meaning="An image of the pod could not be pulled for five minutes.",
        impact="The replica does not start on this node.",
        after=300,
    )
    yield Alert(
        "LLMPodRestarts",
        f"max by (pod) (increase({metrics.RESTARTS}{{{main}}}[1h])) > {thresholds.RESTARTS}",
        Severity.WARNING,
        threshold=thresholds.RESTARTS,
        summary=f"{of.name}: {{{{ $labels.pod }}}} has restarted {{{{ $value | humanize }}}} times within an hour",
        description=(
            "Each restart loses the requests in flight and loads the model anew. See the log of the previous container."
        ),
        fires="a server restarts more than twice within an hour",
        meaning="The container `server` of a pod has restarted more than twice within an hour.",
        impact=(
            "Each restart loses the requests in flight, and the model is loaded anew: minutes without this replica."
        ),
    )
    killed = f'max by (pod) ({metrics.LAST_TERMINATED_REASON}{{{main},reason="OOMKilled"}}) == 1'
    yield Alert(
        "LLMPodOOMKilled",
        f"{killed} and on (pod) max by (pod) (increase({metrics.RESTARTS}{{{main}}}[10m])) > 0",
        Severity.CRITICAL,
        summary=f"{of.name}: {{{{ $labels.pod }}}} ran out of memory and was killed",
        description=(
            "Host memory, not GPU memory. Its requests are lost, and it will happen again under the same load."
        ),
        fires="a server was killed for its memory",
        meaning=(
            "The kernel killed the server for its host memory within the last ten minutes. GPU memory is another thing."
        ),
        impact="The requests in flight are lost; the pod loads anew.",
    )
    limit = f'max by (pod) ({metrics.POD_LIMITS}{{{main},resource="memory"}})'
    yield Alert(
        "LLMMemoryNearLimit",
        f"max by (pod) ({metrics.MEMORY_RSS}{{{main}}}) / on (pod) {limit} > {thresholds.MEMORY}",
        Severity.WARNING,
        threshold=thresholds.MEMORY,
        summary=f"{of.name}: {{{{ $labels.pod }}}} uses {{{{ $value | humanizePercentage }}}} of its memory limit",
        description=(
            "The kernel will kill it at the limit. A rise over days is a leak: restart the pod at a quiet time."
        ),
        fires=f"a server uses more than {thresholds.MEMORY.percent} of its memory limit for 10 minutes",
        meaning=(
            f"A server has used more than {thresholds.MEMORY.percent} of its memory limit for ten minutes, page cache "
            "not counted."
        ),
        impact="At the limit the kernel kills it, and its requests are lost.",
        after=600,
    )
