"""The pod runner: containers of ordinary manifests run as processes, with kubelet's life cycle."""

import json
import subprocess
import time
import urllib.request
from contextlib import suppress
from typing import Any

import pytest

from embedded.addresses import loopback
from embedded.api import Api, Manifest, condition
from embedded.nodes import is_ready as node_is_ready
from embedded.runner import PodRunner
from embedded.services import address
from tests.cluster.planes import FAST
from tests.cluster.test_controlplane import gpu_deployment

pytestmark = pytest.mark.cluster

SERVER = """
import http.server, json, os, signal, sys, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path != "/ready" or os.path.exists("/state/ready")
        self.send_response(200 if ready else 503); self.end_headers()
        if self.path == "/file": self.wfile.write(open("/etc/eks-llm/engine.json", "rb").read())
        if self.path == "/env": self.wfile.write(json.dumps(dict(os.environ)).encode())
        if self.path == "/get-ready": open("/state/ready", "w").close()
        if self.path == "/draining": self.wfile.write(str(os.path.exists("/dev/shm/draining")).encode())
        if self.path == "/crash": os._exit(3)
        if self.path == "/done": open("/state/done", "w").close()
        if self.path == "/hang": open("/state/hung", "w").close()
        if self.path == "/slow":
            for _ in range(50): self.wfile.write(b"token "); self.wfile.flush(); time.sleep(0.1)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler)
server.daemon_threads = False
def stop(*_):
    if not os.path.exists("/state/hung"): threading.Thread(target=server.shutdown).start()
signal.signal(signal.SIGTERM, stop)
server.serve_forever()
server.server_close()  # waits for streams
sys.exit(0)
"""


def deployment(namespace: str, replicas: int = 1, grace: int = 5, **container: Any) -> Manifest:
    labels = {"app": "server"}
    check = {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "server", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"eks-llm.dev/pool": "local"},
                    "tolerations": [{"operator": "Exists"}],
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": grace,
                    "initContainers": [
                        {
                            "name": "weights",
                            "image": "docker.io/rclone/rclone:1",
                            "command": ["sh", "-ceu", 'echo fetched > "$TARGET"'],
                            "env": [{"name": "TARGET", "value": "/mnt/k8s-disks/0/eks-llm/weights"}],
                            "volumeMounts": [{"name": "nvme", "mountPath": "/mnt/k8s-disks/0/eks-llm"}],
                        }
                    ],
                    "containers": [
                        {
                            "name": "server",
                            "image": "example.com/server:1",
                            "command": ["python3", "-c", SERVER],
                            "ports": [{"name": "http", "containerPort": 8000}],
                            "env": [
                                {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                                {"name": "GREETING", "value": "uid=$(POD_UID)"},
                            ],
                            "readinessProbe": check,
                            "volumeMounts": [
                                {"name": "engine", "mountPath": "/etc/eks-llm/engine.json", "subPath": "engine.json"},
                                {"name": "weights", "mountPath": "/models/chat", "readOnly": True},
                                {"name": "state", "mountPath": "/state"},
                                {"name": "shm", "mountPath": "/dev/shm"},
                            ],
                            **container,
                        }
                    ],
                    "volumes": [
                        {"name": "nvme", "hostPath": {"path": "/mnt/k8s-disks/0/eks-llm"}},
                        {"name": "weights", "hostPath": {"path": "/mnt/k8s-disks/0/eks-llm/models"}},
                        {"name": "engine", "configMap": {"name": "engine"}},
                        {"name": "state", "emptyDir": {}},
                        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                    ],
                },
            },
        },
    }


def apply(api: Api, manifest: Manifest) -> None:
    metadata = {"name": "engine", "namespace": manifest["metadata"]["namespace"]}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"engine.json": '{"schema": 1}'}}
    api.apply(config)
    api.apply(manifest)


def started(api: Api, namespace: str, count: int = 1) -> list[Manifest]:
    """Pods whose container runs and answers."""

    def found() -> list[Manifest]:
        pods = [pod for pod in api.list("v1", "Pod", namespace) if pod["status"]["phase"] == "Running"]
        return pods if len(pods) >= count and all(get(pod, "/") is not None for pod in pods) else []

    return api.wait(f"{count} pods run", found)


def get(pod: Manifest, path: str) -> str:
    with urllib.request.urlopen(f"http://{loopback(pod['status']['podIP'])}:8000{path}", timeout=60) as response:
        return response.read().decode()


def current(api: Api, pod: Manifest) -> Manifest:
    return api.get("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])


def is_ready(pod: Manifest) -> bool:
    return condition(pod, "Ready") == "True"


def reasons(api: Api, namespace: str) -> str:
    return "\n".join(f"{event['reason']}: {event['message']}" for event in api.list("v1", "Event", namespace))


def test_a_pod_runs_its_manifest(runner: PodRunner, api: Api, namespace: str) -> None:
    apply(api, deployment(namespace, replicas=2))
    first, second = started(api, namespace, 2)
    # Both listen on 0.0.0.0:8000, each at its own address.
    assert first["status"]["podIP"] != second["status"]["podIP"]
    assert get(first, "/file") == '{"schema": 1}'
    uid = first["metadata"]["uid"]
    assert f'"GREETING": "uid={uid}"' in get(first, "/env")
    assert not is_ready(current(api, first))
    get(first, "/get-ready")
    api.wait("the probe's answer", lambda: is_ready(current(api, first)))
    assert not is_ready(current(api, second))


def test_a_removed_pod_finishes_its_streams(runner: PodRunner, api: Api, namespace: str) -> None:
    """preStop keeps it serving, SIGTERM lets it drain, and the stream ends complete."""
    apply(api, deployment(namespace, lifecycle={"preStop": {"sleep": {"seconds": 3}}}, grace=60))
    (pod,) = started(api, namespace)
    address = loopback(pod["status"]["podIP"])
    with urllib.request.urlopen(f"http://{address}:8000/slow", timeout=60) as stream:
        api.delete(deployment(namespace))
        api.wait("its end to begin", lambda: "Killing" in reasons(api, namespace))
        assert get(pod, "/") == ""  # still in preStop
        assert stream.read().count(b"token") == 50
    api.wait("the pod is gone", lambda: not api.list("v1", "Pod", namespace))


def test_a_probe_may_be_a_command(runner: PodRunner, api: Api, namespace: str) -> None:
    check = {"exec": {"command": ["test", "-e", "/state/ready"]}, "periodSeconds": 1}
    apply(api, deployment(namespace, readinessProbe=check))
    (pod,) = started(api, namespace)
    assert not is_ready(current(api, pod))
    get(pod, "/get-ready")
    api.wait("the probe's answer", lambda: is_ready(current(api, pod)))


def test_a_prestop_command_runs_in_the_container(runner: PodRunner, api: Api, namespace: str) -> None:
    """It sees the container's files, environment and network, and the server serves until it is through."""
    ask = "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/get-ready')"
    command = f'sleep 1; test -n "$POD_UID" && python3 -c "{ask}" && touch /dev/shm/draining'
    command += "; until test -e /state/done; do sleep 0.1; done"

    hook = {"preStop": {"exec": {"command": ["sh", "-c", command]}}}
    apply(api, deployment(namespace, lifecycle=hook, grace=120))
    (pod,) = started(api, namespace)
    assert get(pod, "/draining") == "False"
    api.delete(deployment(namespace))
    api.wait("the file", lambda: get(pod, "/draining") == "True")
    assert get(pod, "/ready") == ""  # no longer status 503
    get(pod, "/done")
    api.wait("the pod is gone", lambda: not api.list("v1", "Pod", namespace))
    assert "FailedPreStopHook" not in reasons(api, namespace)


def test_a_failed_prestop_command_is_said_and_the_pod_ends(runner: PodRunner, api: Api, namespace: str) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo no such drain >&2; exit 3"]}}}
    apply(api, deployment(namespace, lifecycle=hook))
    started(api, namespace)
    api.delete(deployment(namespace))
    api.wait("the pod is gone", lambda: not api.list("v1", "Pod", namespace))
    assert "FailedPreStopHook: sh ended with status 3: no such drain" in reasons(api, namespace)


def test_a_prestop_command_ends_with_the_grace_period(runner: PodRunner, api: Api, namespace: str) -> None:
    """And with it all that it started."""
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "sleep 431 & sleep 431"]}}}
    apply(api, deployment(namespace, lifecycle=hook))
    started(api, namespace)
    begin = time.monotonic()
    api.delete(deployment(namespace))
    api.wait("no pods", lambda: not api.list("v1", "Pod", namespace))
    assert time.monotonic() - begin >= 5
    assert subprocess.run(["pgrep", "-fx", "sleep 431"], check=False).returncode == 1


def test_a_pod_that_ignores_sigterm_is_killed_at_the_end_of_its_grace_period(
    runner: PodRunner, api: Api, namespace: str
) -> None:
    apply(api, deployment(namespace))
    (pod,) = started(api, namespace)
    get(pod, "/hang")
    begin = time.monotonic()
    api.delete(deployment(namespace))
    api.wait("no pods", lambda: not api.list("v1", "Pod", namespace))
    assert time.monotonic() - begin >= 5


def test_a_crashed_container_is_restarted(runner: PodRunner, api: Api, namespace: str) -> None:
    apply(api, deployment(namespace))
    (pod,) = started(api, namespace)
    with suppress(OSError):
        get(pod, "/crash")

    def status() -> Manifest:
        return current(api, pod)["status"]["containerStatuses"][0]

    waiting = api.wait("the crash", lambda: (s := status())["state"].get("waiting") and s)
    assert waiting["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert waiting["lastState"]["terminated"]["exitCode"] == 3
    api.wait("the restart", lambda: (s := status())["restartCount"] == 1 and "running" in s["state"])


def test_after_a_node_was_taken_for_lost_its_pods_are_ready_again(runner: PodRunner, api: Api, namespace: str) -> None:
    """A pod of the pod runner and one of KWOK. What is written here is what the node life cycle controller writes."""
    apply(api, deployment(namespace))
    (pod,) = started(api, namespace)
    get(pod, "/get-ready")
    api.apply(gpu_deployment(namespace, replicas=1))

    def ready() -> list[Manifest]:
        pods = api.list("v1", "Pod", namespace)
        return pods if len(pods) == 2 and all(is_ready(pod) for pod in pods) else []

    for pod in api.wait("both pods ready", ready):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": pod["spec"]["nodeName"]}}
        unknown = api.patch({**node, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "status")
        assert not node_is_ready(unknown)
        conditions = [
            {**item, "status": "False"} if item["type"] == "Ready" else item for item in pod["status"]["conditions"]
        ]
        identity = {key: pod["metadata"][key] for key in ("name", "namespace")}
        lost = {"apiVersion": "v1", "kind": "Pod", "metadata": identity, "status": {"conditions": conditions}}
        assert not is_ready(api.patch(lost, "status"))
    api.wait("both pods ready again", ready)
    api.wait("all nodes ready again", lambda: all(node_is_ready(node) for node in api.list("v1", "Node")))


def test_a_failing_liveness_probe_restarts_the_container(runner: PodRunner, api: Api, namespace: str) -> None:
    probe = {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 2}
    apply(api, deployment(namespace, livenessProbe=probe))
    api.wait("the event", lambda: "Unhealthy: livenessProbe: HTTP status 503 (2 times)" in reasons(api, namespace))
    api.wait("its end", lambda: f"ended with exit code 0; restarts in {FAST.restart} s" in reasons(api, namespace))


def test_a_job_ends_with_the_exit_code_of_its_container(runner: PodRunner, api: Api, namespace: str) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": namespace},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "nodeSelector": {"eks-llm.dev/pool": "local"},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "main", "image": "any", "command": ["sh", "-c", "exit 7"]}],
                }
            },
        },
    }
    api.apply(job)
    api.wait("the job", lambda: api.get("batch/v1", "Job", "job", namespace)["status"].get("failed"))
    (pod,) = api.list("v1", "Pod", namespace)
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    api.delete(pod)
    api.wait("the pod is gone", lambda: not api.list("v1", "Pod", namespace))


def test_what_is_not_emulated_is_said(runner: PodRunner, api: Api, namespace: str) -> None:
    apply(api, deployment(namespace, readinessProbe={"grpc": {"port": 8000}}))
    api.wait("the event", lambda: "neither httpGet, tcpSocket nor exec" in reasons(api, namespace))


def test_a_service_leads_to_ready_pods_only(runner: PodRunner, api: Api, namespace: str) -> None:
    apply(api, deployment(namespace, replicas=2))
    metadata = {"name": "server", "namespace": namespace}
    spec = {"selector": {"app": "server"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}
    api.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    first, _ = started(api, namespace, 2)
    get(first, "/get-ready")

    def ask() -> str:
        host, port = address(api, namespace, "server", "http")
        with urllib.request.urlopen(f"http://{host}:{port}/env", timeout=60) as response:
            return json.load(response)["POD_UID"]

    api.wait("an answer", ask)
    assert {ask() for _ in range(10)} == {first["metadata"]["uid"]}
