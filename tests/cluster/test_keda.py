"""Real KEDA and the real HPA controller: from a metric to the number of replicas."""

from collections.abc import Iterator

import pytest

from embedded.api import Api, ApiException, Manifest
from embedded.keda import Keda
from tests.cluster.metrics_server import Metrics, metrics_server
from tests.cluster.test_controlplane import gpu_deployment

pytestmark = pytest.mark.cluster


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    with metrics_server() as metrics:
        yield metrics


def scaled_object(namespace: str, url: str, **more: object) -> Manifest:
    """The shape of the stacks' own, without their waiting times."""
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 0}}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "gpu", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"name": "gpu"},
            "minReplicaCount": 1,
            "maxReplicaCount": 3,
            "pollingInterval": 15,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [
                {
                    "type": "prometheus",
                    "name": "demand",
                    "metricType": "AverageValue",
                    "metadata": {
                        "serverAddress": url,
                        "query": "sum(waiting)",
                        "threshold": "5",
                        "ignoreNullValues": "false",
                    },
                }
            ],
            **more,
        },
    }


def hpa_status(api: Api, namespace: str) -> Manifest:
    return api.get("autoscaling/v2", "HorizontalPodAutoscaler", "keda-hpa-gpu", namespace)["status"]


def steady(api: Api, namespace: str, replicas: int) -> None:
    def as_expected() -> bool:
        status = hpa_status(api, namespace)
        return status.get("desiredReplicas") == replicas and bool(status.get("currentMetrics"))

    api.wait(f"{replicas} replicas", as_expected)


def condition(api: Api, namespace: str, kind: str) -> str:
    found = api.get("keda.sh/v1alpha1", "ScaledObject", "gpu", namespace).get("status", {}).get("conditions", [])
    return next((item["status"] for item in found if item["type"] == kind), "")


def test_a_load_step_raises_and_its_end_lowers_the_replicas(
    keda: Keda, api: Api, namespace: str, metrics: Metrics
) -> None:
    metrics.values["waiting"] = 1
    api.apply(gpu_deployment(namespace, replicas=1))
    api.apply(scaled_object(namespace, metrics.url))
    steady(api, namespace, 1)
    metrics.values["waiting"] = 14  # 14 waiting, 5 per replica: three
    steady(api, namespace, 3)
    api.wait(
        "three pods run",
        lambda: api.get("apps/v1", "Deployment", "gpu", namespace)["status"].get("readyReplicas") == 3,
    )
    metrics.values["waiting"] = 0
    steady(api, namespace, 1)


def test_a_lost_signal_keeps_the_replicas(keda: Keda, api: Api, namespace: str, metrics: Metrics) -> None:
    """An empty answer is an error and no zero: the fallback holds what runs."""
    metrics.values["waiting"] = 9
    api.apply(gpu_deployment(namespace, replicas=1))
    fallback = {"failureThreshold": 2, "replicas": 1, "behavior": "currentReplicasIfHigher"}
    api.apply(scaled_object(namespace, metrics.url, pollingInterval=1, fallback=fallback))
    steady(api, namespace, 2)
    metrics.values["waiting"] = None
    api.wait("the fallback", lambda: condition(api, namespace, "Fallback") == "True")
    enough = len(metrics.times) + 10

    def asked() -> bool:
        assert hpa_status(api, namespace)["desiredReplicas"] == 2
        return len(metrics.times) >= enough

    api.wait("ten more questions of KEDA", asked)


def test_the_admission_webhook_refuses_a_second_scaler(keda: Keda, api: Api, namespace: str) -> None:
    api.apply(gpu_deployment(namespace, replicas=1))
    api.apply(scaled_object(namespace, "http://127.0.0.1:1"))
    second = scaled_object(namespace, "http://127.0.0.1:1")
    second["metadata"]["name"] = "second"
    with pytest.raises(ApiException, match="is already managed by the ScaledObject 'gpu'"):
        api.apply(second)


def test_a_scaled_object_becomes_ready(keda: Keda, api: Api, namespace: str, metrics: Metrics) -> None:
    """What Pulumi waits for, by the annotation `pulumi.com/waitFor`."""
    metrics.values["waiting"] = 1
    api.apply(gpu_deployment(namespace, replicas=1))
    api.apply(scaled_object(namespace, metrics.url))
    api.wait("Ready", lambda: condition(api, namespace, "Ready") == "True")
