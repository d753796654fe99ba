"""A service as the Kubernetes API and Prometheus describe it, in the shape of answers of Kubernetes 1.36 and KEDA 2.20.

Numbers are a test's own; everything else stands as a real cluster wrote it.
"""

import datetime
from collections.abc import Callable
from typing import Any

from eks_llm.explain.cluster import ClusterError
from eks_llm.explain.observe import Source
from eks_llm.explain.prometheus import PrometheusError

NOW = datetime.datetime(2026, 11, 30, 12, 0, 0, tzinfo=datetime.UTC).timestamp()
"""A Monday, noon."""
URL = "http://prometheus-operated.monitoring.svc:9090"
NAMESPACED = "/namespaces/inference"


def stamp(seconds_ago: float) -> str:
    return datetime.datetime.fromtimestamp(NOW - seconds_ago, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def scaled_object(**changes: Any) -> dict[str, Any]:
    """Demand at 10 per replica and KV use at 80 points per replica, 1 to 8 replicas."""

    def trigger(name: str, query: str, threshold: str) -> dict[str, Any]:
        metadata = {"serverAddress": URL, "query": query, "threshold": threshold, "ignoreNullValues": "false"}
        return {"type": "prometheus", "name": name, "metricType": "AverageValue", "metadata": metadata}

    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama"},
        "minReplicaCount": 1,
        "maxReplicaCount": 8,
        "fallback": {"failureThreshold": 8, "replicas": 1, "behavior": "currentReplicasIfHigher"},
        "triggers": [trigger("demand", "demand", "10"), trigger("kv-cache", "kv", "80")],
    }
    status = {
        "hpaName": "keda-hpa-llama",
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "ScaledObjectReady", "message": "ScaledObject is ready"},
            {"type": "Fallback", "status": "False", "reason": "NoFallbackFound"},
        ],
        "health": {"s0-prometheus": {"numberOfFailures": 0, "status": "Happy"}},
    }
    return {
        "metadata": {"name": "llama", "namespace": "inference", "annotations": changes.pop("annotations", {})},
        "spec": {**spec, **changes},
        "status": status,
    }


def hpa(replicas: int, **changes: Any) -> dict[str, Any]:
    def metric(name: str, target: str) -> dict[str, Any]:
        target_ref = {"type": "AverageValue", "averageValue": target}
        return {"type": "External", "external": {"metric": {"name": name}, "target": target_ref}}

    behavior = {
        "scaleUp": {
            "stabilizationWindowSeconds": 30,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 2, "periodSeconds": 240}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 600,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 120}],
        },
    }
    spec = {
        "minReplicas": 1,
        "maxReplicas": 8,
        # The API server may hand them out in another order than KEDA's.
        "metrics": [metric("s1-prometheus", "80"), metric("s0-prometheus", "10")],
        "behavior": behavior,
    }
    return {
        "metadata": {"name": "keda-hpa-llama"},
        "spec": {**spec, **changes},
        "status": {
            "currentReplicas": replicas,
            "conditions": [{"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}],
        },
    }


def deployment(replicas: int, ready: int) -> dict[str, Any]:
    container = {"name": "server", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    return {
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app.kubernetes.io/name": "llama"}},
            "template": {"spec": {"nodeSelector": {"eks-llm.dev/pool": "a100"}, "containers": [container]}},
        },
        "status": {"readyReplicas": ready},
    }


def pod(number: int, state: str = "ready", node: str = "node-0") -> dict[str, Any]:
    ready = "True" if state == "ready" else "False"
    conditions = [{"type": "Ready", "status": ready}]
    if state == "unschedulable":
        message = (
            "0/4 nodes are available: 2 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node "
            "affinity/selector. preemption: 0/4 nodes are available: 2 No preemption victims found for incoming pod."
        )
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message})
    spec: dict[str, Any] = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]}
    if state != "unschedulable":
        spec["nodeName"] = node
    waiting = {"waiting": {"reason": state}} if state not in ("ready", "unschedulable", "starting") else {"running": {}}
    return {
        "metadata": {"name": f"llama-{number}", "namespace": "inference", "creationTimestamp": stamp(200 - number)},
        "spec": spec,
        "status": {"conditions": conditions, "containerStatuses": [{"state": waiting}]},
    }


def node(name: str, gpus: int = 8) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}}


def rescale(seconds_ago: float, size: int) -> dict[str, Any]:
    message = f"New size: {size}; reason: external metric s0-prometheus above target"
    return {"reason": "SuccessfulRescale", "message": message, "lastTimestamp": stamp(seconds_ago)}


def scale_up_refused(name: str) -> dict[str, Any]:
    return {
        "reason": "NotTriggerScaleUp",
        "message": "pod didn't trigger scale-up: 1 max node group size reached",
        "lastTimestamp": stamp(60),
        "involvedObject": {"kind": "Pod", "name": name},
    }


class Recorded:
    """A cluster whose answers are given, and a Prometheus whose queries are functions of seconds before now."""

    def __init__(self, replicas: int, ready: int | None = None, **scaled: Any) -> None:
        ready = replicas if ready is None else ready
        self.scaled = scaled_object(**scaled)
        self.hpa: dict[str, Any] | None = hpa(replicas)
        self.deployment = deployment(replicas, ready)
        self.pods = [pod(number) for number in range(ready)]
        self.nodes = [node("node-0"), node("node-1")]
        self.rescales: list[dict[str, Any]] = []
        self.pod_events: list[dict[str, Any]] = []
        self.series: dict[str, Callable[[float], float | None]] = {
            "demand": lambda _: 10.0 * replicas,
            "kv": lambda _: 20.0 * replicas,
        }
        self.answers: dict[str, list[Any]] = {}
        """Results of instant queries that a test gives word for word."""
        self.refused: dict[str, ClusterError] = {}

    def source(self) -> Source:
        return Source(self.read, lambda _: self.prometheus)

    def read(self, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        for part, error in self.refused.items():
            if part in path:
                raise error
        if path.endswith("/events"):
            of_pods = "kind=Pod" in parameters["fieldSelector"]
            return {"items": self.pod_events if of_pods else self.rescales}
        if "horizontalpodautoscalers/" in path and self.hpa is None:
            raise ClusterError("not found", 404)
        return {
            f"/apis/keda.sh/v1alpha1{NAMESPACED}/scaledobjects": {"items": [self.scaled]},
            f"/apis/autoscaling/v2{NAMESPACED}/horizontalpodautoscalers/keda-hpa-llama": self.hpa or {},
            f"/apis/apps/v1{NAMESPACED}/deployments/llama": self.deployment,
            f"/api/v1{NAMESPACED}/pods": {"items": self.pods},
            "/api/v1/nodes": {"items": self.nodes},
            "/api/v1/pods": {"items": self.pods},
        }[path]

    def prometheus(self, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        query = parameters["query"]
        if query not in self.series:
            raise PrometheusError(f"no Prometheus at {URL}: Connection refused")
        past = self.series[query]
        if path == "/api/v1/query":
            value = past(0)
            result = [] if value is None else [{"metric": {}, "value": [NOW, str(value)]}]
            return {"status": "success", "data": {"resultType": "vector", "result": self.answers.get(query, result)}}
        start, end, step = (int(parameters[key]) for key in ("start", "end", "step"))
        points = [(time, past(NOW - time)) for time in range(start, end + 1, step)]
        values = [[time, str(value)] for time, value in points if value is not None]
        result = [{"metric": {}, "values": values}] if values else []
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}
