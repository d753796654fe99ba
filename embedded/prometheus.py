"""Real Prometheus, configured from the PodMonitor and PrometheusRule objects in the cluster.

    python -m embedded.prometheus HOME     # keeps the configuration of a running one up to date

What the Prometheus operator does on EKS is done here by `configuration` and a loop that polls. Understood are the
fields that our own objects use; a monitor with others is refused, rather than scraped in another way than on EKS.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

import yaml

from eks_llm.catalog.charts import CHARTS

from .addresses import POD_PREFIX
from .api import Api, Manifest
from .controlplane import LOOPBACK, ControlPlane
from .near import opener
from .process import PlatformError, Process, stop
from .tools import provide
from .tools.source import go_module

MODULE = "github.com/prometheus-operator/prometheus-operator"
CRD_CHART = "prometheus-operator-crds"
PARTS = ("prometheus", "prometheus-configuration")
"""Names of the processes, in the order of their start."""
RESOURCES = ("podmonitors", "servicemonitors", "prometheusrules")
"""What stacks make. The operator's other resources are its own affair, and ten times as large."""
POLL_SECONDS = 2.0

LOOPBACK_OF_PODS = {
    "source_labels": ["__address__"],
    "regex": rf"10\.({re.escape(POD_PREFIX.removeprefix('10.'))}.+)",
    "replacement": "127.$1",
    "target_label": "__address__",
}
"""Pods of `local` nodes are reached on the loopback interface, see addresses.py."""
ENDPOINT_FIELDS = {
    "port", "path", "scheme", "interval", "scrapeTimeout", "honorLabels", "relabelings", "metricRelabelings",
}  # fmt: skip
SPEC_FIELDS = {"selector", "podMetricsEndpoints", "jobLabel", "sampleLimit"}


@dataclass(frozen=True)
class Target:
    """A process of the platform that Prometheus scrapes, with the labels that its chart's ServiceMonitor gives on EKS.

    Sources: kube-prometheus-stack and kedacore/keda charts, `servicemonitor.yaml`.
    """

    name: str
    """Of its job and its container."""
    service: str
    port: str
    """User of its port, in ports.py."""
    namespace: str
    endpoint: str
    """Name of the Service's port."""
    honor_labels: bool = False
    """Its own labels win, and others are called `exported_…`."""

    def job(self, ports: dict[str, int]) -> dict[str, Any]:
        own = {"namespace": self.namespace, "service": self.service, "container": self.name, "endpoint": self.endpoint}
        return {
            "job_name": self.name,
            "honor_labels": self.honor_labels,
            "static_configs": [{"targets": [f"{LOOPBACK}:{ports[self.port]}"], "labels": own}],
        }


OWN = (
    Target("prometheus", "kube-prometheus-stack-prometheus", "prometheus", "monitoring", "http-web"),
    # Its series are about other objects, and name them in `namespace`, `pod` and `container`.
    Target(
        "kube-state-metrics",
        "kube-prometheus-stack-kube-state-metrics",
        "kube-state-metrics",
        "monitoring",
        "http",
        honor_labels=True,
    ),
    # A scaler's namespace is `exported_namespace`, as on EKS.
    Target("keda-operator", "keda-operator", "keda-operator-metrics", "keda", "metrics"),
)


@dataclass(frozen=True)
class Prometheus:
    """Prometheus for a control plane that is up."""

    plane: ControlPlane

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.plane.ports['prometheus']}"

    def start(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Applies the operator's CRDs and starts Prometheus, and what configures it. Raises `PlatformError`."""
        api = Api(self.plane.kubeconfig)
        for crd in custom_resource_definitions():
            api.apply(crd)
        self.configure([], [])
        try:
            for process in self._processes():
                seconds = process.start()
                progress(f"{process.name} ready in {seconds:.1f} s")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        stop(self.plane.home, PARTS)

    def configure(self, monitors: list[Manifest], rules: list[Manifest]) -> bool:
        """Writes the configuration for these objects. True if it changed; then `reload` is due."""
        folder = self.plane.home / "prometheus"
        (folder / "rules").mkdir(parents=True, exist_ok=True)
        files = {folder / "rules" / f"{_id(rule)}.yml": {"groups": rule["spec"]["groups"]} for rule in rules}
        files[folder / "prometheus.yml"] = configuration(monitors, self.plane)
        old = {file: file.read_text() for file in [*folder.glob("*.yml"), *folder.glob("rules/*.yml")]}
        new = {file: yaml.safe_dump(content, sort_keys=False) for file, content in files.items()}
        for file in old.keys() - new.keys():
            file.unlink()
        for file, text in new.items():
            file.write_text(text)
        return old != new

    def reload(self) -> None:
        """Raises OSError; Prometheus keeps its old configuration if it cannot use the new one."""
        _get(f"{self.url}/-/reload", method="POST")

    def follow(self) -> None:
        """Polls the objects for ever, and reloads Prometheus when they change. Errors are logged, and tried again."""
        api, said, pending = Api(self.plane.kubeconfig), "", False
        while True:
            problem = ""
            try:
                objects = [api.list("monitoring.coreos.com/v1", kind) for kind in ("PodMonitor", "PrometheusRule")]
                pending = self.configure(*objects) or pending
                if pending:
                    self.reload()
                    pending = False
                    print("reloaded for {} PodMonitors, {} PrometheusRules".format(*map(len, objects)), flush=True)
            except HTTPError as error:
                problem = f"Prometheus refuses the configuration: {error.read().decode(errors='replace')}"
            except Exception as error:  # the API server restarts: the next turn may do
                problem = f"{type(error).__name__}: {error}"
            if problem and problem != said:
                print(problem, flush=True)
            said = problem
            time.sleep(POLL_SECONDS)

    def _processes(self) -> list[Process]:
        home, port = self.plane.home, self.plane.ports["prometheus"]
        flags = {
            "config.file": str(home / "prometheus" / "prometheus.yml"),
            "storage.tsdb.path": str(home / "prometheus" / "data"),
            "storage.tsdb.retention.time": "1d",
            "web.listen-address": f"{LOOPBACK}:{port}",
        }
        command = [str(provide("prometheus")), *(f"--{flag}={value}" for flag, value in flags.items())]
        command.append("--web.enable-lifecycle")
        configurator = [sys.executable, "-m", "embedded.prometheus", str(home)]
        root = str(Path(__file__).parents[1])
        return [
            Process("prometheus", command, home, lambda: _get(f"{self.url}/-/ready")),
            Process("prometheus-configuration", configurator, home, lambda: True, {"PYTHONPATH": root}),
        ]


def configuration(monitors: list[Manifest], plane: ControlPlane) -> dict[str, Any]:
    """Prometheus's configuration."""
    interval = f"{plane.pace.scrape}s"
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": ["rules/*.yml"],
        "scrape_configs": [
            *(target.job(plane.ports) for target in OWN),
            *(job for monitor in monitors for job in scrape_jobs(monitor, plane.kubeconfig)),
        ],
    }


def scrape_jobs(monitor: Manifest, kubeconfig: Path) -> list[dict[str, Any]]:
    """The scrape jobs of a PodMonitor, one per endpoint, as the operator makes them. Raises `PlatformError`."""
    metadata, spec = monitor["metadata"], monitor["spec"]
    where = f"PodMonitor {metadata['namespace']}/{metadata['name']}"
    _known(f"{where}: spec", spec, SPEC_FIELDS)
    jobs = []
    for index, endpoint in enumerate(spec["podMetricsEndpoints"]):
        _known(f"{where}: spec.podMetricsEndpoints[{index}]", endpoint, ENDPOINT_FIELDS)
        times = {"scrape_interval": "interval", "scrape_timeout": "scrapeTimeout"}
        job = {
            "job_name": f"podMonitor/{metadata['namespace']}/{metadata['name']}/{index}",
            **{name: endpoint[field] for name, field in times.items() if field in endpoint},
            "metrics_path": endpoint.get("path", "/metrics"),
            "scheme": endpoint.get("scheme", "http"),
            "honor_labels": endpoint.get("honorLabels", False),
            "sample_limit": spec.get("sampleLimit", 0),
            "kubernetes_sd_configs": [
                {
                    "role": "pod",
                    "kubeconfig_file": str(kubeconfig),
                    "namespaces": {"names": [metadata["namespace"]]},
                }
            ],
            "relabel_configs": [*_relabelings(where, metadata, spec, endpoint), LOOPBACK_OF_PODS],
            "metric_relabel_configs": [_relabeling(item) for item in endpoint.get("metricRelabelings", [])],
        }
        jobs.append(job)
    return jobs


def _relabelings(where: str, metadata: Manifest, spec: Manifest, endpoint: Manifest) -> list[dict[str, Any]]:
    """From the labels that discovery finds to those that the operator gives, then the monitor's own."""
    pod = "__meta_kubernetes_pod"
    selector = spec["selector"]
    _known(f"{where}: spec.selector", selector, {"matchLabels"})
    job = f"{metadata['namespace']}/{metadata['name']}"
    keep = [
        {"source_labels": [f"{pod}_label_{_label(key)}"], "regex": value, "action": "keep"}
        for key, value in selector.get("matchLabels", {}).items()
    ]
    copies = {"namespace": "__meta_kubernetes_namespace", "container": f"{pod}_container_name", "pod": f"{pod}_name"}
    return [
        {"source_labels": [f"{pod}_phase"], "regex": "(Failed|Succeeded)", "action": "drop"},
        *keep,
        {"source_labels": [f"{pod}_container_port_name"], "regex": endpoint["port"], "action": "keep"},
        *({"source_labels": [source], "target_label": target} for target, source in copies.items()),
        {"target_label": "job", "replacement": job},
        *([{"source_labels": [f"{pod}_label_{_label(spec['jobLabel'])}"], "regex": "(.+)", "target_label": "job"}]
          if "jobLabel" in spec else []),
        {"target_label": "endpoint", "replacement": endpoint["port"]},
        *(_relabeling(item) for item in endpoint.get("relabelings", [])),
    ]  # fmt: skip


def _relabeling(item: Manifest) -> dict[str, Any]:
    """A relabelling of the operator's API in Prometheus's own spelling."""
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names.get(key, key): value for key, value in item.items()}


def _label(key: str) -> str:
    """A Kubernetes label as a label of Prometheus's discovery."""
    return "".join(char if char.isalnum() else "_" for char in key)


def _known(where: str, fields: Manifest, known: set[str]) -> None:
    if unknown := fields.keys() - known:
        raise PlatformError(f"{where}: {', '.join(sorted(unknown))} is not emulated by embedded/prometheus.py")


def custom_resource_definitions() -> list[Manifest]:
    """The CRDs of monitors and rules, of the operator's version that the stacks install."""
    folder = go_module(MODULE, CHARTS[CRD_CHART].app_version) / "jsonnet" / "prometheus-operator"
    return [json.loads((folder / f"{kind}-crd.json").read_text()) for kind in RESOURCES]


def _id(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}.{manifest['metadata']['name']}"


def _get(url: str, method: str = "GET") -> bool:
    with opener().open(Request(url, method=method), timeout=5) as response:
        return response.status == 200


if __name__ == "__main__":
    Prometheus(ControlPlane.load(Path(sys.argv[1]))).follow()
