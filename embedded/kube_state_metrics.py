"""Real kube-state-metrics on the embedded control plane: the state of Kubernetes objects, `kube_*`, for Prometheus."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from eks_llm.observe import custom_resource_states

from .controlplane import LOOPBACK, ControlPlane
from .near import opener
from .process import Process, stop
from .tools import provide

PROCESS = "kube-state-metrics"
TELEMETRY = "kube-state-metrics-telemetry"
"""User of the port with its metrics of itself."""


@dataclass(frozen=True)
class KubeStateMetrics:
    """kube-state-metrics for a control plane that is up."""

    plane: ControlPlane

    def start(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Starts it and waits until it serves. Raises `PlatformError`."""
        ports = self.plane.ports
        flags = {
            "kubeconfig": str(self.plane.kubeconfig),
            "host": LOOPBACK,
            "port": str(ports[PROCESS]),
            "telemetry-host": LOOPBACK,
            "telemetry-port": str(ports[TELEMETRY]),
            "custom-resource-state-config": json.dumps(custom_resource_states.CONFIGURATION),
        }
        command = [str(provide(PROCESS)), *(f"--{flag}={value}" for flag, value in flags.items())]
        url = f"http://{LOOPBACK}:{ports[PROCESS]}/healthz"
        seconds = Process(PROCESS, command, self.plane.home, lambda: _answers(url)).start()
        progress(f"{PROCESS} ready in {seconds:.1f} s")

    def stop(self) -> None:
        stop(self.plane.home, [PROCESS])


def _answers(url: str) -> bool:
    with opener().open(url, timeout=2) as response:
        return response.status == 200
