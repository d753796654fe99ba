"""One pod of the pod runner, from its start to its end: kubelet's life cycle.

A container runs its own command line in a sandbox; probes decide on readiness and restarts; a removed pod gets preStop,
SIGTERM, its grace period, then SIGKILL.
"""

import http.client
import itertools
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kubernetes.dynamic.exceptions import DynamicApiError
from urllib3.exceptions import HTTPError

from .addresses import loopback
from .api import REFUSED_OR_AWAY, Api, ApiException, Manifest
from .images import Stand
from .pod import NotEmulated, Volumes, container_ports, environment, sandbox
from .pod_status import Reports, container_status, now, terminated
from .probes import Probes, Reach, pre_stop
from .sandbox import Running, Sandbox

LONGEST_BACKOFF = 30
"""What the last restarts wait, in waits before the first: 300 s, as kubelet does."""


class PodRun:
    """One pod from its start to its end, in a thread."""

    def __init__(self, api: Api, home: Path, images: dict[str, Stand], pod: Manifest, ip: str, *, restart: int) -> None:
        """`restart`: see `Pace`."""
        self._api, self._images, self._pod, self._ip, self._restart = api, images, pod, ip, restart
        self._folder = home / "pods" / pod["metadata"]["uid"]
        nvme = home / "nodes" / pod["spec"]["nodeName"] / "nvme"
        nvme.mkdir(parents=True, exist_ok=True)
        self._volumes = Volumes(self._api, pod, self._folder, nvme)
        self._spec = pod["spec"]
        self._reports = Reports(api, pod, ip)
        self._removed = threading.Event()
        self._deadline = 0.0
        """When a removed pod's grace period ends, on the monotonic clock."""
        self._killed = False
        self._current: Running | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hold(self, found: Manifest) -> None:
        """`found`: the pod as the API server has it, which may not have heard, or been told otherwise."""
        self._reports.hold(found)

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
        except (NotEmulated, *REFUSED_OR_AWAY) as error:
            self._reports.event("Failed", str(error), "Warning")
            self._reports.waiting("CreateContainerConfigError", str(error))
            self._removed.wait()
        if self._removed.is_set() and not self._killed:
            with suppress(*REFUSED_OR_AWAY):  # the runner tries again
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
            self._reports.waiting("PodInitializing")
            running = self._start(self._sandbox(container), container["name"], {})
            while running.exit_code is None:
                if self._removed.wait(0.05):
                    self._end(running, {})
            code = self._finished(running, container)
            if code == 0:
                self._reports.initialized.append(container_status(container, ready=True, state=terminated(0)))
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
            probes = Probes(container, Reach(address, ports, running))
            probes.start()
            reported, state = None, {"running": {"startedAt": now()}}
            while running.exit_code is None and not self._removed.is_set() and not probes.failed:
                if reported != (probes.started, probes.ready):
                    reported = (probes.started, probes.ready)
                    self._reports.status(container_status(container, *reported, restarts=attempt, state=state))
                    if not probes.ready and probes.message:
                        self._reports.event("Unhealthy", probes.message, "Warning")
                self._removed.wait(0.05)
            if running.exit_code is None:
                if probes.failed:
                    self._reports.event("Unhealthy", probes.failed, "Warning")
                grace = self._spec.get("terminationGracePeriodSeconds", 30)
                self._end(running, container, grace)
            probes.stop()
            code = self._finished(running, container)
            if self._removed.is_set():
                self._reports.status(container_status(container, restarts=attempt, state=terminated(code)))
                return
            policy = self._spec.get("restartPolicy", "Always")
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                phase = "Failed" if code else "Succeeded"
                self._reports.status(container_status(container, restarts=attempt, state=terminated(code)), phase)
                return
            if self._back_off(container, attempt, code):
                return

    def _sandbox(self, container: Manifest) -> Sandbox:
        """Waits for ConfigMaps and Secrets that are not there yet, and for the API server, as kubelet does."""
        while True:
            try:
                values = environment(self._api, self._pod, container, self._ip)
                return sandbox(self._pod, container, values, self._volumes.mounts(container), self._images)
            except (ApiException, HTTPError) as error:
                why = error.summary() if isinstance(error, DynamicApiError) else error
                self._reports.event("FailedMount", str(why), "Warning")
                if self._removed.wait(2):
                    raise

    def _start(self, prepared: Sandbox, container: str, listeners: dict[int, socket.socket]) -> Running:
        metadata = self._pod["metadata"]
        logs = self._folder.parents[1] / "logs" / "pods"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{metadata['namespace']}_{metadata['name']}_{container}.log"
        self._current = prepared.start(self._folder, log, listeners)
        self._reports.event("Started", f"Started container {container}: {prepared.command[0]}")
        return self._current

    def _end(self, running: Running, container: Manifest, grace: float | None = None) -> None:
        """preStop, SIGTERM, and SIGKILL when the time is over: `grace` seconds, or what a removed pod has left."""
        deadline = self._deadline if grace is None or self._removed.is_set() else time.monotonic() + grace
        self._reports.event("Killing", f"Stopping container {container.get('name', '')}")
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
        seconds = time.monotonic() - begin
        print(f"{self._reports.name}: stopped in {seconds:.1f} s, exit code {running.exit_code}", flush=True)

    def _pre_stop(self, running: Running, hook: Manifest, left: Callable[[], float]) -> None:
        """Runs the hook, for as long as the grace period lasts. A hook that fails changes nothing else."""
        ports = container_ports(self._spec["containers"][0])
        try:
            pre_stop(hook, Reach(loopback(self._ip), ports, running), left)
        except (OSError, http.client.HTTPException) as error:
            self._reports.event("FailedPreStopHook", str(error), "Warning")

    def _finished(self, running: Running, container: Manifest) -> int:
        running.close()
        self._current = None
        code = running.exit_code if running.exit_code is not None else 137
        print(f"{self._reports.name}: container {container['name']} ended with exit code {code}", flush=True)
        return 137 if code < 0 else code  # a negative one: the sandbox itself was killed

    def _back_off(self, container: Manifest, attempt: int, code: int) -> bool:
        """Waits before a restart. True if the pod is to go meanwhile."""
        delay = self._restart * min(LONGEST_BACKOFF, 2**attempt)
        message = f"ended with exit code {code}; restarts in {delay} s"
        self._reports.event("BackOff", f"Container {container['name']} {message}", "Warning")
        status = container_status(
            container, restarts=attempt, state={"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        )
        self._reports.status({**status, "lastState": terminated(code)})
        return self._removed.wait(delay)


def _listen(address: str, port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(1024)
    return listener
