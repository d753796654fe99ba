"""A service on a platform of its own, and what can be done to both, for test_faults.py.

Its ScaledObject, PodMonitor and PrometheusRule are what our components make. Its pods are stand-ins that report what a
test says. All waits less here than on EKS, so that a wrong count would show at once: the HPA looks every second, as
KEDA does, replicas have neither windows nor limits per period, all is scraped every 2 s or more often, alerts wait for
2 s. What must not happen is waited for in looks of the HPA, which a busy machine makes later.
"""

import copy
import os
import re
import signal
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from eks_llm.observe.metrics import KV_USAGE, RUNNING, WAITING
from eks_llm.operators.monitoring import Monitoring
from eks_llm.plan.manifests import manifests
from eks_llm.plan.recorder import record
from eks_llm.serving.service import Runtime
from embedded.addresses import loopback
from embedded.api import Api, Manifest
from embedded.controlplane import ControlPlane
from embedded.keda import listens
from embedded.platform import Platform
from embedded.process import PATIENCE, Process, gone, pid_of
from embedded.prometheus import Prometheus
from tests.cluster.planes import FAST
from tests.cluster.service import NAME, inference_service
from tests.cluster.test_prometheus import series
from tests.unit.serving import on_cluster

NAMESPACE = "faults"
PER_REPLICA = 5
"""Requests in flight that a replica is meant to carry."""
KEDA_DOWN = 'ALERTS{alertname="KedaDown",alertstate="firing"}'
DOOR = 'door_requests{namespace="faults"}'
LOOKS = 3
"""How often the HPA controller looks before what it did not do counts as not done."""
PACE = replace(FAST, node_lost=15, restart=1)

SERVER = r"""
import http.server, os, sys, time
dead = "/state/dead"
while os.path.exists(dead):
    time.sleep(0.1)  # as a server that loads its model
class Handler(http.server.BaseHTTPRequestHandler):
    said = sys.argv[1].encode()
    def do_GET(self):
        up = self.path == "/health" or Handler.said != b"down"
        self.send_response(200 if up else 500); self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers(); self.wfile.write(Handler.said if self.path == "/metrics" else b"")
    def do_PUT(self):
        Handler.said = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/die":
            open(dead, "w").close()
            os._exit(137)
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""


def objects(prometheus_url: str, **more: Any) -> dict[str, Manifest]:
    """A service's objects by kind, as the program registers them; of several of a kind the last."""
    recording = record(lambda: inference_service(Runtime.OPENAI, prometheus_url, **{"namespace": NAMESPACE, **more}))
    return {(manifest := yaml.safe_load(text))["kind"]: manifest for text in manifests(recording).values()}


def stand_in(deployment: Manifest) -> Manifest:
    """The Deployment, with a server that only reports."""
    manifest = copy.deepcopy(deployment)
    pod = manifest["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    kept = {key: server[key] for key in ("name", "image", "ports", "resources")}
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1}
    state = [{"name": "state", "mountPath": "/state"}]
    command = ["python3", "-c", SERVER, report(0, 0, 0)]
    pod["containers"] = [{**kept, "command": command, "readinessProbe": probe, "volumeMounts": state}]
    pod["volumes"] = [{"name": "state", "emptyDir": {}}]
    pod["terminationGracePeriodSeconds"] = 0
    for key in ("initContainers", "serviceAccountName"):
        del pod[key]
    return manifest


def at_once(scaled_object: Manifest) -> Manifest:
    manifest = copy.deepcopy(scaled_object)
    manifest["spec"]["pollingInterval"] = 1
    sides = {side: {"stabilizationWindowSeconds": 0} for side in ("scaleUp", "scaleDown")}
    manifest["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] = sides
    return manifest


def impatient(rule: Manifest) -> Manifest:
    manifest = copy.deepcopy(rule)
    for group in manifest["spec"]["groups"]:
        group["interval"] = "1s"
        for item in group["rules"]:
            if "for" in item:
                item["for"] = "2s"
    return manifest


def often(monitor: Manifest) -> Manifest:
    manifest = copy.deepcopy(monitor)
    for endpoint in manifest["spec"]["podMetricsEndpoints"]:
        endpoint |= {"interval": "1s", "scrapeTimeout": "1s"}
    return manifest


@dataclass(frozen=True)
class Faults:
    """The platform, and a service of one replica and more on it."""

    platform: Platform
    api: Api
    service: dict[str, Manifest]
    """Its objects by kind, as they are here."""
    real: Manifest
    """Its ScaledObject, as it goes to EKS."""

    @property
    def prometheus(self) -> Prometheus:
        return Prometheus(ControlPlane.load(self.platform.home))

    # What its pods report

    def pods(self) -> list[Manifest]:
        """Its pods that run, by age; scaling down leaves the first."""
        label = f"app.kubernetes.io/name={NAME}"
        found = self.api.list("v1", "Pod", NAMESPACE, label_selector=label)
        found = [pod for pod in found if pod["status"].get("podIP") and "deletionTimestamp" not in pod["metadata"]]
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def say(self, pod: int, text: str, path: str = "/metrics") -> None:
        """Has the pod of this age report `text` from now on."""
        url = f"http://{loopback(self.pods()[pod]['status']['podIP'])}:8000{path}"
        request = urllib.request.Request(url, text.encode(), method="PUT")
        urllib.request.urlopen(request, timeout=PATIENCE).close()  # pods get what a busy machine has left over

    def load(self, requests: float) -> None:
        """All requests are the first pod's; the others have none."""
        for number in range(1, len(self.pods())):
            self.say(number, report(0, 0, 0))
        self.say(0, report(requests, 0, 0.1) + door(1))

    # What becomes of it

    def replicas(self) -> int:
        return self.api.get("apps/v1", "Deployment", NAME, NAMESPACE)["spec"]["replicas"]

    def ready(self) -> int:
        return self.api.get("apps/v1", "Deployment", NAME, NAMESPACE)["status"].get("readyReplicas", 0)

    def become(self, replicas: int) -> None:
        """Waits until it has so many replicas, all of them ready and scraped."""

        def found() -> bool:
            return self.replicas() == self.ready() == len(self.pods()) == replicas

        self.api.wait(f"{replicas} replicas", found)

    def scaled_to(self, requests: float, replicas: int) -> None:
        self.load(requests)
        self.become(replicas)

    def hold(self, replicas: int) -> None:
        """Asserts so many replicas, for as long as the HPA controller needs to look a few times."""
        enough = self.looks() + LOOKS
        self.hold_until(replicas, f"{LOOKS} looks of the HPA controller", lambda: self.looks() >= enough)

    def looks(self) -> float:
        """How often the HPA controller has looked at every HPA, by its own metrics."""
        home = self.platform.home
        context = ssl.create_default_context(cafile=str(home / "certificates" / "ca.crt"))
        context.load_cert_chain(home / "certificates" / "admin.crt", home / "certificates" / "admin.key")
        port = ControlPlane.load(home).ports["kube-controller-manager"]
        near = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({})
        )
        with near.open(f"https://127.0.0.1:{port}/metrics", timeout=60) as answer:
            scrape = answer.read().decode()

        def total(name: str) -> float:
            series = rf"^horizontal_pod_autoscaler_controller_{name}\b.* (\S+)$"
            return sum(map(float, re.findall(series, scrape, re.MULTILINE)))

        return total("reconciliations_total") / total("num_horizontal_pod_autoscalers")

    def hold_until(self, replicas: int, what: str, condition: Callable[[], object]) -> None:
        def found() -> object:
            assert self.replicas() == replicas
            return condition()

        self.api.wait(what, found)

    def value(self, query: str) -> float | None:
        """The one element of the answer, which has no labels; None if it is empty."""
        found = series(self.prometheus, query)
        assert len(found) <= 1, found
        assert not found or found[0]["metric"] == {}, found
        return float(found[0]["value"][1]) if found else None

    def finds(self, query: str, value: float | None) -> None:
        self.api.wait(f"{query} to be {value}", lambda: self.value(query) == value)

    def firing(self, alert: str) -> list[Manifest]:
        return series(self.prometheus, f'ALERTS{{alertname="{alert}",alertstate="firing",service="{NAME}"}}')

    def fires(self, alert: str) -> Manifest:
        (found, *_) = self.api.wait(f"{alert} to fire", lambda: self.firing(alert))
        return found["metric"]

    def ends(self, alert: str) -> None:
        self.api.wait(f"{alert} to end", lambda: not self.firing(alert))

    def condition(self, kind: str, version: str = "autoscaling/v2", of: str = "HorizontalPodAutoscaler") -> str:
        """A condition of its HPA, or of its ScaledObject, e.g. `False: FailedGetExternalMetric`."""
        name = f"keda-hpa-{NAME}" if of == "HorizontalPodAutoscaler" else NAME
        found = self.api.get(version, of, name, NAMESPACE)["status"].get("conditions", [])
        return next((f"{item['status']}: {item['reason']}" for item in found if item["type"] == kind), "")

    def window(self) -> int:
        """Seconds that its HPA waits before a replica ends."""
        hpa = self.api.get("autoscaling/v2", "HorizontalPodAutoscaler", f"keda-hpa-{NAME}", NAMESPACE)
        return hpa["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"]

    # Faults

    def revive(self, pod: int) -> None:
        """Lets the server of the pod of this age start that `/die` has ended."""
        uid = self.pods()[pod]["metadata"]["uid"]
        (self.platform.home / "pods" / uid / "volumes" / "state" / "dead").unlink()

    def killed(self, process: str) -> AbstractContextManager[None]:
        return killed(self.api, self.platform.home, process)

    @contextmanager
    def frozen(self, process: str) -> Iterator[None]:
        pid = pid_of(self.platform.home, process) or 0
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def killed(api: Api, home: Path, process: str) -> Iterator[None]:
    """Without a process of a platform, which then starts as the platform had started it."""
    pid = pid_of(home, process) or 0
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    environment = dict(item.split("=", 1) for item in Path(f"/proc/{pid}/environ").read_text().split("\0")[:-1])
    os.kill(pid, signal.SIGKILL)
    api.wait(f"the end of {process}", lambda: gone(pid))
    ports = ControlPlane.load(home).ports
    port = ports.get(process) or ports[f"{process}-grpc"]
    try:
        yield
    finally:
        Process(process, command, home, lambda: listens(port), environment).start()


def free_scaler(api: Api, namespace: str) -> None:
    """Takes KEDA's finalizer from the service's ScaledObject, as the runbook says."""
    metadata = {"name": NAME, "namespace": namespace, "finalizers": None}
    api.patch({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata})


def report(running: float, waiting: float, kv: float, model: str = "tiny", engine: int = 0) -> str:
    """The metrics of vLLM that matter here, in its labels."""
    labels = f'{{engine="{engine}",model_name="{model}"}}'
    return f"{RUNNING}{labels} {running}\n{WAITING}{labels} {waiting}\n{KV_USAGE}{labels} {kv}\n"


def door(*requests: float) -> str:
    """Requests per second at the front door, by route."""
    return "".join(f'door_requests{{route="{route}"}} {value}\n' for route, value in enumerate(requests))


def platform_rules() -> Manifest:
    """The rules of `Monitoring`, on KEDA among others."""
    recorded = record(lambda: Monitoring("monitoring", {"grafana_admin_password": "not used"}, on_cluster()))
    rule = recorded.one("PrometheusRule").inputs
    identity = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule"}
    return {**identity, "metadata": {"name": "platform", "namespace": NAMESPACE}, "spec": rule["spec"]}


def kedas_deployment() -> Manifest:
    """What tells that KEDA is installed. Here it is a process and no pod."""
    labels = {"app": "keda-operator"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "keda-operator", "image": "none"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "keda-operator", "namespace": "keda"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod},
    }
