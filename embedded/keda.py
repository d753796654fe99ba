"""Real KEDA on the embedded control plane: operator, metrics adapter behind the aggregated API, admission webhooks.

They run as processes with the administrator's kubeconfig, so KEDA's own RBAC rules are not exercised.
"""

import base64
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .api import Api, Manifest, condition
from .controlplane import LOOPBACK, ControlPlane
from .process import Process, start_together, stop
from .tools import TOOLS, provide
from .tools.source import go_module

NAMESPACE = "keda"
MODULE = "github.com/kedacore/keda/v2"
METRICS_API = "v1beta1.external.metrics.k8s.io"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times as fast, where it was built
PARTS = ("keda-operator", "keda-metrics-adapter", "keda-admission-webhooks")
"""Names of the processes, in the order of their start."""


@dataclass(frozen=True)
class Keda:
    """KEDA for a control plane that is up."""

    plane: ControlPlane

    def start(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Applies the CRDs, starts the parts and waits until the API server reaches them."""
        api = Api(self.plane.kubeconfig)
        crds = list(custom_resource_definitions())
        for manifest in [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *crds]:
            api.apply(manifest)
        for crd in crds:
            name = crd["metadata"]["name"]
            api.wait(f"CRD {name} established", lambda name=name: _is_established(api, name))
        try:
            start_together(self._processes(), progress)
        except BaseException:
            self.stop()
            raise
        for manifest in self.registrations():
            api.apply(manifest)
        path = "/apis/external.metrics.k8s.io/v1beta1"
        api.wait("the metrics API of KEDA", lambda: api.raw(path)["kind"] == "APIResourceList")

    def stop(self) -> None:
        stop(self.plane.home, PARTS)

    def registrations(self) -> list[Manifest]:
        """What leads the API server to the adapter and the webhooks."""
        ports, ca = self.plane.ports, (self.plane.home / "certificates" / "ca.crt").read_bytes()
        bundle = base64.b64encode(ca).decode()
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "keda-metrics-adapter", "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        api_service = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": METRICS_API},
            "spec": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {
                    "name": "keda-metrics-adapter", "namespace": NAMESPACE, "port": ports["keda-adapter"],
                },
                # The API server would verify the Service's cluster name, which a process on localhost does not have.
                "insecureSkipTLSVerify": True,
            },
        }  # fmt: skip
        webhooks = yaml.safe_load((_source() / "config/webhooks/validation_webhooks.yaml").read_text())
        for webhook in webhooks["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            url = f"https://localhost:{ports['keda-webhooks']}{path}"
            webhook["clientConfig"] = {"url": url, "caBundle": bundle}
        return [service, api_service, webhooks]

    def _processes(self) -> list[Process]:
        home, ports = self.plane.home, self.plane.ports
        certificates, kubeconfig = home / "certificates", str(self.plane.kubeconfig)

        def part(name: str, port: str, flags: dict[str, str], **environment: str) -> Process:
            command = [str(provide(name)), *(f"--{flag}={value}" for flag, value in flags.items())]
            variables = {"KUBECONFIG": kubeconfig, "POD_NAMESPACE": NAMESPACE, "WATCH_NAMESPACE": "", **environment}
            return Process(name, command, home, lambda: listens(ports[port]), variables)

        def address(user: str) -> str:
            return f"{LOOPBACK}:{ports[user]}"

        operator = {
            "metrics-bind-address": address("keda-operator-metrics"),
            "health-probe-bind-address": address("keda-operator-health"),
            "metrics-service-bind-address": address("keda-operator-grpc"),
            "cert-dir": str(certificates),
            "leader-elect": "false",
        }
        adapter = {
            "secure-port": str(ports["keda-adapter"]),
            "bind-address": LOOPBACK,
            "port": str(ports["keda-adapter-metrics"]),
            "metrics-service-address": f"localhost:{ports['keda-operator-grpc']}",
            "cert-dir": str(certificates),
            "client-ca-file": str(certificates / "ca.crt"),
            "tls-cert-file": str(certificates / "tls.crt"),
            "tls-private-key-file": str(certificates / "tls.key"),
            "lister-kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
        }
        webhooks = {
            "port": str(ports["keda-webhooks"]),
            "metrics-bind-address": address("keda-webhooks-metrics"),
            "health-probe-bind-address": address("keda-webhooks-health"),
            "cert-dir": str(certificates),
        }
        return [
            part("keda-operator", "keda-operator-grpc", operator, KEDA_CLUSTER_OBJECT_NAMESPACE=NAMESPACE),
            part("keda-metrics-adapter", "keda-adapter", adapter),
            part("keda-admission-webhooks", "keda-webhooks", webhooks),
        ]


def custom_resource_definitions() -> list[Manifest]:
    """KEDA's CRDs, from the module of the version that runs."""
    files = sorted((_source() / "config" / "crd" / "bases").glob("*.yaml"))
    return [yaml.load(file.read_text(), Loader=_Loader) for file in files]


def listens(port: int) -> bool:
    """True if something accepts connections on the loopback interface. Raises OSError if nothing does."""
    with socket.create_connection((LOOPBACK, port), timeout=1):
        return True


def _source() -> Path:
    return go_module(MODULE, TOOLS["keda-operator"].version)


def _is_established(api: Api, crd: str) -> bool:
    return condition(api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd), "Established") == "True"
