"""The embedded control plane: it comes up, is a real Kubernetes, and leaves nothing."""

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from embedded import process
from embedded.api import Api, ApiException
from embedded.controlplane import ControlPlane
from embedded.keda import Keda
from embedded.kube_state_metrics import KubeStateMetrics
from embedded.nodes import gpu_node
from embedded.ports import USERS, allot, free_base
from embedded.process import PlatformError, Process, pid_of, recorded
from embedded.prometheus import Prometheus

pytestmark = pytest.mark.cluster


def listening() -> set[int]:
    """TCP ports on which anything listens, from the kernel."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


@pytest.mark.usefixtures("plane")  # then its tools are there
def test_up_then_down_leaves_nothing_listening_or_running(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path, allot(free_base()))
    begin = time.monotonic()
    plane.start()
    print(f"control plane ready in {time.monotonic() - begin:.1f} s")
    pids = [pid for name in recorded(tmp_path) if (pid := pid_of(tmp_path, name))]
    assert len(pids) == 4
    assert Api(plane.kubeconfig).get("v1", "Namespace", "default")["status"]["phase"] == "Active"
    plane.stop()
    assert recorded(tmp_path) == []
    assert not [pid for pid in pids if process.start_time(pid)]
    assert not listening() & set(plane.ports.values())


def test_everything_listens_on_the_loopback_interface_only(
    plane: ControlPlane, keda: Keda, prometheus: Prometheus, kube_state_metrics: KubeStateMetrics
) -> None:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    rows6 = [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    users = {f"{plane.ports[name]:04X}": name for name in USERS}
    found = [row[1].split(":") for row in rows + rows6 if row[3] == "0A"]
    listening = {users[port]: address for address, port in found if port in users}
    assert listening == dict.fromkeys(USERS, "0100007F")


def test_it_reports_a_version_that_clients_understand(api: Api, plane: ControlPlane) -> None:
    version = api.raw("/version")
    minor = plane.minor or "1.36"
    assert version["gitVersion"].startswith(f"v{minor}.")
    assert f"{version['major']}.{version['minor']}" == minor


def test_a_pod_for_eight_gpus_is_scheduled_on_a_p4d_node(api: Api, namespace: str) -> None:
    api.apply(gpu_deployment(namespace, replicas=4))
    pods = lambda: api.list("v1", "Pod", namespace)  # noqa: E731
    running = api.wait(
        "three pods run", lambda: (found := [p for p in pods() if p["status"]["phase"] == "Running"])[2:] and found
    )
    # Three nodes of eight GPUs each: the fourth pod has no place, and the scheduler says why.
    assert {pod["spec"]["nodeName"] for pod in running} == {"a100-0", "a100-1", "a100-2"}
    messages = [item.get("message", "") for pod in pods() for item in pod["status"].get("conditions", [])]
    assert any("3 Insufficient nvidia.com/gpu" in message for message in messages)


def test_a_pod_that_does_not_tolerate_the_taint_stays_off_gpu_nodes(api: Api, namespace: str) -> None:
    manifest = gpu_deployment(namespace, replicas=1)
    manifest["spec"]["template"]["spec"] = {"containers": [{"name": "any", "image": "any"}]}
    api.apply(manifest)

    def reason() -> str:
        conditions = [item for pod in api.list("v1", "Pod", namespace) for item in pod["status"].get("conditions", [])]
        return "".join(item.get("message", "") for item in conditions)

    assert "untolerated taint" in api.wait("the scheduler's answer", reason)


def test_unknown_fields_are_refused(api: Api, namespace: str) -> None:
    manifest = gpu_deployment(namespace, replicas=1)
    manifest["spec"]["template"]["spec"]["nodeSelektor"] = {}
    with pytest.raises(ApiException, match="nodeSelektor"):
        api.apply(manifest)


def test_nodes_have_the_shape_of_their_ec2_type(api: Api) -> None:
    node = api.get("v1", "Node", "a100-0")
    # p4d.24xlarge: 8 A100, 96 vCPUs, 1,152 GiB (EC2 instance types page).
    assert {key: node["status"]["allocatable"][key] for key in ("cpu", "memory", "nvidia.com/gpu")} == {
        "cpu": "96",
        "memory": "1152Gi",
        "nvidia.com/gpu": "8",
    }
    assert node["metadata"]["labels"]["eks-llm.dev/pool"] == "a100"
    assert gpu_node("a", "p4d.24xlarge", "z", 0)["spec"]["taints"][0]["key"] == "nvidia.com/gpu"


def test_a_kubeconfig_in_the_environment_is_never_touched(
    plane: ControlPlane, api: Api, somebody_elses_cluster: Path
) -> None:
    assert os.environ["KUBECONFIG"] == str(somebody_elses_cluster)
    before = somebody_elses_cluster.stat()
    assert api.get("v1", "Namespace", "kube-system")
    for name in recorded(plane.home):
        environment = Path(f"/proc/{pid_of(plane.home, name)}/environ").read_bytes()
        assert str(somebody_elses_cluster).encode() not in environment, name
        assert b"HTTPS_PROXY" not in environment, name
    after = somebody_elses_cluster.stat()
    assert (before.st_mtime_ns, before.st_atime_ns) == (after.st_mtime_ns, after.st_atime_ns)
    assert plane.kubeconfig.stat().st_mode & 0o077 == 0


def test_a_taken_port_is_named() -> None:
    base = free_base()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", base + USERS.index("kube-apiserver")))
        other.listen()
        with pytest.raises(PlatformError, match=rf"port {base + 2} \(for kube-apiserver\) is taken.*EKS_LLM_PORTS="):
            allot(base)


def test_a_process_that_ends_at_once_shows_the_end_of_its_log(tmp_path: Path) -> None:
    failing = Process("doomed", ["sh", "-c", "echo no space left on device; exit 3"], tmp_path, lambda: False)
    with pytest.raises(PlatformError, match=r"(?s)doomed ended with status 3.*no space left on device"):
        failing.start()


def test_a_reused_pid_is_not_taken_for_a_process_of_an_earlier_run(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "etcd.json").write_text(f'{{"pid": {other.pid}, "started": 1}}')
        assert pid_of(tmp_path, "etcd") is None
        process.stop(tmp_path, ["etcd"])
        assert other.poll() is None
        other.kill()
    assert recorded(tmp_path) == []


def gpu_deployment(namespace: str, replicas: int) -> dict:
    labels = {"app": "gpu"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gpu", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"eks-llm.dev/pool": "a100"},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [{"name": "any", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
                },
            },
        },
    }
