"""The real Pulumi engine with the real Kubernetes provider: up, no change, an update that rolls pods, destroy."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from pulumi import automation

from eks_llm.serving.service import Runtime
from embedded.api import Api, NotFoundError
from embedded.controlplane import ControlPlane
from embedded.keda import Keda
from embedded.process import PATIENCE
from embedded.tools import provide
from tests.cluster.faults import free_scaler, killed
from tests.cluster.metrics_server import Metrics, metrics_server
from tests.cluster.planes import Fetch
from tests.cluster.service import NAME, inference_service

pytestmark = pytest.mark.cluster

NAMESPACE = "inference-pulumi"


@pytest.fixture(scope="module")
def metrics() -> Iterator[Metrics]:
    """In place of Prometheus: the pods of KWOK nodes have no metrics."""
    with metrics_server() as metrics:
        metrics.values[""] = 1  # the answer to every query
        yield metrics


@pytest.fixture(scope="module")
def environment(fetch: Fetch, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pinned CLI and provider first on PATH, state in a folder, nothing fetched."""
    tools = ("pulumi", "pulumi-resource-kubernetes")
    fetch(*tools)
    folders = [str(provide(name).parent) for name in tools]
    state = tmp_path_factory.mktemp("pulumi")
    return {
        "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
        "PULUMI_BACKEND_URL": state.as_uri(),
        "PULUMI_HOME": str(state / "home"),
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


class Deployment:
    """A stack of one service on the pool of KWOK nodes."""

    def __init__(self, plane: ControlPlane, metrics: Metrics, environment: dict[str, str]) -> None:
        self.max_num_seqs = 8

        def program() -> None:
            provider = k8s.Provider("local", kubeconfig=str(plane.kubeconfig), enable_server_side_apply=True)
            namespace = k8s.core.v1.Namespace(
                "namespace", metadata={"name": NAMESPACE}, opts=pulumi.ResourceOptions(provider=provider)
            )
            engine = {"max_model_len": 256, "max_num_seqs": self.max_num_seqs, "frontends": 1}
            opts = pulumi.ResourceOptions(providers=[provider], depends_on=[namespace])
            inference_service(Runtime.TRITON, metrics.url, namespace=NAMESPACE, pool="a100", engine=engine, opts=opts)

        settings = automation.ProjectSettings(name="cluster-test", runtime="python")
        options = automation.LocalWorkspaceOptions(env_vars=environment, project_settings=settings)
        # The CLI is looked for on PATH of this process.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", environment["PATH"])
            self.stack = automation.create_or_select_stack("local", "cluster-test", program, opts=options)

    def up(self) -> dict[Any, int]:
        """Number of resources by what happened to them."""
        return dict(self.stack.up(on_output=print).summary.resource_changes or {})


def test_up_no_change_update_destroy(
    plane: ControlPlane, api: Api, keda: Keda, crds: None, metrics: Metrics, environment: dict[str, str]
) -> None:
    deployment = Deployment(plane, metrics, environment)
    first = deployment.up()
    assert set(first) == {"create"}
    assert api.get("apps/v1", "Deployment", NAME, NAMESPACE)["status"]["availableReplicas"] == 1

    assert deployment.up() == {"same": first["create"]}

    before = {pod["metadata"]["uid"] for pod in api.list("v1", "Pod", NAMESPACE)}
    deployment.max_num_seqs = 16
    assert set(deployment.up()) >= {"same", "update"}
    after = {pod["metadata"]["uid"] for pod in api.list("v1", "Pod", NAMESPACE) if running(pod)}
    assert after
    assert not before & after

    deployment.stack.destroy(on_output=print)
    nothing_left(api)


def test_destroy_while_keda_is_stopped(
    plane: ControlPlane, api: Api, keda: Keda, crds: None, metrics: Metrics, environment: dict[str, str]
) -> None:
    """Only KEDA frees a ScaledObject, so `destroy` waits for it, until somebody does as the runbook says."""
    deployment = Deployment(plane, metrics, environment)
    deployment.up()

    def going() -> bool:
        found = api.get("keda.sh/v1alpha1", "ScaledObject", NAME, NAMESPACE)["metadata"]
        return bool(found.get("deletionTimestamp") and found.get("finalizers"))

    with ThreadPoolExecutor() as thread, killed(api, plane.home, "keda-operator"):
        destroy = thread.submit(deployment.stack.destroy, on_output=print)
        api.wait("the ScaledObject's end to be asked for", going)
        time.sleep(5)
        assert going()
        assert not destroy.done()
        free_scaler(api, NAMESPACE)
        destroy.result(timeout=PATIENCE)
        nothing_left(api)


def nothing_left(api: Api) -> None:
    with pytest.raises(NotFoundError):
        api.get("v1", "Namespace", NAMESPACE)
    autoscalers = api.list("autoscaling/v2", "HorizontalPodAutoscaler")
    assert NAMESPACE not in [item["metadata"]["namespace"] for item in autoscalers]


def running(pod: dict) -> bool:
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
