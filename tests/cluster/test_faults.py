"""Faults, on a real control plane with real KEDA, Prometheus and kube-state-metrics: replicas hold, alerts fire, and
all goes on afterwards.

The service's ScaledObject, PodMonitor and PrometheusRule are what our components make. Its pods are stand-ins that
report what a test says. All waits less here than on EKS, so that a wrong count would show at once: the HPA looks every
5 s, as KEDA does, replicas have neither windows nor limits per period, pods are scraped every 2 s, alerts wait for 5 s.
"""

import copy
import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from eks_llm.cli import app
from eks_llm.metrics import KEDA_ERRORS, KV_USAGE, RUNNING, WAITING, demand, kv_percent
from eks_llm.operators.monitoring import Monitoring
from eks_llm.plan.manifests import manifests
from eks_llm.plan.recorder import record
from eks_llm.serving.service import Runtime
from embedded.addresses import loopback
from embedded.api import Api, Manifest, NotFoundError
from embedded.controlplane import ControlPlane
from embedded.nodes import add, gpu_node
from embedded.platform import Platform, Shape
from embedded.ports import chosen_base, free_base
from embedded.process import Process, pid_of
from embedded.prometheus import Prometheus
from tests.cluster.metrics_server import metrics_server
from tests.cluster.test_prometheus import series
from tests.cluster.test_serving_pod import NAME, inference_service

pytestmark = pytest.mark.cluster

NAMESPACE = "faults"
PER_REPLICA = 5
"""Requests in flight that a replica is meant to carry."""
KEDA_DOWN = 'ALERTS{alertname="KedaDown",alertstate="firing"}'
DOOR = 'door_requests{namespace="faults"}'
WAIT = 180
"""Seconds. kube-state-metrics and KEDA are scraped every 30 s; the machine may be busy."""
LOOKS = 12
"""Seconds in which an HPA looks twice."""
LOOKS_EVERY = "--horizontal-pod-autoscaler-sync-period=5s"

SERVER = r"""
import http.server, os, sys, time
later = "/state/start-again-after"
if os.path.exists(later):
    time.sleep(float(open(later).read()))  # as a server that loads its model
    os.remove(later)
class Handler(http.server.BaseHTTPRequestHandler):
    said = sys.argv[1].encode()
    def do_GET(self):
        up = self.path == "/health" or Handler.said != b"down"
        self.send_response(200 if up else 500); self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers(); self.wfile.write(Handler.said if self.path == "/metrics" else b"")
    def do_PUT(self):
        Handler.said = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/die":
            open(later, "wb").write(Handler.said)
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
    manifest["spec"]["pollingInterval"] = 5
    sides = {side: {"stabilizationWindowSeconds": 0} for side in ("scaleUp", "scaleDown")}
    manifest["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] = sides
    return manifest


def impatient(rule: Manifest) -> Manifest:
    manifest = copy.deepcopy(rule)
    for group in manifest["spec"]["groups"]:
        group["interval"] = "2s"
        for item in group["rules"]:
            if "for" in item:
                item["for"] = "5s"
    return manifest


def often(monitor: Manifest) -> Manifest:
    manifest = copy.deepcopy(monitor)
    for endpoint in manifest["spec"]["podMetricsEndpoints"]:
        endpoint |= {"interval": "2s", "scrapeTimeout": "2s"}
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
        urllib.request.urlopen(urllib.request.Request(url, text.encode(), method="PUT"), timeout=5).close()

    def load(self, requests: float) -> None:
        """All requests are the first pod's; the others have none."""
        for number in range(1, len(self.pods())):
            self.say(number, report(0, 0, 0))
        self.say(0, report(requests, 0, 0.1) + door(1))

    # What becomes of it

    def replicas(self) -> int:
        return self.api.get("apps/v1", "Deployment", NAME, NAMESPACE)["spec"]["replicas"]

    def become(self, replicas: int) -> None:
        """Waits until it has so many replicas, all of them ready and scraped."""

        def found() -> bool:
            status = self.api.get("apps/v1", "Deployment", NAME, NAMESPACE)["status"]
            return self.replicas() == status.get("readyReplicas") == len(self.pods()) == replicas

        self.api.wait(f"{replicas} replicas", found, WAIT)

    def scaled_to(self, requests: float, replicas: int) -> None:
        self.load(requests)
        self.become(replicas)

    def hold(self, replicas: int, seconds: float = LOOKS) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.replicas() == replicas
            time.sleep(0.5)

    def hold_until(self, replicas: int, what: str, condition: Callable[[], object]) -> None:
        def found() -> object:
            assert self.replicas() == replicas
            return condition()

        self.api.wait(what, found, WAIT)

    def value(self, query: str) -> float | None:
        """The one element of the answer, which has no labels; None if it is empty."""
        found = series(self.prometheus, query)
        assert len(found) <= 1, found
        assert not found or found[0]["metric"] == {}, found
        return float(found[0]["value"][1]) if found else None

    def finds(self, query: str, value: float | None) -> None:
        self.api.wait(f"{query} to be {value}", lambda: self.value(query) == value, WAIT)

    def firing(self, alert: str) -> list[Manifest]:
        return series(self.prometheus, f'ALERTS{{alertname="{alert}",alertstate="firing",service="{NAME}"}}')

    def fires(self, alert: str) -> Manifest:
        (found, *_) = self.api.wait(f"{alert} to fire", lambda: self.firing(alert), WAIT)
        return found["metric"]

    def ends(self, alert: str) -> None:
        self.api.wait(f"{alert} to end", lambda: not self.firing(alert), WAIT)

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

    @contextmanager
    def killed(self, process: str, *more: str) -> Iterator[None]:
        """Without a process of the platform, which then starts as the platform had started it, with `more` flags."""
        pid = pid_of(self.platform.home, process) or 0
        command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
        environment = dict(item.split("=", 1) for item in Path(f"/proc/{pid}/environ").read_text().split("\0")[:-1])
        os.kill(pid, signal.SIGKILL)
        self.api.wait(f"the end of {process}", lambda: pid_of(self.platform.home, process) is None)
        try:
            yield
        finally:
            Process(process, [*command, *more], self.platform.home, lambda: True, environment).start()


def report(running: float, waiting: float, kv: float, model: str = "tiny", engine: int = 0) -> str:
    """The metrics of vLLM that matter here, in its labels."""
    labels = f'{{engine="{engine}",model_name="{model}"}}'
    return f"{RUNNING}{labels} {running}\n{WAITING}{labels} {waiting}\n{KV_USAGE}{labels} {kv}\n"


def door(*requests: float) -> str:
    """Requests per second at the front door, by route."""
    return "".join(f'door_requests{{route="{route}"}} {value}\n' for route, value in enumerate(requests))


def platform_rules() -> Manifest:
    """The rules of `Monitoring`, on KEDA among others."""
    recorded = record(lambda: Monitoring("monitoring", {"grafana_admin_password": "not used"}))
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


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """A platform of its own: a node whose pods run, and two with one GPU each whose pods only seem to."""
    platform = Platform(tmp_path_factory.mktemp("faults"))
    base = chosen_base() if os.environ.get("EKS_LLM_PORTS") else free_base()
    local = gpu_node("local", "p4d.24xlarge", "us-west-2b", 0, fake=False)
    single = [gpu_node("h100", "p5.4xlarge", "us-west-2b", index) for index in range(2)]
    platform.up(Shape([local], single, images={}), base, print)
    try:
        api, prometheus = Api(platform.kubeconfig), Prometheus(ControlPlane.load(platform.home))
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        front_door = {"query": f"sum({DOOR})", "requests_per_replica": 2}
        scaling = {"min": 1, "max": 4, "in_flight_per_replica": PER_REPLICA, "front_door": front_door}
        made = objects(prometheus.url, scaling=scaling)
        here = {
            "Deployment": stand_in(made["Deployment"]),
            "PodMonitor": often(made["PodMonitor"]),
            "PrometheusRule": impatient(made["PrometheusRule"]),
            "ScaledObject": at_once(made["ScaledObject"]),
        }
        for manifest in (impatient(platform_rules()), kedas_deployment()):
            api.apply(manifest)
        found = Faults(platform, api, here, made["ScaledObject"])
        with found.killed("kube-controller-manager", LOOKS_EVERY):
            pass
        for manifest in here.values():
            api.apply(manifest)
        api.wait("its pod", lambda: found.pods(), WAIT)
        api.wait("its server", lambda: found.load(1) is None, WAIT)
        cost = {"controller.kubernetes.io/pod-deletion-cost": "100"}  # the one that reports goes last
        (pod,) = found.pods()
        identity = {"name": pod["metadata"]["name"], "namespace": NAMESPACE, "annotations": cost}
        api.patch({"apiVersion": "v1", "kind": "Pod", "metadata": identity})
        api.wait("its HPA", lambda: found.condition("ScalingActive").startswith("True"), WAIT)
        yield found
    finally:
        platform.down()


# Signals ------------------------------------------------------------------------------------------------------------


def test_label_sets_that_differ_give_one_right_number(faults: Faults) -> None:
    """In a rollout, or after an update of the image, replicas have other labels, and more series."""
    faults.scaled_to(8, 2)
    faults.say(0, report(4, 3, 0.25) + door(1))
    second = f'{RUNNING}{{engine="1",model_name="tiny-v2",lora="a"}} 2\n{WAITING}{{engine="1"}} 2\n'
    faults.say(1, report(1, 0, 0.5, model="tiny-v2") + second)
    faults.finds(demand(NAMESPACE, NAME), 4 + 3 + 1 + 0 + 2 + 2)
    faults.finds(kv_percent(NAMESPACE, NAME), 25 + 50)
    faults.become(3)  # 12 / 5 = 2.4
    faults.scaled_to(1, 1)


def test_a_signal_that_is_wrong_ends_no_replica(faults: Faults) -> None:
    """NaN, missing, and two elements, each while demand alone asks for one replica."""
    faults.scaled_to(14, 3)  # 14 / 5 = 2.8
    faults.say(0, report(1, 0, float("nan")) + door(1))
    faults.finds(demand(NAMESPACE, NAME), 1)
    faults.hold(3)
    faults.say(0, report(18, 0, float("nan")) + door(1))
    faults.become(4)  # the signals that are there still raise the replicas

    faults.say(0, report(1, 0, 0.1))  # without the front door's
    faults.finds(f"sum({DOOR})", None)
    faults.hold(4)
    assert faults.fires("LLMAutoscalerBlind")["severity"] == "critical"

    several = copy.deepcopy(faults.service["ScaledObject"])
    several["spec"]["triggers"][2]["metadata"]["query"] = DOOR
    faults.api.apply(several)
    faults.say(0, report(1, 0, 0.1) + door(0.5, 0.5))
    faults.finds(f"count({DOOR})", 2)
    faults.hold(4)

    faults.api.apply(faults.service["ScaledObject"])
    faults.become(1)


# The platform's parts -----------------------------------------------------------------------------------------------


def test_prometheus_stopped(faults: Faults) -> None:
    """No alert of ours can say so meanwhile; that `Watchdog` no longer arrives does. KEDA has counted its errors."""
    faults.scaled_to(9, 2)
    errors = f'sum({KEDA_ERRORS}{{scaledObject="{NAME}"}})'
    before = faults.value(errors) or 0

    def fallback() -> str:
        return faults.condition("Fallback", "keda.sh/v1alpha1", "ScaledObject")

    with faults.killed("prometheus"):
        faults.load(1)  # which nobody sees
        faults.hold_until(2, "the fallback", lambda: fallback() == "True: FallbackExists")
        faults.hold(2)
    faults.become(1)
    faults.api.wait("KEDA's errors meanwhile", lambda: (faults.value(errors) or 0) > before, WAIT)
    faults.api.wait("the end of the fallback", lambda: fallback() == "False: NoFallbackFound", WAIT)


def test_keda_stopped(faults: Faults) -> None:
    """The HPA controller then waits a minute for each signal, so LLMScalingInactive comes minutes after KedaDown."""
    faults.scaled_to(9, 2)
    left, freed = (destroyable(faults, name) for name in ("left", "freed"))
    with faults.killed("keda-operator"):
        faults.load(1)
        faults.hold(2)
        faults.api.patch({**faults.service["Deployment"], "spec": {"replicas": 3}})  # by hand, as the runbook says
        faults.become(3)

        for name in (left, freed):
            faults.api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in (left, freed):
            only = lambda name=name: remaining(faults, name) == ["ScaledObject"]  # noqa: E731
            faults.api.wait("its ScaledObject alone", only, WAIT)
        finalizers = {"metadata": {"name": NAME, "namespace": freed, "finalizers": None}}  # as the runbook says
        faults.api.patch({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", **finalizers})
        faults.api.wait("the namespace to go without KEDA", lambda: gone(faults, freed), WAIT)
        assert remaining(faults, left) == ["ScaledObject"]
        faults.hold_until(3, "KedaDown", lambda: series(faults.prometheus, KEDA_DOWN))
    faults.api.wait("the other namespace to go", lambda: gone(faults, left), WAIT)
    faults.become(1)
    faults.api.wait("the end of KedaDown", lambda: not series(faults.prometheus, KEDA_DOWN), WAIT)


def destroyable(faults: Faults, namespace: str) -> str:
    """A namespace with a service without nodes, and its HPA."""
    faults.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    made = objects(faults.prometheus.url, namespace=namespace, pool="none", scaling={"min": 1, "max": 2})
    for manifest in (stand_in(made["Deployment"]), made["ScaledObject"]):
        faults.api.apply(manifest)
    faults.api.wait("its HPA", lambda: "HorizontalPodAutoscaler" in remaining(faults, namespace), WAIT)
    return namespace


def remaining(faults: Faults, namespace: str) -> list[str]:
    kinds = {
        "Deployment": "apps/v1",
        "HorizontalPodAutoscaler": "autoscaling/v2",
        "Pod": "v1",
        "ScaledObject": "keda.sh/v1alpha1",
    }
    return [kind for kind, version in kinds.items() if faults.api.list(version, kind, namespace)]


def gone(faults: Faults, namespace: str) -> bool:
    try:
        faults.api.get("v1", "Namespace", namespace)
    except NotFoundError:
        return True
    return False


def test_api_server_killed(faults: Faults) -> None:
    faults.scaled_to(9, 2)
    before = faults.pods()
    urls = [f"http://{loopback(pod['status']['podIP'])}:8000/metrics" for pod in before]
    with faults.killed("kube-apiserver"):
        deadline = time.monotonic() + LOOKS
        while time.monotonic() < deadline:
            for url in urls:
                with urllib.request.urlopen(url, timeout=5) as response:
                    assert RUNNING in response.read().decode()
            time.sleep(1)
        assert faults.value(demand(NAMESPACE, NAME)) == 9  # Prometheus knows the pods still
    faults.api.wait("the API server", faults.pods, WAIT)
    assert [pod["metadata"]["uid"] for pod in faults.pods()] == [pod["metadata"]["uid"] for pod in before]
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in faults.pods()] == [0, 0]
    faults.scaled_to(14, 3)
    faults.scaled_to(1, 1)


# Servers and nodes --------------------------------------------------------------------------------------------------


def test_a_server_that_is_lost_is_still_counted(faults: Faults) -> None:
    """Of two replicas with 9 requests one can no longer be scraped, and then dies: what is left asks for one."""
    faults.scaled_to(9, 2)
    faults.say(0, report(5, 0, 0.1) + door(1))
    faults.say(1, report(4, 0, 0.1))
    faults.finds(demand(NAMESPACE, NAME), 9)
    patient = copy.deepcopy(faults.service["ScaledObject"])
    patient["spec"]["advanced"] = faults.real["spec"]["advanced"]  # it holds what is lost for a pod's start
    faults.api.apply(patient)
    window = patient["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    faults.api.wait("the HPA's window", lambda: faults.window() == window["stabilizationWindowSeconds"], WAIT)
    faults.hold(2)

    faults.say(1, "down")
    faults.finds(demand(NAMESPACE, NAME), 5)
    faults.api.wait("the window", lambda: faults.condition("AbleToScale") == "True: ScaleDownStabilized", WAIT)
    assert faults.fires("LLMTargetDown")["endpoint"] == "http"
    faults.hold(2)
    faults.say(1, report(4, 0, 0.1))
    faults.finds(demand(NAMESPACE, NAME), 9)
    faults.ends("LLMTargetDown")

    with suppress(OSError):  # it has no time to answer
        faults.say(1, "35", "/die")
    faults.finds(demand(NAMESPACE, NAME), 5)
    faults.hold(2)
    faults.fires("LLMReplicasMissing")
    faults.become(2)
    faults.ends("LLMReplicasMissing")
    faults.api.apply(faults.service["ScaledObject"])
    faults.scaled_to(1, 1)


def test_a_node_is_removed(faults: Faults) -> None:
    namespace = "faults-node"
    faults.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    with metrics_server() as metrics:
        metrics.values[""] = 8  # to every query: two replicas
        scaling = {"min": 1, "max": 3, "in_flight_per_replica": PER_REPLICA}
        made = objects(metrics.url, namespace=namespace, pool="h100", instance_type="p5.4xlarge", scaling=scaling)
        for manifest in (
            stand_in(made["Deployment"]), impatient(made["PrometheusRule"]), at_once(made["ScaledObject"])
        ):  # fmt: skip
            faults.api.apply(manifest)

        def ready(replicas: int) -> bool:
            status = faults.api.get("apps/v1", "Deployment", NAME, namespace)["status"]
            return status.get("readyReplicas") == status.get("replicas") == replicas

        def explained() -> dict[str, Any]:
            options = ["--kubeconfig", str(faults.platform.kubeconfig), "--namespace", namespace, "--format", "json"]
            done = CliRunner().invoke(app, ["explain", NAME, *options])
            assert done.exit_code == 0, done.stderr
            return json.loads(done.stdout)

        faults.api.wait("a pod on each node", lambda: ready(2), WAIT)
        lost = next(pod for pod in faults.api.list("v1", "Pod", namespace) if pod["spec"]["nodeName"] == "h100-1")
        faults.api.delete({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "h100-1"}})

        def successor() -> str:
            pods = faults.api.list("v1", "Pod", namespace)
            names = [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]
            return names[0] if lost["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in pods] and names else ""

        name = faults.api.wait("a successor without a node", successor, WAIT)
        query = f'ALERTS{{alertname="LLMPodPending",alertstate="firing",namespace="{namespace}"}}'
        (alert,) = faults.api.wait("LLMPodPending", lambda: series(faults.prometheus, query), WAIT)
        assert alert["metric"]["pod"] == name
        why = explained()
        assert why["kind"] == "gpu-budget"
        assert why["verdict"].startswith("1 of its 2 replicas waits for ")
        assert "nvidia.com/gpu: pool h100 has 1 GPU" in why["verdict"]

        add(faults.api, gpu_node("h100", "p5.4xlarge", "us-west-2b", 1))
        faults.api.wait("a pod on each node again", lambda: ready(2), WAIT)
        faults.api.wait("the end of LLMPodPending", lambda: not series(faults.prometheus, query), WAIT)
        assert explained()["kind"] == "steady"
        faults.api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        faults.api.wait("the namespace to go", lambda: gone(faults, namespace), WAIT)
