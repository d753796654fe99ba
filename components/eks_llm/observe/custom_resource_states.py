"""What kube-state-metrics exports of custom resources: the conditions of ScaledObjects.

KEDA has no metric of a fallback. Source: kube-state-metrics, docs/metrics/extend/customresourcestate-metrics.md.
"""

from typing import Any

_CONDITIONS = {
    "type": "Gauge",
    "gauge": {
        "path": ["status", "conditions"],
        "labelsFromPath": {"type": ["type"]},
        "valueFrom": ["status"],  # True is 1; False and Unknown are 0
    },
}
_SCALED_OBJECTS = {
    "groupVersionKind": {"group": "keda.sh", "version": "v1alpha1", "kind": "ScaledObject"},
    "labelsFromPath": {"namespace": ["metadata", "namespace"], "scaledobject": ["metadata", "name"]},
    "metrics": [{"name": "scaledobject_status_condition", "help": "Conditions of a ScaledObject", "each": _CONDITIONS}],
}
CONFIGURATION: dict[str, Any] = {"kind": "CustomResourceStateMetrics", "spec": {"resources": [_SCALED_OBJECTS]}}
"""kube-state-metrics' own configuration. It makes `metrics.SCALED_OBJECT_CONDITION`."""


def chart_values() -> dict[str, Any]:
    """Values of kube-state-metrics' chart that bring it about, with the rights that it takes."""
    reads = (("keda.sh", "scaledobjects"), ("apiextensions.k8s.io", "customresourcedefinitions"))
    rules = [{"apiGroups": [group], "resources": [kind], "verbs": ["list", "watch"]} for group, kind in reads]
    return {"customResourceState": {"enabled": True, "config": CONFIGURATION}, "rbac": {"extraRules": rules}}
