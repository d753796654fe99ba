"""Kubelet's probes and hooks: requests to a pod's address on the loopback interface, and commands in its container."""

import http.client
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from .api import Manifest
from .pod import NotEmulated
from .sandbox import Running

DEFAULTS = {
    "initialDelaySeconds": 0,
    "periodSeconds": 10,
    "timeoutSeconds": 1,
    "successThreshold": 1,
    "failureThreshold": 3,
}
"""Source: Kubernetes API reference, Probe v1 core."""
EAGER_SECONDS = 1.0
"""Between looks whether a container that does not serve yet does now. A kubelet waits for the whole period: with the
startup probe of our services that is 5 s on average, which nobody at this machine has to wait for."""
KINDS = ("startupProbe", "livenessProbe", "readinessProbe")


@dataclass(frozen=True)
class Reach:
    """How a running container is reached."""

    address: str
    ports: dict[str, int]
    """By name."""
    running: Running

    def port(self, port: int | str) -> int:
        return port if isinstance(port, int) else self.ports[port]


@dataclass
class Probes:
    """The probes of one running container. `started`, `ready` and `failed` say where they stand."""

    container: Manifest
    reach: Reach
    started: bool = False
    ready: bool = False
    failed: str = ""
    """Why the container must be restarted; empty: it need not."""
    message: str = ""
    """What the last failure was."""
    _over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Probes in threads of its own until `stop`. Raises `NotEmulated`."""
        for kind in KINDS:
            if kind in self.container:
                check(self.container[kind], self.reach, dry_run=True)
        self.started = "startupProbe" not in self.container
        self.ready = self.started and "readinessProbe" not in self.container
        for kind in KINDS:
            if kind in self.container:
                threading.Thread(target=self._run, args=(kind,), daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _run(self, kind: str) -> None:
        probe = {**DEFAULTS, **self.container[kind]}
        while kind != "startupProbe" and not self.started:
            if self._over.wait(0.05):
                return
        self._over.wait(probe["initialDelaySeconds"])
        successes = failures = 0
        while not self._over.is_set():
            begin = time.monotonic()
            try:
                check(probe, self.reach)
                successes, failures = successes + 1, 0
            except (OSError, http.client.HTTPException) as error:
                successes, failures = 0, failures + 1
                self.message = f"{kind}: {error or type(error).__name__}"
            if successes >= probe["successThreshold"] and self._succeeded(kind):
                return
            if failures >= probe["failureThreshold"]:
                self._failed(kind, failures)
            self._wait(probe, begin + probe["periodSeconds"], eager=failures > 0 and kind != "livenessProbe")

    def _wait(self, probe: Manifest, until: float, eager: bool) -> None:
        """Until the next turn. `eager`: it comes as soon as the answer is yes. No further failures are counted."""
        while (left := until - time.monotonic()) > 0 and not self._over.is_set():
            self._over.wait(min(left, EAGER_SECONDS) if eager else left)
            with suppress(OSError, http.client.HTTPException):
                if eager:
                    check(probe, self.reach)
                    return

    def _succeeded(self, kind: str) -> bool:
        """True if this probe has nothing more to do."""
        if kind == "startupProbe":
            self.started = True
            self.ready = "readinessProbe" not in self.container
        elif kind == "readinessProbe":
            self.ready = True
        return kind == "startupProbe"

    def _failed(self, kind: str, failures: int) -> None:
        if kind == "readinessProbe":
            self.ready = False
        else:
            self.failed = f"{self.message} ({failures} times)"


def check(probe: Manifest, reach: Reach, dry_run: bool = False) -> None:
    """Asks once. Raises OSError or HTTPException if the answer is no, and `NotEmulated`."""
    timeout = probe.get("timeoutSeconds", 1)
    if request := probe.get("httpGet"):
        if request.get("scheme", "HTTP") != "HTTP" or "host" in request:
            raise NotEmulated("httpGet over HTTPS, or of another host")
        if dry_run:
            return
        connection = http.client.HTTPConnection(reach.address, reach.port(request["port"]), timeout=timeout)
        try:
            headers = {item["name"]: item["value"] for item in request.get("httpHeaders", [])}
            connection.request("GET", request.get("path", "/"), headers=headers)
            status = connection.getresponse().status
        finally:
            connection.close()
        if not 200 <= status < 400:
            raise OSError(f"HTTP status {status}")
    elif request := probe.get("tcpSocket"):
        if not dry_run:
            socket.create_connection((reach.address, reach.port(request["port"])), timeout).close()
    elif request := probe.get("exec"):
        if not dry_run:
            deadline = time.monotonic() + timeout
            reach.running.run(request["command"], lambda: deadline - time.monotonic())
    else:
        raise NotEmulated(f"a probe that is neither httpGet, tcpSocket nor exec: {sorted(probe)}")


def pre_stop(hook: Manifest, reach: Reach, left: Callable[[], float]) -> None:
    """Runs a preStop hook to its end, or until no time is `left`, or the container has ended.

    Raises OSError or HTTPException if it fails, and `NotEmulated`.
    """
    if "sleep" in hook:
        end = time.monotonic() + hook["sleep"]["seconds"]
        while time.monotonic() < end and left() > 0 and reach.running.exit_code is None:
            time.sleep(0.02)
    elif "exec" in hook:
        reach.running.run(hook["exec"]["command"], left)
    elif hook:
        check({**hook, "timeoutSeconds": max(1, left())}, reach)
