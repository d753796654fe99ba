"""The pod runner: the kubelet of `local` nodes, which runs the pods of a stack as processes of this machine.

    python -m embedded.runner HOME     # for a control plane that is up; started by platform.py

A pod's containers run their own command lines in sandboxes (sandbox.py), with the environment, volumes and ports of the
manifest. Probes decide on readiness and restarts; a removed pod gets preStop, SIGTERM, its grace period, then SIGKILL.
So the manifests that go to EKS are what runs here.

Not emulated, and passed over: images (images.py stands in for ours), users and capabilities (everything runs as whoever
runs the platform), limits of CPU and memory, GPUs (the node has them on paper), network policies, cluster DNS, any way
from a pod to the outside. Not emulated, and refused with an event: more than one container beside init containers, gRPC
probes, postStart hooks, envFrom, volumes other than configMap, secret, emptyDir and the NVMe array.
"""

import itertools
import json
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from . import nodes
from .addresses import POD_PREFIX, loopback, pod_ip
from .api import Api, Manifest
from .controlplane import ControlPlane
from .images import Stand, load
from .pace import Pace
from .pod import container_ports
from .pod_run import PodRun
from .pod_status import COMPONENT as PROCESS
from .pod_status import now
from .ports import DEFAULT_BASE, is_free
from .process import PlatformError, Process, stop
from .sandbox import give_way, problem

POLL_SECONDS = 0.5
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
    base: int
    """First port of the platform."""
    pace: Pace
    _runs: dict[str, PodRun] = field(default_factory=dict[str, PodRun])
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        for node in self.nodes:
            self._register(node)
        taken = [pod["status"].get("podIP", "") for pod in self._pods()]
        first = (self.base - DEFAULT_BASE) * 10  # a range of its own for each platform on this machine
        numbers = itertools.count(first + len([ip for ip in taken if ip.startswith(POD_PREFIX)]))
        renewed = 0.0
        while not self._over.is_set():
            try:
                if time.monotonic() - renewed > self.pace.heartbeat:
                    self._renew()
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
            if uid in self._runs:
                self._runs[uid].hold(pod)
            elif not done:
                ip = _free_ip(pod, numbers)
                self._runs[uid] = PodRun(self.api, self.home, self.images, pod, ip, restart=self.pace.restart)
                self._runs[uid].start()
            if pod["metadata"].get("deletionTimestamp"):
                if uid in self._runs and self._runs[uid].is_alive:
                    self._runs[uid].remove(pod["metadata"].get("deletionGracePeriodSeconds", 30))
                else:
                    self.api.delete(pod, grace=0)
        for uid in self._runs.keys() - found.keys():  # removed by force
            self._runs.pop(uid).kill()

    def _register(self, node: Manifest) -> None:
        self.api.apply({key: value for key, value in node.items() if key != "status"})
        self._report(node)

    def _report(self, node: Manifest) -> None:
        identity = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node["metadata"]["name"]}}
        condition = {"type": "Ready", "status": "True", "reason": "PodRunner", "message": "runs pods as processes"}
        times = {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        addresses = [{"type": "InternalIP", "address": f"{POD_PREFIX}0.1"}]
        status = {**node["status"], "conditions": [{**condition, **times}], "addresses": addresses}
        self.api.patch({**identity, "status": status}, subresource="status")

    def _renew(self) -> None:
        """Signs of life of the nodes, and their status again where they were taken for lost."""
        found = {node["metadata"]["name"]: node for node in self.api.list("v1", "Node")}
        for node in self.nodes:
            name = node["metadata"]["name"]
            metadata = {"name": name, "namespace": NODE_NAMESPACE}
            duration = 4 * self.pace.heartbeat
            spec = {"holderIdentity": name, "leaseDurationSeconds": duration, "renewTime": now(micro=True)}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            self.api.apply(lease)
            if name in found and not nodes.is_ready(found[name]):
                self._report(node)


def _free_ip(pod: Manifest, numbers: "itertools.count[int]") -> str:
    """The next address at which the pod's ports are free: another platform on this machine may use the same range."""
    ports = [port for container in pod["spec"]["containers"] for port in container_ports(container).values()]
    return next(ip for ip in map(pod_ip, numbers) if all(is_free(port, loopback(ip)) for port in ports))


def main(home: Path) -> None:
    plane = ControlPlane.load(home)
    local_nodes = json.loads((home / "nodes.json").read_text())
    api, stands = Api(plane.kubeconfig), load(home / "images.json")
    kubelet = Kubelet(api, home, local_nodes, stands, plane.ports["etcd"], plane.pace)
    signal.signal(signal.SIGTERM, kubelet.stop)
    give_way()
    kubelet.run()
    sys.stdout.flush()
    os._exit(0)  # threads of pods that were killed may still say so, which an ordinary end does not survive


if __name__ == "__main__":
    main(Path(sys.argv[1]))
