"""What a pod's run tells the API server: the pod's status, and events."""

import datetime
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from .addresses import POD_PREFIX
from .api import REFUSED_OR_AWAY, Api, Manifest, NotFoundError, condition

COMPONENT = "pod-runner"
"""Who reports, in events."""


@dataclass
class Reports:
    """Status and events of one pod. The API server may be away meanwhile."""

    api: Api
    pod: Manifest
    ip: str
    initialized: list[Manifest] = field(default_factory=list[Manifest])
    """Statuses of the init containers that have run."""
    _started_at: str = field(default_factory=lambda: now())
    _said: Manifest = field(default_factory=Manifest)
    """The last status."""
    _failed: str = ""
    """Why it could not be written; empty: it was."""
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    def waiting(self, reason: str, message: str = "") -> None:
        """The pod's container waits, and why."""
        container = self.pod["spec"]["containers"][0]
        self.status(container_status(container, state={"waiting": {"reason": reason, "message": message}}))

    def status(self, container: Manifest, phase: str = "") -> None:
        """The pod's status from now on, with that of its container."""
        initialized = len(self.initialized) == len(self.pod["spec"].get("initContainers", []))
        conditions = {"Initialized": initialized, "ContainersReady": container["ready"], "Ready": container["ready"]}
        kept = [item for item in self.pod["status"].get("conditions", []) if item["type"] == "PodScheduled"]
        running = "running" in container["state"] or container["restartCount"] > 0
        status = {
            "phase": phase or ("Running" if running else "Pending"),
            "conditions": kept
            + [{"type": kind, "status": str(value), "lastTransitionTime": now()} for kind, value in conditions.items()],
            "hostIP": f"{POD_PREFIX}0.1",
            "podIP": self.ip,
            "podIPs": [{"ip": self.ip}],
            "startTime": self._started_at,
            "initContainerStatuses": self.initialized,
            "containerStatuses": [container],
        }
        with self._one_at_a_time:
            self._said = status
            self._write()

    def hold(self, found: Manifest) -> None:
        """Writes the status again if the API server was away, or if `found`, the pod as it has it, is ready otherwise.

        That is what the node life cycle controller writes of the pods of a node that it takes for lost.
        """
        with self._one_at_a_time:
            if self._said and (self._failed or condition(found, "Ready") != condition({"status": self._said}, "Ready")):
                self._write()

    def _write(self) -> None:
        failed = ""
        try:
            with suppress(NotFoundError):  # removed by force
                self.api.patch({**self._identity, "status": self._said}, subresource="status")
        except REFUSED_OR_AWAY as error:
            failed = f"{self.name}: its status is to be written: {error}"
        if failed and failed != self._failed:
            print(failed, flush=True)
        self._failed = failed

    def event(self, reason: str, message: str, kind: str = "Normal") -> None:
        """An event of the pod, as `kubectl describe` shows it. `kind`: `Normal` or `Warning`."""
        metadata = self.pod["metadata"]
        print(f"{self.name}: {reason}: {message}", flush=True)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {**self._identity["metadata"], "apiVersion": "v1", "kind": "Pod", "uid": metadata["uid"]},
            "reason": reason,
            "message": message[:1000],
            "type": kind,
            "source": {"component": COMPONENT, "host": self.pod["spec"]["nodeName"]},
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
        }
        with suppress(*REFUSED_OR_AWAY):  # it is a hint only, and its namespace may be on its way out
            self.api.create(event)

    @property
    def _identity(self) -> Manifest:
        metadata = {key: self.pod["metadata"][key] for key in ("name", "namespace")}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def container_status(
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


def terminated(code: int) -> Manifest:
    """The state of a container that has ended."""
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now()}}


def now(micro: bool = False) -> str:
    text = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds" if micro else "seconds")
    return text.replace("+00:00", "Z")
