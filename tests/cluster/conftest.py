"""Fixtures of the cluster level: a real control plane, KEDA and Prometheus on this machine, one for the session."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from eks_llm.serving.service import Runtime
from embedded import images, serving_env, weights
from embedded.api import Api
from embedded.controlplane import PARTS, ControlPlane
from embedded.keda import PARTS as KEDA_PARTS
from embedded.keda import Keda
from embedded.keda import custom_resource_definitions as keda_crds
from embedded.kube_state_metrics import PROCESS as KUBE_STATE_METRICS
from embedded.kube_state_metrics import KubeStateMetrics
from embedded.nodes import gpu_node, kwok_stages
from embedded.process import recorded, stop
from embedded.prometheus import Prometheus
from embedded.prometheus import custom_resource_definitions as prometheus_crds
from embedded.runner import PodRunner
from embedded.services import ServiceProxy
from embedded.tools import provide_all
from tests.cluster.planes import Fetch, control_plane, install_crds
from tests.cluster.service import NAME, NAMESPACE, WEIGHTS, complete, service

OWN_PLATFORM = ("test_faults.py", "test_local_stack.py", "test_up.py", "test_platform.py")
"""Files with platforms of their own, the longest first. The others share a control plane."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs a control plane")
    if not hasattr(config, "workerinput"):  # then `pytest_unconfigure` does its work
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the platforms of workers that had no time for it: after Ctrl-C they have seconds."""
    if hasattr(config, "workerinput"):
        return
    folder: Path = config._tmp_path_factory.getbasetemp()  # pyright: ignore[reportAttributeAccessIssue]
    for home in {record.parents[1] for record in folder.rglob("run/*.json")}:
        stop(home, recorded(home))


class ByPlatform(LoadScopeScheduling):
    """Shares tests out between workers: what shares a control plane to one, each file with its own to the next free."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0].rpartition("/")[2]
        return file if file in OWN_PLATFORM else "shared control plane"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest is begun first."""
    places = {name: place for place, name in enumerate(OWN_PLATFORM, start=1)}
    items.sort(key=lambda item: places.get(item.path.name, 0))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPlatform:
    config.option.loadscopereorder = False  # by the number of tests
    return ByPlatform(config, log)


# What is fetched and built once --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fetch() -> Fetch:
    """Makes sure that tools, by name, and other things are there. Only tests that need them wait for them.

    The way out is open here; for tests it leads to a proxy that does not exist.
    """
    outside = {name: os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy")}

    def fetch(*wanted: str | Callable[[], object]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in outside.items():
                patch.delenv(name, raising=False) if value is None else patch.setenv(name, value)
            provide_all([item for item in wanted if isinstance(item, str)])
            for item in wanted:
                if not isinstance(item, str):
                    item()

    return fetch


@pytest.fixture(scope="session")
def crd_files(fetch: Fetch) -> None:
    fetch(keda_crds, prometheus_crds)


@pytest.fixture(scope="session")
def everything(fetch: Fetch, crd_files: None) -> None:
    """What a whole platform and a deployment on it need."""
    fetch(*PARTS, "kwok", kwok_stages, *KEDA_PARTS, "prometheus", KUBE_STATE_METRICS, serving_env.ensure)
    fetch("pulumi", "pulumi-resource-kubernetes")


@pytest.fixture(scope="session", autouse=True)
def somebody_elses_cluster(fetch: Fetch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubeconfig in the environment, as users have one. Nothing may read or change it: it is not even valid."""
    file = tmp_path_factory.mktemp("real") / "kubeconfig"
    file.write_text("production: hands off")
    file.chmod(0o400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(file))
        patch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing of ours may go through a proxy
        yield file


# A platform, part by part --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def plane(fetch: Fetch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    minor = os.environ.get("EKS_LLM_KUBERNETES", "")
    fetch("etcd", *(f"{name}-{minor}" if minor else name for name in PARTS if name != "etcd"), "kwok", kwok_stages)
    with control_plane(tmp_path_factory.mktemp("plane"), minor) as plane:
        yield plane


@pytest.fixture(scope="session")
def api(plane: ControlPlane) -> Api:
    return Api(plane.kubeconfig)


@pytest.fixture(scope="session")
def prometheus(plane: ControlPlane, fetch: Fetch, crd_files: None) -> Iterator[Prometheus]:
    fetch("prometheus")
    prometheus = Prometheus(plane)
    prometheus.start(print)
    yield prometheus
    prometheus.stop()


@pytest.fixture(scope="session")
def keda(plane: ControlPlane, fetch: Fetch, crd_files: None) -> Iterator[Keda]:
    fetch(*KEDA_PARTS)
    keda = Keda(plane)
    keda.start(print)
    yield keda
    keda.stop()


@pytest.fixture(scope="session")
def kube_state_metrics(plane: ControlPlane, fetch: Fetch) -> Iterator[KubeStateMetrics]:
    fetch(KUBE_STATE_METRICS)
    exporter = KubeStateMetrics(plane)
    exporter.start(print)
    yield exporter
    exporter.stop()


@pytest.fixture
def namespace(api: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = request.node.name.replace("_", "-").partition("[")[0][:60].strip("-")
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    api.create(manifest)
    yield name
    api.delete(manifest)


@pytest.fixture(scope="session")
def crds(api: Api, crd_files: None) -> None:
    install_crds(api)


@pytest.fixture(scope="session")
def runner(plane: ControlPlane, api: Api) -> Iterator[PodRunner]:
    """The pod runner with one local node, in a pool of its own. Its Services are reachable."""
    node = gpu_node("local", "p4d.24xlarge", "us-west-2b", 0, fake=False)
    images.save(plane.home / "images.json", {})
    runner, proxy = PodRunner(plane), ServiceProxy(plane)
    runner.start([node])
    proxy.start()
    yield runner
    proxy.stop()
    runner.stop()
    api.delete(node)


@pytest.fixture(scope="session")
def serving(fetch: Fetch) -> serving_env.ServingEnvironment:
    """Where Triton and vLLM are."""
    fetch(serving_env.ensure)
    return serving_env.ensure()


@pytest.fixture(scope="session")
def bucket(runner: PodRunner, plane: ControlPlane, serving: serving_env.ServingEnvironment) -> None:
    """The weights, in a folder that stands in for the bucket, and what stands in for the images."""
    weights.make_tiny(serving, plane.home / "buckets" / WEIGHTS.removeprefix("s3://"))
    images.save(plane.home / "images.json", images.stands(serving, plane.home / "buckets"))
    runner.stop()
    runner.start(json.loads((plane.home / "nodes.json").read_text()))


@pytest.fixture(scope="session", params=[Runtime.TRITON, Runtime.OPENAI], ids=lambda runtime: runtime.value)
def deployed(
    request: pytest.FixtureRequest, bucket: None, api: Api, keda: Keda, prometheus: Prometheus
) -> Iterator[Runtime]:
    """A service with one of the runtimes, from its first answer on."""
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    objects = service(request.param, prometheus.url)
    for manifest in objects:
        api.apply(manifest)

    def available() -> int:
        for pod in api.list("v1", "Pod", NAMESPACE):
            for status in pod["status"].get("containerStatuses", []):
                assert status["restartCount"] == 0, status
        return api.get("apps/v1", "Deployment", NAME, NAMESPACE)["status"].get("availableReplicas", 0)

    api.wait("the service", available, timeout=900)
    api.wait("the Service's listener", lambda: complete(api, request.param))
    yield request.param
    for manifest in reversed(objects):
        api.delete(manifest)
    api.wait("pods gone", lambda: not api.list("v1", "Pod", NAMESPACE))


@pytest.fixture(scope="session")
def model(serving: serving_env.ServingEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's weights, in a folder of a bucket."""
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    weights.make_tiny(serving, folder)
    return folder
