"""Faults, on a real control plane with real KEDA, Prometheus and kube-state-metrics: replicas hold, alerts fire, and
all goes on afterwards. What is put together for that, and how it differs from EKS, is in faults.py.
"""

import copy
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from typer.testing import CliRunner

from eks_llm.cli import app
from eks_llm.observe.metrics import KEDA_ERRORS, RUNNING, WAITING, demand, kv_percent
from embedded.addresses import loopback
from embedded.api import Api, NotFoundError
from embedded.controlplane import ControlPlane
from embedded.nodes import add, gpu_node
from embedded.platform import Platform, Shape
from embedded.ports import chosen_base, free_base
from embedded.prometheus import Prometheus
from tests.cluster.faults import (
    DOOR,
    KEDA_DOWN,
    NAMESPACE,
    PACE,
    PER_REPLICA,
    Faults,
    at_once,
    door,
    free_scaler,
    impatient,
    kedas_deployment,
    objects,
    often,
    platform_rules,
    report,
    stand_in,
)
from tests.cluster.metrics_server import metrics_server
from tests.cluster.service import NAME
from tests.cluster.test_prometheus import series

pytestmark = pytest.mark.cluster

SCRAPES = 5
"""How often Prometheus scrapes while the API server is away, before that counts as going on."""


@pytest.fixture(scope="module")
def faults(everything: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """A platform of its own: a node whose pods run, and two with one GPU each whose pods only seem to."""
    platform = Platform(tmp_path_factory.mktemp("faults"), PACE)
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
        for manifest in here.values():
            api.apply(manifest)
        api.wait("its pod", lambda: found.pods())
        api.wait("its server", lambda: found.load(1) is None)
        cost = {"controller.kubernetes.io/pod-deletion-cost": "100"}  # the one that reports goes last
        (pod,) = found.pods()
        identity = {"name": pod["metadata"]["name"], "namespace": NAMESPACE, "annotations": cost}
        api.patch({"apiVersion": "v1", "kind": "Pod", "metadata": identity})
        api.wait("its HPA", lambda: found.condition("ScalingActive").startswith("True"))
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
    assert faults.fires("LLMScalerFallback")["severity"] == "critical"

    several = copy.deepcopy(faults.service["ScaledObject"])
    several["spec"]["triggers"][2]["metadata"]["query"] = DOOR
    faults.api.apply(several)
    faults.say(0, report(1, 0, 0.1) + door(0.5, 0.5))
    faults.finds(f"count({DOOR})", 2)
    faults.hold(4)

    faults.api.apply(faults.service["ScaledObject"])
    faults.become(1)
    faults.ends("LLMScalerFallback")


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
    faults.api.wait("KEDA's errors meanwhile", lambda: (faults.value(errors) or 0) > before)
    faults.api.wait("the end of the fallback", lambda: fallback() == "False: NoFallbackFound")


def test_keda_stopped(faults: Faults) -> None:
    """The HPA controller then waits a minute for each signal, so LLMScalingInactive comes minutes after KedaDown."""
    faults.scaled_to(9, 2)
    left, freed = (destroyable(faults, name) for name in ("left", "freed"))
    with faults.killed("keda-operator"):
        faults.load(1)
        faults.hold_until(2, "KedaDown", lambda: series(faults.prometheus, KEDA_DOWN))
        faults.api.patch({**faults.service["Deployment"], "spec": {"replicas": 3}})  # by hand, as the runbook says
        faults.become(3)

        for name in (left, freed):
            faults.api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in (left, freed):
            only = lambda name=name: remaining(faults, name) == ["ScaledObject"]  # noqa: E731
            faults.api.wait("its ScaledObject alone", only)
        free_scaler(faults.api, freed)
        faults.api.wait("the namespace to go without KEDA", lambda: gone(faults, freed))
        assert remaining(faults, left) == ["ScaledObject"]
        assert faults.replicas() == 3
    faults.api.wait("the other namespace to go", lambda: gone(faults, left))
    faults.become(1)
    faults.api.wait("the end of KedaDown", lambda: not series(faults.prometheus, KEDA_DOWN))


def destroyable(faults: Faults, namespace: str) -> str:
    """A namespace with a service without nodes, and its HPA."""
    faults.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    made = objects(faults.prometheus.url, namespace=namespace, pool="none", scaling={"min": 1, "max": 2})
    for manifest in (stand_in(made["Deployment"]), made["ScaledObject"]):
        faults.api.apply(manifest)
    faults.api.wait("its HPA", lambda: "HorizontalPodAutoscaler" in remaining(faults, namespace))
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
        names = "|".join(pod["metadata"]["name"] for pod in before)
        scraped = f'min(sum by (pod) (count_over_time({RUNNING}{{pod=~"{names}"}}[1h])))'
        enough = (faults.value(scraped) or 0) + SCRAPES

        def served() -> bool:
            for url in urls:
                with urllib.request.urlopen(url, timeout=60) as response:
                    assert RUNNING in response.read().decode()
            return (faults.value(scraped) or 0) >= enough

        faults.api.wait(f"{SCRAPES} scrapes", served)
        assert faults.value(demand(NAMESPACE, NAME)) == 9  # Prometheus knows the pods still
    faults.api.wait("the API server", faults.pods)
    assert [pod["metadata"]["uid"] for pod in faults.pods()] == [pod["metadata"]["uid"] for pod in before]
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in faults.pods()] == [0, 0]
    faults.scaled_to(14, 3)
    faults.scaled_to(1, 1)


# Servers and nodes --------------------------------------------------------------------------------------------------


def test_a_server_that_is_lost_is_still_counted(faults: Faults) -> None:
    """Of two replicas with 9 requests one can no longer be scraped, and then dies: what is left asks for one."""
    faults.scaled_to(9, 2)
    patient = copy.deepcopy(faults.service["ScaledObject"])
    patient["spec"]["advanced"] = faults.real["spec"]["advanced"]  # it holds what is lost for a pod's start
    faults.api.apply(patient)
    window = patient["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    faults.api.wait("the HPA's window", lambda: faults.window() == window["stabilizationWindowSeconds"])
    faults.hold(2)  # the window has seen that two are wanted, so no look between the next two lines ends one
    faults.say(0, report(5, 0, 0.1) + door(1))
    faults.say(1, report(4, 0, 0.1))
    faults.finds(demand(NAMESPACE, NAME), 9)
    faults.hold(2)

    faults.say(1, "down")
    faults.finds(demand(NAMESPACE, NAME), 5)
    faults.api.wait("the window", lambda: faults.condition("AbleToScale") == "True: ScaleDownStabilized")
    assert faults.fires("LLMTargetDown")["endpoint"] == "http"
    faults.hold(2)
    faults.say(1, report(4, 0, 0.1))
    faults.finds(demand(NAMESPACE, NAME), 9)
    faults.ends("LLMTargetDown")

    with suppress(OSError):  # it has no time to answer
        faults.say(1, "", "/die")
    faults.finds(demand(NAMESPACE, NAME), 5)
    faults.hold(2)
    faults.fires("LLMReplicasMissing")
    faults.revive(1)
    faults.become(2)
    faults.ends("LLMReplicasMissing")
    faults.api.apply(faults.service["ScaledObject"])
    faults.scaled_to(1, 1)


def test_a_node_hangs(faults: Faults) -> None:
    """Kubelet no longer says anything; servers on the node go on. Nothing scales, and later all is as before."""
    faults.scaled_to(9, 2)
    with faults.frozen("pod-runner"):
        faults.api.wait("no ready replica", lambda: faults.ready() == 0)
        assert faults.value(demand(NAMESPACE, NAME)) == 9
        faults.hold_until(2, "LLMReplicasMissing", lambda: faults.firing("LLMReplicasMissing"))
    faults.become(2)
    faults.ends("LLMReplicasMissing")
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

        faults.api.wait("a pod on each node", lambda: ready(2))
        lost = next(pod for pod in faults.api.list("v1", "Pod", namespace) if pod["spec"]["nodeName"] == "h100-1")
        faults.api.delete({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "h100-1"}})

        def successor() -> str:
            pods = faults.api.list("v1", "Pod", namespace)
            names = [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]
            return names[0] if lost["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in pods] and names else ""

        name = faults.api.wait("a successor without a node", successor)
        query = f'ALERTS{{alertname="LLMPodPending",alertstate="firing",namespace="{namespace}"}}'
        (alert,) = faults.api.wait("LLMPodPending", lambda: series(faults.prometheus, query))
        assert alert["metric"]["pod"] == name
        why = explained()
        assert why["kind"] == "gpu-budget"
        assert why["verdict"].startswith("1 of its 2 replicas waits for ")
        assert "nvidia.com/gpu: pool h100 has 1 GPU" in why["verdict"]

        add(faults.api, gpu_node("h100", "p5.4xlarge", "us-west-2b", 1))
        faults.api.wait("a pod on each node again", lambda: ready(2))
        faults.api.wait("the end of LLMPodPending", lambda: not series(faults.prometheus, query))
        assert explained()["kind"] == "steady"
        faults.api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        faults.api.wait("the namespace to go", lambda: gone(faults, namespace))
