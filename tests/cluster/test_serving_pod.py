"""A service as it goes to EKS, in the pod runner: real vLLM behind real probes, scraped by Prometheus, read by KEDA."""

import json
import re
import threading
import time

import pytest

from eks_llm.observe.metrics import demand
from eks_llm.serving.service import Runtime
from embedded.api import Api, Manifest
from embedded.prometheus import Prometheus
from embedded.runner import PodRunner
from tests.cluster.service import NAME, NAMESPACE, complete
from tests.cluster.test_prometheus import series

pytestmark = pytest.mark.cluster


def test_it_streams(deployed: Runtime, api: Api) -> None:
    assert len(complete(api, deployed)) > 2  # a stream: one event may hold several of the eight tokens


def test_its_demand_reaches_the_autoscaler(deployed: Runtime, api: Api, prometheus: Prometheus) -> None:
    """Metric names, labels and queries fit together: server, PodMonitor, Prometheus, KEDA, HPA."""

    def value() -> list[float]:
        return [float(item["value"][1]) for item in series(prometheus, demand(NAMESPACE, NAME))]

    api.wait("the demand in Prometheus", lambda: value() == [0])  # nothing runs or waits

    def metrics() -> list[Manifest]:
        hpa = api.get("autoscaling/v2", "HorizontalPodAutoscaler", f"keda-hpa-{NAME}", NAMESPACE)
        found = hpa["status"].get("currentMetrics") or []
        return found if all("external" in item for item in found) else []  # at first it holds an empty one

    names = [item["external"]["metric"]["name"] for item in api.wait("the HPA's metrics", metrics)]
    assert len(names) == 2  # demand and KV cache

    def ready() -> bool:
        scaler = api.get("keda.sh/v1alpha1", "ScaledObject", NAME, NAMESPACE)
        return {item["type"]: item["status"] for item in scaler["status"]["conditions"]}["Ready"] == "True"

    api.wait("KEDA's word that it is ready", ready)


def test_a_pod_drains_without_losing_a_stream(deployed: Runtime, api: Api, runner: PodRunner) -> None:
    """Its preStop keeps it serving, SIGTERM lets its streams end: a long one that runs ends complete.

    The Deployment goes with the pod, which would only be replaced.
    """
    (pod,) = api.list("v1", "Pod", NAMESPACE)
    api.wait("the Service's listener", lambda: complete(api, deployed))
    streams: list[list[str]] = []
    clients = [threading.Thread(target=lambda: streams.append(complete(api, deployed, tokens=200))) for _ in range(4)]
    for client in clients:
        client.start()
    time.sleep(0.3)
    api.delete(api.get("apps/v1", "Deployment", NAME, NAMESPACE))
    for client in clients:
        client.join()
    assert [tokens(stream) for stream in streams] == [200] * 4
    name = pod["metadata"]["name"]

    def gone() -> bool:
        return name not in [item["metadata"]["name"] for item in api.list("v1", "Pod", NAMESPACE)]

    api.wait("the pod is gone", gone)
    log = (runner.plane.home / "logs" / "pod-runner.log").read_text()
    ended = re.findall(rf"{NAMESPACE}/{name}: container \S+ ended with exit code (\d+)", log)
    assert ended[-1] == "0"  # neither killed at the end of its grace period, nor by the signal
    events = [
        event["message"] for event in api.list("v1", "Event", NAMESPACE) if event["reason"] == "FailedPreStopHook"
    ]
    assert events == []


def tokens(events: list[str]) -> int:
    """The number of tokens that the last event of a complete stream reports."""
    last = [json.loads(event.removeprefix("data: ")) for event in events if event != "data: [DONE]"][-1]
    usage = last.get("USAGE") or last.get("usage")
    return (json.loads(usage) if isinstance(usage, str) else usage)["completion_tokens"]
