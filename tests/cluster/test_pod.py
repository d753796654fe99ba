"""How manifests become processes: the parts that need no cluster."""

import os
from pathlib import Path
from typing import Any

import pytest

from embedded.addresses import loopback, pod_ip
from embedded.images import Stand, repository
from embedded.pod import NotEmulated, Volumes, container_ports, expand, sandbox
from embedded.sandbox import ROOT, Mount, Sandbox, problem
from embedded.services import routes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--id=$(POD_UID)", "--id=7"),
        ("$$(POD_UID)", "$(POD_UID)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(POD_UID)$(POD_UID) $POD_UID", "77 $POD_UID"),
    ],
)
def test_variables_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    """Source: Kubernetes API reference, Container v1 core, `args`."""
    assert expand(text, {"POD_UID": "7"}) == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("nvcr.io/nvidia/tritonserver:26.08-vllm-python-py3", "nvcr.io/nvidia/tritonserver"),
        ("localhost:5000/server", "localhost:5000/server"),
        ("docker.io/vllm/vllm-openai:v0.27.1@sha256:0a51", "docker.io/vllm/vllm-openai"),
    ],
)
def test_the_repository_of_an_image(reference: str, expected: str) -> None:
    assert repository(reference) == expected


def test_pods_get_addresses_that_lead_to_the_loopback_interface() -> None:
    assert [pod_ip(number) for number in (0, 254, 255, 65532)] == [
        "10.127.0.1",
        "10.127.0.255",
        "10.127.1.0",
        "10.127.255.253",
    ]
    assert loopback("10.127.1.0") == "127.127.1.0"
    assert loopback("10.96.0.9") == "127.96.0.9"


def pod(*volumes: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "chat", "namespace": "llm", "uid": "7"}
    return {"metadata": metadata, "spec": {"nodeName": "n", "volumes": list(volumes)}}


def mounts(volume: dict[str, Any], path: str, folder: Path) -> list[Mount]:
    container = {"volumeMounts": [{"name": "v", "mountPath": path}]}
    return Volumes(None, pod({"name": "v", **volume}), folder, folder / "nvme").mounts(container)  # type: ignore[arg-type]


def test_a_folder_stands_in_for_the_array_of_nvme_disks(tmp_path: Path) -> None:
    inside = mounts({"hostPath": {"path": "/mnt/k8s-disks/0/eks-llm/models/a"}}, "/models/chat", tmp_path)
    assert inside == [Mount("/models/chat", str(tmp_path / "nvme/eks-llm/models/a"))]


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"hostPath": {"path": "/etc"}}, "hostPath /etc: only /mnt/k8s-disks/0 exists on a local node"),
        ({"csi": {}}, "volume v: csi .only configMap, secret, emptyDir, hostPath."),
    ],
)
def test_other_volumes_are_refused(volume: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(NotEmulated, match=message):
        mounts(volume, "/data", tmp_path)


def test_the_manifests_variables_win_over_the_images() -> None:
    container = {"name": "server", "image": "triton:1", "args": ["serve", "$(PORT)"]}
    stand = Stand(environment={"PORT": "1", "LC_ALL": "C.UTF-8"}, folders={"/opt/backends": "/there"})
    made = sandbox(pod(), container, {"PORT": "8000"}, [], {"triton": stand})
    assert made.command == ["serve", "8000"]
    assert made.environment["PORT"] == "8000"
    assert made.environment["LC_ALL"] == "C.UTF-8"
    assert made.environment["HOSTNAME"] == "chat"
    assert made.mounts == [Mount("/opt/backends", "/there", read_only=True)]


def test_a_command_that_only_the_image_knows_is_refused() -> None:
    with pytest.raises(NotEmulated, match="entrypoint"):
        sandbox(pod(), {"name": "server", "image": "triton:1"}, {}, [], {})


def test_a_poststart_hook_is_refused() -> None:
    container = {"name": "server", "image": "triton:1", "command": ["serve"], "lifecycle": {"postStart": {}}}
    with pytest.raises(NotEmulated, match="container server: a postStart hook"):
        sandbox(pod(), container, {}, [], {})


def test_a_machine_without_namespaces_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem() == ""
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho unshare: unshare failed: Operation not permitted >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Operation not permitted. Pods need Linux namespaces: run as root, or" in problem()
    refusing.unlink()
    assert problem() == "unshare is missing (package util-linux)"


@pytest.mark.skipif(len(ROOT.parts) < 3, reason="nothing is above this checkout but the root")
def test_a_volume_above_this_checkout_hides_all_but_the_checkout(tmp_path: Path) -> None:
    """Pods have /tmp as a volume, and people try a clone in /tmp."""
    over = ROOT.parent
    script = f"cd {over} && ls -A && ls {ROOT.name}/embedded/sandbox.py && touch here && ! touch {ROOT.name}/here"
    log = tmp_path / "log"
    running = Sandbox(["sh", "-c", script], {**os.environ, "LC_ALL": "C"}, [Mount(str(over))]).start(tmp_path, log, {})
    assert running.process.wait(timeout=30) == 0, log.read_text()
    running.close()
    listed, found, refused = log.read_text().splitlines()
    assert (listed, found) == (ROOT.name, f"{ROOT.name}/embedded/sandbox.py")
    assert "Read-only file system" in refused
    assert not (over / "here").exists()


def test_ports_without_a_name_go_by_their_number() -> None:
    assert container_ports({"ports": [{"containerPort": 8000}, {"name": "grpc", "containerPort": 8001}]}) == {
        "8000": 8000,
        "grpc": 8001,
    }


def test_a_service_is_routed_to_ready_local_pods() -> None:
    def endpoint(ip: str, *, ready: bool) -> dict[str, Any]:
        return {"addresses": [ip], "conditions": {"ready": ready}}

    service = {
        "metadata": {"name": "chat", "namespace": "llm"},
        "spec": {"clusterIP": "10.96.0.9", "ports": [{"name": "http", "port": 80}]},
    }
    headless = {**service, "spec": {**service["spec"], "clusterIP": "None"}}
    ends = [
        endpoint("10.127.0.1", ready=True),
        endpoint("10.127.0.2", ready=False),
        endpoint("10.128.0.3", ready=True),  # of a KWOK node: nothing listens there
    ]
    slice_ = {
        "metadata": {"namespace": "llm", "labels": {"kubernetes.io/service-name": "chat"}},
        "ports": [{"name": "http", "port": 8000}, {"name": "grpc", "port": 8001}],
        "endpoints": ends,
    }
    assert routes([service, headless], [slice_]) == {("127.96.0.9", 80): [("127.127.0.1", 8000)]}
