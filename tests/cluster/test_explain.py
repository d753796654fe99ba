"""`eks-llm explain` against real Kubernetes and KEDA: each state is brought about, and then has to be recognised."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from eks_llm.cli import app
from embedded.api import Api
from embedded.controlplane import ControlPlane
from embedded.keda import Keda
from tests.cluster.metrics_server import Metrics, metrics_server
from tests.cluster.test_controlplane import gpu_deployment
from tests.cluster.test_keda import scaled_object

pytestmark = pytest.mark.cluster


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    with metrics_server() as metrics:
        yield metrics


def explain(plane: ControlPlane, namespace: str, *options: str, service: str = "gpu") -> Any:
    where = ["--kubeconfig", str(plane.kubeconfig), "--namespace", namespace]
    return CliRunner().invoke(app, ["explain", service, *where, *options])


def test_the_states_of_a_service(plane: ControlPlane, keda: Keda, api: Api, namespace: str, metrics: Metrics) -> None:
    """Three nodes of 8 GPUs, replicas of 8; 5 requests per replica are the target, and 5 replicas the maximum."""

    def becomes(kind: str) -> dict[str, Any]:
        said: list[str] = []

        def found() -> dict[str, Any] | None:
            done = explain(plane, namespace, "--format", "json")
            assert done.exit_code == 0, done.stderr
            answer = json.loads(done.stdout)
            said.append(answer["verdict"])
            return answer if answer["kind"] == kind else None

        return api.wait(f"{kind} (seen: {said})", found)

    metrics.values["waiting"] = 5
    api.apply(gpu_deployment(namespace, replicas=1))
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 3600}}
    api.apply(
        scaled_object(
            namespace,
            metrics.url,
            maxReplicaCount=5,
            pollingInterval=1,
            fallback={"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicasIfHigher"},
            advanced={"horizontalPodAutoscalerConfig": {"behavior": behavior}},
        )
    )
    assert becomes("steady")["verdict"] == "It has 1 replica because demand (5 / 5 = 1.00) asks for just that."

    metrics.values["waiting"] = 14  # ceil(14 / 5) = 3, and 14 / 15 = 0.93 is within tolerance: it stays there
    api.wait("3 replicas", lambda: api.get("apps/v1", "Deployment", "gpu", namespace)["spec"]["replicas"] == 3)
    assert becomes("steady")["recommended"] == 3

    metrics.values["waiting"] = 5  # one would do, but the window is an hour
    held = becomes("held-down")
    assert (held["recommended"], held["seen"]["replicas"]) == (1, 3)

    metrics.values["waiting"] = 25  # five are wanted, and the GPUs are enough for three
    short = becomes("gpu-budget")
    assert short["seen"]["replicas"] == 5
    assert (short["seen"]["pool"]["gpus"], short["seen"]["pool"]["requested"]) == (24, 24)
    assert "2 of its 5 replicas wait for nvidia.com/gpu: pool a100 has 24 GPUs on 3 nodes" in short["verdict"]

    text = explain(plane, namespace).stdout
    assert "gpu in" in text
    assert text.rstrip().endswith(short["verdict"])

    api.patch(
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": "gpu", "namespace": namespace},
            "spec": {"maxReplicaCount": 3},
        }
    )
    metrics.values["waiting"] = 40
    assert becomes("at-max")["verdict"] == (
        "It stays at its maximum of 3 replicas though demand (40 / 5 = 8.00) asks for 8."
    )

    metrics.values["waiting"] = None
    assert "fallback stands for 3 replicas" in becomes("fallback")["verdict"]

    api.patch(
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {
                "name": "gpu",
                "namespace": namespace,
                "annotations": {"autoscaling.keda.sh/paused": "true"},
            },
        }
    )
    assert "scaling is paused (autoscaling.keda.sh/paused: true)" in becomes("paused")["verdict"]


def test_a_service_that_is_not_there(plane: ControlPlane, keda: Keda, namespace: str) -> None:
    done = explain(plane, namespace, service="llama")
    assert done.exit_code == 1
    assert done.stderr.strip() == f"error no service 'llama' in namespace {namespace}; no service there is scaled"
