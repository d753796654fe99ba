"""The schemas refuse what a strict API server refuses."""

from typing import Any

import pytest

from tests.engine.schemas import problems


def deployment(**container: Any) -> dict[str, Any]:
    labels = {"app": "llm"}
    pod = {
        "containers": [
            {
                "name": "server",
                "image": "server@sha256:0",
                "ports": [{"name": "http", "containerPort": 8000}],
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
                "resources": {"limits": {"nvidia.com/gpu": 2, "memory": "64Gi"}},
                **container,
            }
        ]
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def scaled_object(trigger: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "llm", "namespace": "serving"},
        "spec": {"scaleTargetRef": {"name": "llm"}, "triggers": [trigger]},
    }


def pod_monitor(endpoint: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "llm"},
        "spec": {"selector": {}, "podMetricsEndpoints": [endpoint]},
    }


PROMETHEUS = {"type": "prometheus", "metadata": {"query": "up", "threshold": "5"}}


@pytest.mark.parametrize(
    "manifest", [deployment(), scaled_object(PROMETHEUS), pod_monitor({"port": "metrics"})], ids=lambda m: m["kind"]
)
@pytest.mark.parametrize("kubernetes", ["1.34", "1.35"])
def test_accepts_a_valid_object(manifest: dict[str, Any], kubernetes: str) -> None:
    assert problems(manifest, kubernetes) == []


@pytest.mark.parametrize(
    ("manifest", "path", "message"),
    [
        (
            deployment(imagePullPolice="Always"),
            "$.spec.template.spec.containers[0]",
            "'imagePullPolice' was unexpected",
        ),
        (deployment(ports=[{"containerPort": "8000"}]), "ports[0].containerPort", "'8000' is not of type 'integer'"),
        (deployment(name=None), "containers[0].name", "None is not of type 'string'"),
        (scaled_object({"type": "prometheus"}), "triggers[0]", "'metadata' is a required property"),
        (scaled_object({**PROMETHEUS, "metrictype": "Value"}), "triggers[0]", "'metrictype' was unexpected"),
        (scaled_object({"type": "prometheus", "metadata": {"threshold": 5}}), "threshold", "5 is not of type 'string'"),
        (pod_monitor({"port": "metrics", "intervall": "5s"}), "podMetricsEndpoints[0]", "'intervall' was unexpected"),
        ({**pod_monitor({}), "metadata": {"label": {}}}, "$.metadata", "'label' was unexpected"),
    ],
)
def test_refuses(manifest: dict[str, Any], path: str, message: str) -> None:
    found = problems(manifest, "1.35")
    assert len(found) == 1
    assert path in found[0]
    assert message in found[0]


def test_an_api_that_a_minor_does_not_serve_is_named() -> None:
    with pytest.raises(LookupError, match=r"1\.35 does not serve apis/apps/v1beta1"):
        problems({**deployment(), "apiVersion": "apps/v1beta1"}, "1.35")
