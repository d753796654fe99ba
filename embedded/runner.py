"""The pod runner: the kubelet of `local` nodes, which runs the pods of a stack as processes of this machine.

    python -m embedded.runner HOME     # for a control plane that is up; started by platform.py

A pod's containers run their own command lines in sandboxes (sandbox.py), with the environment, volumes and ports of the
manifest. Probes decide on readiness and restarts; a removed pod gets preStop, SIGTERM, its grace period, then SIGKILL.
So the manifests that go to EKS are what runs here.

Not emulated, and passed over: images (images.py stands in for ours), users and capabilities (everything runs as whoever
runs the platform), limits of CPU and memory, GPUs (the node has them on paper), network policies, cluster DNS, any way
from a pod to the outside. Not emulated, and refused with an event: more than one container beside init containers, exec
and gRPC probes, exec hooks, envFrom, volumes other than configMap, secret, emptyDir and the NVMe array.
"""

import datetime
import itertools
import json
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from . import nodes
from .addresses import POD_PREFIX, loopback, pod_ip
from .api import Api, ApiException, Manifest, NotFoundError
from .controlplane import ControlPlane
from .images import Stand, load
from .pod import NotEmulated, Volumes, container_ports, environment, sandbox
from .ports import is_free
from .probes import Probes, check
from .process import PlatformError, Process, stop
from .sandbox import Running, Sandbox, problem

PROCESS = "pod-runner"
POLL_SECONDS = 0.5
LEASE_SECONDS = 10
"""Between two signs of life of a node. The node life cycle controller waits for 50 s."""
LONGEST_BACKOFF = 300
"""Seconds between restarts at most; the first waits 10 s, each further one twice as long. As kubelet does."""
NODE_NAMESPACE = "kube-node-lease"


@dataclass(frozen=True)
class PodRunner:
    """The pod runner's process for a control plane that is up."""

    plane: ControlPlane

    def start(self, local_nodes: list[Manifest]) -> None:
        """Adds the nodes (`nodes.gpu_node(…, fake=False)`) and runs their pods. Raises `PlatformError`.

        What stands in for images must be in the state folder: `images.save(home / "images.json", …)`.
        """
        if local_nodes and (reason := problem()):
            raise PlatformError(f"the pod runner cannot run pods here: {reason}")
        (self.plane.home / "nodes.json").write_text(json.dumps(local_nodes))
        api = Api(self.plane.kubeconfig)

        def ready() -> bool:
            found = {item["metadata"]["name"]: item for item in api.list("v1", "Node")}
            names = [node["metadata"]["name"] for node in local_nodes]
            return all(name in found and nodes.is_ready(found[name]) for name in names)

        command = [sys.executable, "-m", "embedded.runner", str(self.plane.home)]
        root = str(Path(__file__).parents[1])
        paths = f"{root}:{root}/components"
        Process(PROCESS, command, self.plane.home, ready, {"PYTHONPATH": paths}).start()

    def stop(self) -> None:
        stop(self.plane.home, [PROCESS])


# The process --------------------------------------------------------------------------------------------------------


@dataclass
class Kubelet:
    """Runs the pods of its nodes until `stop`."""

    api: Api
    home: Path
    nodes: list[Manifest]
    images: dict[str, Stand]
    _runs: dict[str, "PodRun"] = field(default_factory=dict[str, "PodRun"])
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        for node in self.nodes:
            self._register(node)
        taken = [pod["status"].get("podIP", "") for pod in self._pods()]
        numbers = itertools.count(len([ip for ip in taken if ip.startswith(POD_PREFIX)]))
        renewed = 0.0
        while not self._over.is_set():
            try:
                if time.monotonic() - renewed > LEASE_SECONDS:
                    for node in self.nodes:
                        self._renew(node["metadata"]["name"])
                    renewed = time.monotonic()
                self._follow(self._pods(), numbers)
            except Exception:  # the API server restarts; pods go on meanwhile, as they do with kubelet
                traceback.print_exc()
            self._over.wait(POLL_SECONDS)
        for run in self._runs.values():
            run.kill()

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        self._over.set()

    def _pods(self) -> list[Manifest]:
        names = [node["metadata"]["name"] for node in self.nodes]
        return [pod for name in names for pod in self.api.list("v1", "Pod", field_selector=f"spec.nodeName={name}")]

    def _follow(self, pods: list[Manifest], numbers: "itertools.count[int]") -> None:
        """Starts runs for new pods, and ends those of pods that are to go or are gone."""
        found = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, pod in found.items():
            done = pod["status"].get("phase") in ("Succeeded", "Failed")
            if uid not in self._runs and not done:
                self._runs[uid] = PodRun(self, pod, _free_ip(pod, numbers))
                self._runs[uid].start()
            if pod["metadata"].get("deletionTimestamp"):
                if uid in self._runs and self._runs[uid].is_alive:
                    self._runs[uid].remove(pod["metadata"].get("deletionGracePeriodSeconds", 30))
                else:
                    self.api.delete(pod, grace=0)
        for uid in self._runs.keys() - found.keys():  # removed by force
            self._runs.pop(uid).kill()

    def _register(self, node: Manifest) -> None:
        identity = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node["metadata"]["name"]}}
        self.api.apply({key: value for key, value in node.items() if key != "status"})
        condition = {"type": "Ready", "status": "True", "reason": "PodRunner", "message": "runs pods as processes"}
        times = {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        addresses = [{"type": "InternalIP", "address": f"{POD_PREFIX}0.1"}]
        status = {**node["status"], "conditions": [{**condition, **times}], "addresses": addresses}
        self.api.patch({**identity, "status": status}, subresource="status")

    def _renew(self, node: str) -> None:
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now(micro=True)}
        metadata = {"name": node, "namespace": NODE_NAMESPACE}
        self.api.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})


class PodRun:
    """One pod from its start to its end, in a thread."""

    def __init__(self, kubelet: Kubelet, pod: Manifest, ip: str) -> None:
        self._api, self._images, self._pod, self._ip = kubelet.api, kubelet.images, pod, ip
        self._folder = kubelet.home / "pods" / pod["metadata"]["uid"]
        nvme = kubelet.home / "nodes" / pod["spec"]["nodeName"] / "nvme"
        nvme.mkdir(parents=True, exist_ok=True)
        self._volumes = Volumes(self._api, pod, self._folder, nvme)
        self._spec = pod["spec"]
        self._identity = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {key: pod["metadata"][key] for key in ("name", "namespace")},
        }
        self._removed = threading.Event()
        self._deadline = 0.0
        """When a removed pod's grace period ends, on the monotonic clock."""
        self._killed = False
        self._current: Running | None = None
        self._init: list[Manifest] = []
        """Statuses of the init containers that have run."""
        self._started_at = now()

        self._thread = threading.Thread(target=self._live, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """False once there is nothing more to do for the pod, e.g. that of a Job which has succeeded."""
        return self._thread.is_alive()

    def remove(self, grace: float) -> None:
        """The pod is to go within `grace` seconds. A later call may shorten that."""
        deadline = time.monotonic() + grace
        self._deadline = min(self._deadline, deadline) if self._removed.is_set() else deadline
        self._removed.set()

    def kill(self) -> None:
        """The pod is gone, or the runner ends: so do its processes."""
        self._killed = True
        self.remove(0)
        if current := self._current:
            current.kill()

    def _live(self) -> None:
        try:
            self._run()
        except (NotEmulated, ApiException, OSError) as error:
            self._say("Failed", str(error), "Warning")
            self._report(self._waiting("CreateContainerConfigError", str(error)))
            self._removed.wait()
        if self._removed.is_set() and not self._killed:
            self._api.delete(self._pod, grace=0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        if len(self._spec["containers"]) != 1:
            raise NotEmulated("a pod of several containers")
        self._folder.mkdir(parents=True, exist_ok=True)
        for container in self._spec.get("initContainers", []):
            if not self._run_init(container):
                return
        self._run_main(self._spec["containers"][0])

    def _run_init(self, container: Manifest) -> bool:
        """Runs an init container until it succeeds. False if the pod is to go before that."""
        for attempt in itertools.count():
            self._report(self._waiting("PodInitializing"))
            running = self._start(self._sandbox(container), container["name"], {})
            while running.exit_code is None:
                if self._removed.wait(0.05):
                    self._end(running, {})
            code = self._finished(running, container)
            if code == 0:
                self._init.append(_status(container, ready=True, state=_terminated(0)))
                return True
            if self._removed.is_set() or self._back_off(container, attempt, code):
                return False
        return False

    def _run_main(self, container: Manifest) -> None:
        ports = container_ports(container)
        address = loopback(self._ip)
        restarts = max(
            (item["restartCount"] + 1 for item in self._pod["status"].get("containerStatuses", [])), default=0
        )
        for attempt in itertools.count(restarts):
            prepared = self._sandbox(container)
            listeners = {port: _listen(address, port) for port in ports.values()}
            running = self._start(prepared, container["name"], listeners)
            for listener in listeners.values():
                listener.close()  # the sandbox has them now
            probes = Probes(container, address, ports)
            probes.start()
            reported = None
            while running.exit_code is None and not self._removed.is_set() and not probes.failed:
                if reported != (probes.started, probes.ready):
                    reported = (probes.started, probes.ready)
                    self._report(
                        _status(container, *reported, restarts=attempt, state={"running": {"startedAt": now()}})
                    )
                    if not probes.ready and probes.message:
                        self._say("Unhealthy", probes.message, "Warning")
                self._removed.wait(0.05)
            if running.exit_code is None:
                if probes.failed:
                    self._say("Unhealthy", probes.failed, "Warning")
                grace = self._spec.get("terminationGracePeriodSeconds", 30)
                self._end(running, container, grace)
            probes.stop()
            code = self._finished(running, container)
            if self._removed.is_set():
                self._report(_status(container, restarts=attempt, state=_terminated(code)))
                return
            policy = self._spec.get("restartPolicy", "Always")
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                phase = "Failed" if code else "Succeeded"
                self._report(_status(container, restarts=attempt, state=_terminated(code)), phase)
                return
            if self._back_off(container, attempt, code):
                return

    def _sandbox(self, container: Manifest) -> Sandbox:
        """Waits for ConfigMaps and Secrets that are not there yet, as kubelet does."""
        while True:
            try:
                values = environment(self._api, self._pod, container, self._ip)
                return sandbox(self._pod, container, values, self._volumes.mounts(container), self._images)
            except NotFoundError as error:
                self._say("FailedMount", str(error.summary()), "Warning")
                if self._removed.wait(2):
                    raise

    def _start(self, prepared: Sandbox, container: str, listeners: dict[int, socket.socket]) -> Running:
        metadata = self._pod["metadata"]
        logs = self._folder.parents[1] / "logs" / "pods"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{metadata['namespace']}_{metadata['name']}_{container}.log"
        self._current = prepared.start(self._folder, log, listeners)
        self._say("Started", f"Started container {container}: {prepared.command[0]}")
        return self._current

    def _end(self, running: Running, container: Manifest, grace: float | None = None) -> None:
        """preStop, SIGTERM, and SIGKILL when the time is over: `grace` seconds, or what a removed pod has left."""
        deadline = self._deadline if grace is None or self._removed.is_set() else time.monotonic() + grace
        self._say("Killing", f"Stopping container {container.get('name', '')}")
        begin = time.monotonic()

        def left() -> float:
            return (min(deadline, self._deadline) if self._removed.is_set() else deadline) - time.monotonic()

        self._pre_stop(running, container.get("lifecycle", {}).get("preStop", {}), left)
        if running.exit_code is None and not self._killed:
            running.signal(signal.SIGTERM)
        while running.exit_code is None and left() > 0:
            time.sleep(0.02)
        if running.exit_code is None:
            running.kill()
        print(f"{self._name}: stopped in {time.monotonic() - begin:.1f} s, exit code {running.exit_code}", flush=True)

    def _pre_stop(self, running: Running, hook: Manifest, left: Any) -> None:
        if "sleep" in hook:
            end = time.monotonic() + hook["sleep"]["seconds"]
            while time.monotonic() < end and left() > 0 and running.exit_code is None:
                time.sleep(0.02)
        elif "httpGet" in hook:
            try:
                ports = container_ports(self._spec["containers"][0])
                check({**hook, "timeoutSeconds": max(1, left())}, loopback(self._ip), ports)
            except OSError as error:
                self._say("FailedPreStopHook", str(error), "Warning")
        elif hook:
            raise NotEmulated(f"preStop {sorted(hook)}")

    def _finished(self, running: Running, container: Manifest) -> int:
        running.close()
        self._current = None
        code = running.exit_code if running.exit_code is not None else 137
        print(f"{self._name}: container {container['name']} ended with exit code {code}", flush=True)
        return 137 if code < 0 else code  # a negative one: the sandbox itself was killed

    def _back_off(self, container: Manifest, attempt: int, code: int) -> bool:
        """Waits before a restart. True if the pod is to go meanwhile."""
        delay = min(LONGEST_BACKOFF, 10 * 2**attempt)
        message = f"ended with exit code {code}; restarts in {delay} s"
        self._say("BackOff", f"Container {container['name']} {message}", "Warning")
        status = _status(
            container, restarts=attempt, state={"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        )
        self._report({**status, "lastState": _terminated(code)})
        return self._removed.wait(delay)

    # Status ---------------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self._pod['metadata']['namespace']}/{self._pod['metadata']['name']}"

    def _waiting(self, reason: str, message: str = "") -> Manifest:
        return _status(self._spec["containers"][0], state={"waiting": {"reason": reason, "message": message}})

    def _report(self, container: Manifest, phase: str = "") -> None:
        """Writes the pod's status, with that of its container."""
        initialized = len(self._init) == len(self._spec.get("initContainers", []))
        conditions = {"Initialized": initialized, "ContainersReady": container["ready"], "Ready": container["ready"]}
        kept = [item for item in self._pod["status"].get("conditions", []) if item["type"] == "PodScheduled"]
        running = "running" in container["state"] or container["restartCount"] > 0
        status = {
            "phase": phase or ("Running" if running else "Pending"),
            "conditions": kept
            + [{"type": kind, "status": str(value), "lastTransitionTime": now()} for kind, value in conditions.items()],
            "hostIP": f"{POD_PREFIX}0.1",
            "podIP": self._ip,
            "podIPs": [{"ip": self._ip}],
            "startTime": self._started_at,
            "initContainerStatuses": self._init,
            "containerStatuses": [container],
        }
        with suppress(NotFoundError):  # removed by force
            self._api.patch({**self._identity, "status": status}, subresource="status")

    def _say(self, reason: str, message: str, kind: str = "Normal") -> None:
        """An event of the pod, as `kubectl describe` shows it."""
        metadata = self._pod["metadata"]
        print(f"{self._name}: {reason}: {message}", flush=True)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {**self._identity["metadata"], "apiVersion": "v1", "kind": "Pod", "uid": metadata["uid"]},
            "reason": reason,
            "message": message[:1000],
            "type": kind,
            "source": {"component": PROCESS, "host": self._spec["nodeName"]},
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
        }
        with suppress(ApiException, OSError):  # it is a hint only, and its namespace may be on its way out
            self._api.create(event)


def _status(
    container: Manifest, started: bool = False, ready: bool = False, *, restarts: int = 0, state: Manifest
) -> Manifest:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "started": started,
        "ready": ready,
        "restartCount": restarts,
        "state": state,
    }


def _terminated(code: int) -> Manifest:
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now()}}


def _free_ip(pod: Manifest, numbers: "itertools.count[int]") -> str:
    """The next address at which the pod's ports are free: another platform on this machine may use the same range."""
    ports = [port for container in pod["spec"]["containers"] for port in container_ports(container).values()]
    return next(ip for ip in map(pod_ip, numbers) if all(is_free(port, loopback(ip)) for port in ports))


def _listen(address: str, port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(1024)
    return listener


def now(micro: bool = False) -> str:
    text = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds" if micro else "seconds")
    return text.replace("+00:00", "Z")


def main(home: Path) -> None:
    plane = ControlPlane.load(home)
    local_nodes = json.loads((home / "nodes.json").read_text())
    kubelet = Kubelet(Api(plane.kubeconfig), home, local_nodes, load(home / "images.json"))
    signal.signal(signal.SIGTERM, kubelet.stop)
    kubelet.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
