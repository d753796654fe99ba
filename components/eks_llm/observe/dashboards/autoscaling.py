"""The dashboard that says why a service has the replicas it has."""

from .. import metrics
from .panels import CHOSEN, Board, Figure, Graph, Rows

UID = "llm-autoscaling"

HPA = 'namespace=~"$namespace",horizontalpodautoscaler=~"keda-hpa-($service)"'
SCALED_OBJECT = 'scaledObject=~"$service"'
"""KEDA's own namespace label is renamed on scraping; names of services are unique in a cluster here."""


DEPLOYMENT = 'namespace=~"$namespace",deployment=~"$service"'


def _by_service(metric: str, of: str = "") -> str:
    """The maximum of an HPA's series by `service`, the name that KEDA puts behind its prefix."""
    named = f'label_replace({metric}{{{HPA}{of}}}, "service", "$1", "horizontalpodautoscaler", "keda-hpa-(.+)")'
    return f"max by (service) ({named})"


SIGNALS = f"max by (horizontalpodautoscaler, metric_name) ({metrics.HPA_SIGNAL}{{{HPA}}})"
TARGETS = f"max by (horizontalpodautoscaler, metric_name) ({metrics.HPA_TARGET}{{{HPA}}})"
PENDING = (
    f'{metrics.POD_PHASE}{{namespace=~"$namespace",phase="Pending"}} == 1 and on (namespace, pod) '
    f'{metrics.POD_REQUESTS}{{namespace=~"$namespace",{metrics.OF_GPUS}}}'
)
ROWS: Rows = {
    "Now": [
        Figure(
            "Pending GPU pods",
            "short",
            f"count({PENDING}) or vector(0)",
            worse=(1, 2),
            look="Pods that wait for a node, or start. More than a pod's start: no capacity, see Nodes below.",
        ),
        Figure(
            "Services on the fallback",
            "short",
            f'sum({metrics.SCALED_OBJECT_CONDITION}{{type="Fallback"}}) or vector(0)',
            worse=(1, 1),
            look="KEDA cannot read a signal, and keeps the replicas there are.",
            alerts=("LLMScalerFallback",),
        ),
        Figure(
            "Services at their maximum",
            "short",
            f"count(max by (namespace, horizontalpodautoscaler) ({metrics.HPA_DESIRED}{{{HPA}}}) >= "
            f"max by (namespace, horizontalpodautoscaler) ({metrics.HPA_MAX}{{{HPA}}})) or vector(0)",
            look="Fine with nothing waiting; else raise scaling.max and the pool.",
            alerts=("LLMAtMaxWithQueue", "LLMReplicasAtMax"),
        ),
        Figure(
            "Queries that fail",
            "reqps",
            f'sum(rate({metrics.KEDA_HTTP_REQUESTS}{{status_code!~"2.."}}[5m])) or vector(0)',
            worse=(0.01, 0.1),
            look="From KEDA to Prometheus. Goes on while the fallback hides the error elsewhere.",
            alerts=("LLMScalerFailing", "LLMScalerErrors"),
        ),
        Figure(
            "Paused services",
            "short",
            f"sum({metrics.KEDA_PAUSED}) or vector(0)",
            worse=(1, 2),
            look="Paused by the annotation autoscaling.keda.sh/paused: somebody has to end it.",
            alerts=("LLMScalerPaused",),
        ),
        Figure(
            "Pods without a node",
            "short",
            f"sum({metrics.AUTOSCALER_UNSCHEDULABLE}) or vector(0)",
            worse=(1, 2),
            look="As cluster-autoscaler counts them: it should be adding nodes for them.",
        ),
    ],
    "Signal and replicas": [
        Graph(
            "Signal against its threshold",
            "percentunit",
            {"{{horizontalpodautoscaler}} {{metric_name}}": f"{SIGNALS} / {TARGETS}"},
            limit=1,
            look="Per replica, as the HPA reads it: s0 is demand, s1 the KV cache, s2 the front door. "
            "Above 110 % it adds replicas, below 90 % it takes some; the largest signal wins.",
        ),
        Graph(
            "Running and waiting requests",
            "short",
            {
                "{{service}}": f"sum by (service) ({metrics.RUNNING}{{{CHOSEN}}}) + "
                f"sum by (service) ({metrics.WAITING}{{{CHOSEN}}})"
            },
            look="The demand that scaling follows.",
        ),
        Graph(
            "What KEDA read",
            "short",
            {"{{scaledObject}} {{scaler}}": f"max by (scaledObject, scaler) ({metrics.KEDA_VALUE}{{{SCALED_OBJECT}}})"},
            look="The same, as KEDA saw it: demand in requests, kv-cache in percent points over all pods. A "
            "gap or a flat line while demand moves: KEDA is blind.",
            alerts=("LLMAutoscalerBlind",),
        ),
        Graph(
            "Desired replicas",
            "short",
            {"{{service}}": _by_service(metrics.HPA_DESIRED)},
            look="Steps up are limited to a wave per start of a pod, steps down to one pod at a time after the "
            "window has passed.",
        ),
        Graph(
            "Ready replicas",
            "short",
            {"{{deployment}}": f"max by (deployment) ({metrics.DEPLOYMENT_READY}{{{DEPLOYMENT}}})"},
            look="Follows desired by a pod's start, plus a node's where no GPU was free.",
        ),
        Graph(
            "Missing replicas",
            "short",
            {
                "{{service}}": f"{_by_service(metrics.HPA_DESIRED)} - max by (service) (label_replace("
                f'{metrics.DEPLOYMENT_READY}{{{DEPLOYMENT}}}, "service", "$1", "deployment", "(.+)"))'
            },
            stacked=True,
            alerts=("LLMReplicasMissing",),
            look="Desired, not yet ready. For longer than a pod's start: see the dashboard Cold start.",
        ),
        Graph(
            "Free to the maximum",
            "short",
            {"{{service}}": f"{_by_service(metrics.HPA_MAX)} - {_by_service(metrics.HPA_DESIRED)}"},
            alerts=("LLMAtMaxWithQueue",),
            look="Replicas that may still be added. 0 with requests waiting: raise scaling.max.",
        ),
        Graph(
            "What the HPA says of itself",
            "short",
            {
                "{{horizontalpodautoscaler}} {{condition}}": "max by (horizontalpodautoscaler, condition) "
                f'({metrics.HPA_CONDITION}{{{HPA},status="false",condition=~"AbleToScale|ScalingActive"}})'
            },
            most=1,
            alerts=("LLMScalingInactive",),
            look="1: ScalingActive is false when no signal can be read, AbleToScale when the target cannot be "
            "changed. `kubectl describe hpa` has the message.",
        ),
        Graph(
            "Pending GPU pods",
            "short",
            {
                "waiting for a node or starting": f"count({PENDING}) or vector(0)",
                "unschedulable": f'count({metrics.POD_UNSCHEDULABLE}{{namespace=~"$namespace"}}) or vector(0)',
            },
            look="unschedulable: no node has the GPUs free; cluster-autoscaler must add one.",
        ),
    ],
    "KEDA": [
        Graph(
            "Queries by status",
            "reqps",
            {
                "{{scaled_resource}} {{status_code}}": "sum by (scaled_resource, status_code) "
                f'(rate({metrics.KEDA_HTTP_REQUESTS}{{scaled_resource=~"$service"}}[5m]))'
            },
            alerts=("LLMScalerFailing",),
            look="Only 200 is good. `error`: no connection to Prometheus.",
        ),
        Graph(
            "Errors and empty answers per second",
            "short",
            {
                "{{scaledObject}} errors": "sum by (scaledObject) "
                f"(rate({metrics.KEDA_ERRORS}{{{SCALED_OBJECT}}}[5m]))",
                "{{scaledResource}} empty": "sum by (scaledResource) "
                f'(rate({metrics.KEDA_EMPTY}{{scaledResource=~"$service"}}[5m]))',
            },
            look="Empty: the query has no series, so no pod is scraped. Errors stop once the fallback is active.",
            alerts=("LLMAutoscalerBlind",),
        ),
        Graph(
            "Time of a query",
            "s",
            {
                "{{scaledObject}} {{scaler}}": "max by (scaledObject, scaler) "
                f"({metrics.KEDA_LATENCY}{{{SCALED_OBJECT}}})"
            },
            limit=3,
            look="KEDA gives up after 3 s (the red line): Prometheus is overloaded.",
        ),
        Graph(
            "Fallback",
            "short",
            {"{{namespace}} {{scaledobject}}": f'{metrics.SCALED_OBJECT_CONDITION}{{type="Fallback"}}'},
            most=1,
            alerts=("LLMScalerFallback",),
            look="1 while KEDA holds the replicas because a signal is missing.",
        ),
    ],
    "Nodes": [
        Graph(
            "GPU nodes added and removed in 10 minutes",
            "short",
            {
                "added": f"sum({metrics.events(metrics.AUTOSCALER_ADDED, '10m')})",
                "removed": f"sum({metrics.events(metrics.AUTOSCALER_REMOVED, '10m')})",
            },
            look="Added and removed in turn: the window of scaling down is too short for a node's start.",
        ),
        Graph(
            "Failed scale-ups in an hour",
            "short",
            {"{{reason}}": f"sum by (reason) ({metrics.events(metrics.AUTOSCALER_FAILED, '1h')})"},
            alerts=("NodeScaleUpFailing",),
            look="AWS has no capacity, or the quota is used up: the Auto Scaling group's activity says which.",
        ),
    ],
}
AUTOSCALING = Board(
    UID,
    "LLM autoscaling",
    "Why a service has the replicas it has: signals against thresholds, KEDA, the HPA, pods and nodes.",
    ROWS,
    services_of=metrics.RUNNING,
)
