"""The dashboard of pods on their way to the first request."""

from typing import Any

from .. import metrics
from ..rules import RUNBOOKS
from .panels import board, figure, graph, listing, variables

UID = "llm-cold-start"
PODS = 'namespace=~"$namespace",pod=~"($service)-[0-9a-z]{6,10}-[0-9a-z]{5}"'
"""Label matchers of the chosen services' pods."""


def cold_start(runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """The dashboard as JSON. `runbooks`: the web address of docs/runbooks/."""

    def at(metric: str) -> str:
        return f"max by (namespace, pod) ({metric}{{{PODS}}})"

    created, scheduled = at(metrics.POD_CREATED), at(metrics.POD_SCHEDULED_TIME)
    initialized, ready = at(metrics.POD_INITIALIZED_TIME), at(metrics.POD_READY_TIME)
    unready = f'max by (namespace, pod) ({metrics.POD_READY}{{{PODS},condition="true"}}) == 0'
    groups = {
        "Now": [
            figure("Pods not ready", "short", f"count({unready}) or vector(0)", worse=(1, 3),
                   look="Pods that start, or have failed."),
            figure("Oldest of them", "s", f"max((time() - {created}) and on (namespace, pod) ({unready}))",
                   look="Longer than the start budget of the service: it will be restarted; read its log.",
                   alerts=("LLMPodStartSlow",)),
            figure("Waits for a node", "short",
                   f'count({metrics.POD_UNSCHEDULABLE}{{{PODS}}}) or vector(0)', worse=(1, 3),
                   look="No node has the GPUs free.", alerts=("LLMPodPending",)),
            figure("Start, longest that is ready", "s", f"max({ready} - {created})",
                   look="From creation to ready, of the pods that run now. Scaling reckons with it."),
            figure("Start, median", "s", f"quantile(0.5, {ready} - {created})", look="Likewise."),
            figure("Restarts in an hour", "short", f"sum(increase({metrics.RESTARTS}{{{PODS}}}[1h])) or vector(0)",
                   worse=(1, 3), look="A pod that restarts while it starts has too short a budget, or a bad setting.",
                   alerts=("LLMPodRestarts",)),
        ],
        "Phases": [
            listing("Start of every pod", {
                "Waits for a node": ("s", f"{scheduled} - {created}"),
                "Fetches weights": ("s", f"{initialized} - {scheduled}"),
                "Loads and warms up": ("s", f"{ready} - {initialized}"),
                "In all": ("s", f"{ready} - {created}"),
            }, by=("namespace", "pod"),
                look="Long waits for a node: raise nodes.min, or hold a reservation. Long fetches: the node had no "
                "copy yet, or S3 is slow. Long loads: no compile cache yet, or many CUDA graphs. A pod that lost its "
                "readiness and came back shows the time of its last return."),
            graph("Age of pods that are not ready", "s",
                  {"{{pod}}": f"(time() - {created}) and on (namespace, pod) ({unready})"}, width=12,
                  alerts=("LLMPodStartSlow",), look="A line that ends is a pod that became ready, or was removed."),
            graph("Why containers wait", "short",
                  {"{{pod}} {{reason}}": f"max by (pod, reason) ({metrics.WAITING_REASON}{{{PODS}}}) > 0"}, width=12,
                  alerts=("LLMWeightsMissing", "LLMImagePullFailing"),
                  look="PodInitializing: weights. ContainerCreating: the image. ImagePullBackOff or CrashLoopBackOff: "
                  "it will not start by itself."),
            graph("Received by pods", "Bps",
                  {"{{pod}}": f"sum by (pod) (rate({metrics.RECEIVED}{{{PODS}}}[1m]))"}, width=12,
                  look="Weights from S3. 2 GB/s or more is right for a p4d."),
            graph("Memory of starting pods", "bytes",
                  {"{{pod}}": f'max by (pod) ({metrics.MEMORY_WORKING_SET}{{{PODS},container="server"}})'}, width=12,
                  look="Rises while weights are read, then falls: page cache. Flat and low for minutes: it waits."),
        ],
    }  # fmt: skip
    return board(
        UID,
        "LLM cold start",
        "From a pod's creation to its first request: which phase takes the time.",
        groups,
        variables(metrics.RUNNING),
        runbooks,
    )
