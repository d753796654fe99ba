"""Fixtures of the cluster level: a real control plane, KEDA and Prometheus on this machine, one for the session."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from embedded import images, serving_env, weights
from embedded.api import Api
from embedded.controlplane import ControlPlane
from embedded.keda import Keda
from embedded.keda import custom_resource_definitions as keda_crds
from embedded.kube_state_metrics import KubeStateMetrics
from embedded.nodes import gpu_node, kwok_stages
from embedded.process import recorded, stop
from embedded.prometheus import Prometheus
from embedded.prometheus import custom_resource_definitions as prometheus_crds
from embedded.runner import PodRunner
from embedded.services import ServiceProxy
from embedded.tools import TOOLS, provide_all
from tests.cluster.planes import control_plane, install_crds


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
    """Shares tests out between two workers: files that have a platform of their own and mostly wait, and all others."""

    def _split_scope(self, nodeid: str) -> str:
        return "own platform" if "/test_faults.py::" in nodeid else "shared control plane"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPlatform:
    return ByPlatform(config, log)


def fetch() -> None:
    """What is fetched and built once, in front of a proxy that does not exist."""
    provide_all(list(TOOLS))
    for read in (keda_crds, prometheus_crds, kwok_stages):
        read()
    serving_env.ensure()


@pytest.fixture(scope="session", autouse=True)
def somebody_elses_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubeconfig in the environment, as users have one. Nothing may read or change it: it is not even valid."""
    fetch()
    file = tmp_path_factory.mktemp("real") / "kubeconfig"
    file.write_text("production: hands off")
    file.chmod(0o400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(file))
        patch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing of ours may go through a proxy
        yield file


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane"), os.environ.get("EKS_LLM_KUBERNETES", "")) as plane:
        yield plane


@pytest.fixture(scope="session")
def api(plane: ControlPlane) -> Api:
    return Api(plane.kubeconfig)


@pytest.fixture(scope="session")
def prometheus(plane: ControlPlane) -> Iterator[Prometheus]:
    prometheus = Prometheus(plane)
    prometheus.start(print)
    yield prometheus
    prometheus.stop()


@pytest.fixture(scope="session")
def keda(plane: ControlPlane) -> Iterator[Keda]:
    keda = Keda(plane)
    keda.start(print)
    yield keda
    keda.stop()


@pytest.fixture(scope="session")
def kube_state_metrics(plane: ControlPlane) -> Iterator[KubeStateMetrics]:
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


@pytest.fixture
def eventually(api: Api) -> Callable[..., object]:
    return api.wait


@pytest.fixture(scope="session")
def crds(api: Api) -> None:
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
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's weights, in a folder of a bucket."""
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    weights.make_tiny(serving_env.ensure(), folder)
    return folder
