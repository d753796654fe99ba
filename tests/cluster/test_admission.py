"""Every object of every stack is admitted by real API servers with the real CRDs, and the pods find their nodes: on the
newest Kubernetes and on the oldest in standard support of EKS.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from eks_llm.core.placement import POOL_LABEL
from embedded.api import Api, Manifest, NotFoundError
from embedded.controlplane import PROGRAMS
from embedded.nodes import add, gpu_node
from embedded.tools import OLDEST_KUBERNETES
from tests.cluster.planes import Fetch, control_plane, install_crds

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
STACKS = sorted(file.name.split(".")[1] for file in ROOT.glob("Pulumi.*.yaml"))
FIRST = ("Namespace", "StorageClass", "ServiceAccount", "ConfigMap", "Secret")
"""Kinds that others refer to; Pulumi orders them by their dependencies."""


@pytest.fixture(scope="module", params=["newest", OLDEST_KUBERNETES])
def cluster(
    request: pytest.FixtureRequest, fetch: Fetch, crd_files: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """The level's own control plane, then one that is older."""
    if request.param == "newest":  # or what EKS_LLM_KUBERNETES asks for
        request.getfixturevalue("crds")
        yield Api(request.getfixturevalue("plane").kubeconfig)
        return
    fetch(*(f"{program}-{request.param}" for program in PROGRAMS))
    with control_plane(tmp_path_factory.mktemp("oldest"), request.param) as plane:
        api = Api(plane.kubeconfig)
        install_crds(api)
        yield api


@pytest.fixture(scope="module", params=STACKS)
def objects(
    request: pytest.FixtureRequest, cluster: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Manifest]]:
    """What the program registers for a stack, in an order in which it can be created. Removed after its tests."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [str(Path(sys.executable).with_name("eks-llm")), "plan", request.param, "--manifests", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = [yaml.safe_load(file.read_text()) for file in sorted(folder.glob("*/*.yaml"))]
    order = {kind: index for index, kind in enumerate(FIRST)}
    found.sort(key=lambda item: order.get(item["kind"], len(order)))
    yield found
    created = [item for item in reversed(found) if item["metadata"].get("namespace") or item["kind"] != "Namespace"]
    namespaces = [item for item in found if item["kind"] == "Namespace"]
    for manifest in [*created, *namespaces]:
        cluster.delete(manifest)
    for manifest in namespaces:
        gone = lambda manifest=manifest: not exists(cluster, manifest)  # noqa: E731
        cluster.wait(f"{manifest['metadata']['name']} to go", gone, 60)


def exists(cluster: Api, manifest: Manifest) -> bool:
    metadata = manifest["metadata"]
    try:
        return bool(cluster.get(manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace")))
    except NotFoundError:
        return False


def test_objects_are_admitted(cluster: Api, objects: list[Manifest]) -> None:
    """Strict: an unknown or doubled field is an error, as with `kubectl --validate=strict`."""
    kinds = {item["kind"] for item in objects}
    assert kinds >= {"Deployment", "ScaledObject", "PodMonitor", "PrometheusRule", "NetworkPolicy", "Service"}
    for manifest in objects:
        if manifest["kind"] == "Namespace":
            continue
        if namespace := manifest["metadata"].get("namespace"):
            # A dry run creates nothing, and so no namespace for what follows.
            labels = next(
                (
                    item["metadata"].get("labels", {})
                    for item in objects
                    if item["kind"] == "Namespace" and item["metadata"]["name"] == namespace
                ),
                {},
            )
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
        cluster.apply(manifest, dry_run=True)
        admitted = cluster.create(manifest)
        assert admitted["metadata"]["uid"]


def test_a_second_apply_changes_nothing(cluster: Api, objects: list[Manifest]) -> None:
    """What the API server stored is what the program says: else each `pulumi up` would show a change."""
    for manifest in objects:
        if manifest["kind"] in ("Namespace", "Job"):
            continue
        first = cluster.apply(manifest, manager="pulumi-kubernetes")
        second = cluster.apply(manifest, manager="pulumi-kubernetes")
        assert first["metadata"].get("generation") == second["metadata"].get("generation")
        assert first.get("spec") == second.get("spec")


@pytest.fixture
def pools(cluster: Api, objects: list[Manifest]) -> Iterator[None]:
    """A node of each pool that the stack's services name and the control plane lacks."""
    named = {item["spec"]["template"]["spec"]["nodeSelector"][POOL_LABEL] for item in of_kind(objects, "Deployment")}
    there = {node["metadata"]["labels"].get(POOL_LABEL) for node in cluster.list("v1", "Node")}
    made = [gpu_node(pool, "p4d.24xlarge", "us-west-2b", 0) for pool in named - there]
    for node in made:
        add(cluster, node)
    yield
    # Pods first: without its node, a pod that ends waits for a collector that comes every minute or two.
    for manifest in of_kind(objects, "Deployment"):
        cluster.delete(manifest)
    names = {node["metadata"]["name"] for node in made}
    cluster.wait("the pods to go", lambda: not [pod for pod in cluster.list("v1", "Pod") if node_of(pod) in names], 60)
    for node in made:
        cluster.delete(node)


def node_of(pod: Manifest) -> str:
    return pod["spec"].get("nodeName", "")


def of_kind(objects: list[Manifest], kind: str) -> list[Manifest]:
    return [item for item in objects if item["kind"] == kind]


@pytest.mark.usefixtures("pools")
def test_pods_are_scheduled_on_the_pool(cluster: Api, objects: list[Manifest]) -> None:
    for manifest in of_kind(objects, "Deployment"):
        metadata = manifest["metadata"]

        def available(metadata: Manifest = metadata) -> bool:
            status = cluster.get("apps/v1", "Deployment", metadata["name"], metadata["namespace"])["status"]
            return status.get("availableReplicas", 0) >= 1

        cluster.wait(f"{metadata['name']} available", available, 60)
