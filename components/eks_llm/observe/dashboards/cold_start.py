"""The dashboard of pods on their way to the first request."""

from .. import metrics, thresholds
from .panels import Board, Figure, Graph, Rows, Table

UID = "llm-cold-start"
PODS = 'namespace=~"$namespace",pod=~"($service)-[0-9a-z]{6,10}-[0-9a-z]{5}"'
"""Label matchers of the chosen services' pods."""


def _at(metric: str) -> str:
    return f"max by (namespace, pod) ({metric}{{{PODS}}})"


CREATED, SCHEDULED = _at(metrics.POD_CREATED), _at(metrics.POD_SCHEDULED_TIME)
INITIALIZED, READY = _at(metrics.POD_INITIALIZED_TIME), _at(metrics.POD_READY_TIME)
UNREADY = f'max by (namespace, pod) ({metrics.POD_READY}{{{PODS},condition="true"}}) == 0'
ROWS: Rows = {
    "Now": [
        Figure(
            "Pods not ready",
            "short",
            f"count({UNREADY}) or vector(0)",
            worse=(1, 3),
            look="Pods that start, or have failed.",
        ),
        Figure(
            "Oldest of them",
            "s",
            f"max((time() - {CREATED}) and on (namespace, pod) ({UNREADY}))",
            look="Longer than the start budget of the service: it will be restarted; read its log.",
            alerts=("LLMPodStartSlow",),
        ),
        Figure(
            "Waits for a node",
            "short",
            f"count({metrics.POD_UNSCHEDULABLE}{{{PODS}}}) or vector(0)",
            worse=(1, 3),
            look="No node has the GPUs free.",
            alerts=("LLMPodPending",),
        ),
        Figure(
            "Start, longest that is ready",
            "s",
            f"max({READY} - {CREATED})",
            look="From creation to ready, of the pods that run now. Scaling reckons with it.",
        ),
        Figure("Start, median", "s", f"quantile(0.5, {READY} - {CREATED})", look="Likewise."),
        Figure(
            "Restarts in an hour",
            "short",
            f"sum(increase({metrics.RESTARTS}{{{PODS}}}[1h])) or vector(0)",
            worse=(1, thresholds.RESTARTS),
            look="A pod that restarts while it starts has too short a budget, or a bad setting.",
            alerts=("LLMPodRestarts",),
        ),
    ],
    "Phases": [
        Table(
            "Start of every pod",
            {
                "Waits for a node": ("s", f"{SCHEDULED} - {CREATED}"),
                "Fetches weights": ("s", f"{INITIALIZED} - {SCHEDULED}"),
                "Loads and warms up": ("s", f"{READY} - {INITIALIZED}"),
                "In all": ("s", f"{READY} - {CREATED}"),
            },
            by=("namespace", "pod"),
            look="Long waits for a node: raise nodes.min, or hold a reservation. Long fetches: the node had no "
            "copy yet, or S3 is slow. Long loads: no compile cache yet, or many CUDA graphs. A pod that lost its "
            "readiness and came back shows the time of its last return.",
        ),
        Graph(
            "Age of pods that are not ready",
            "s",
            {"{{pod}}": f"(time() - {CREATED}) and on (namespace, pod) ({UNREADY})"},
            width=12,
            alerts=("LLMPodStartSlow",),
            look="A line that ends is a pod that became ready, or was removed.",
        ),
        Graph(
            "Why containers wait",
            "short",
            {"{{pod}} {{reason}}": f"max by (pod, reason) ({metrics.WAITING_REASON}{{{PODS}}}) > 0"},
            width=12,
            alerts=("LLMWeightsMissing", "LLMImagePullFailing"),
            look="PodInitializing: weights. ContainerCreating: the image. ImagePullBackOff or CrashLoopBackOff: "
            "it will not start by itself.",
        ),
        Graph(
            "Received by pods",
            "Bps",
            {"{{pod}}": f"sum by (pod) (rate({metrics.RECEIVED}{{{PODS}}}[1m]))"},
            width=12,
            look="Weights from S3. 2 GB/s or more is right for a p4d.",
        ),
        Graph(
            "Memory of starting pods",
            "bytes",
            {"{{pod}}": f'max by (pod) ({metrics.MEMORY_WORKING_SET}{{{PODS},container="server"}})'},
            width=12,
            look="Rises while weights are read, then falls: page cache. Flat and low for minutes: it waits.",
        ),
    ],
}
COLD_START = Board(
    UID,
    "LLM cold start",
    "From a pod's creation to its first request: which phase takes the time.",
    ROWS,
    services_of=metrics.RUNNING,
)
