"""A service as it goes to EKS, in the pod runner: real vLLM behind real probes, scraped by Prometheus, read by KEDA."""

import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eks_llm.observe.metrics import demand
from eks_llm.plan.manifests import manifests
from eks_llm.plan.recorder import record
from eks_llm.serving.service import InferenceService, Runtime
from embedded import images, serving_env, weights
from embedded.api import Api, Manifest
from embedded.controlplane import ControlPlane
from embedded.keda import Keda
from embedded.prometheus import Prometheus
from embedded.runner import PodRunner
from embedded.services import address
from tests.cluster.test_prometheus import series

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
NAME, NAMESPACE, WEIGHTS = "tiny", "inference-local", "s3://models/tiny/2026-11-29/"


def inference_service(runtime: Runtime, prometheus_url: str, **more: Any) -> InferenceService:
    """A small service with settings that a CPU can serve."""
    shape = {
        "layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "head_dim": 32, "intermediate": 256, "vocab": 512,
        "max_position": 1024,
    }  # fmt: skip
    args: Any = {
        "model": NAME,
        "model_shape": shape,
        "weights": WEIGHTS,
        "pool": "local",
        "runtime": runtime,
        "engine": {
            "max_model_len": 256,
            "max_num_seqs": 8,
            "frontends": 1,
            "extra": {"dtype": "float32", "enforce_eager": True},
        },
        "limits": {"request_timeout": "20s"},
        "scaling": {"min": 1, "max": 2},
        "namespace": NAMESPACE,
        "instance_type": "p4d.24xlarge",
        "prometheus_url": prometheus_url,
        **more,
    }
    opts = args.pop("opts", None)
    return InferenceService(NAME, args, opts)


def service(runtime: Runtime, prometheus_url: str) -> list[Manifest]:
    """All objects of the service, as the program registers them."""
    recording = record(lambda: inference_service(runtime, prometheus_url))
    return [yaml.safe_load(text) for text in manifests(recording).values()]


@pytest.fixture(scope="module")
def bucket(runner: PodRunner, plane: ControlPlane) -> None:
    """The weights, in a folder that stands in for the bucket, and what stands in for the images."""
    environment = serving_env.ensure()
    folder = plane.home / "buckets" / WEIGHTS.removeprefix("s3://")
    weights.make_tiny(environment, folder)
    images.save(plane.home / "images.json", images.stands(environment, plane.home / "buckets"))
    runner.stop()
    runner.start(json.loads((plane.home / "nodes.json").read_text()))


@pytest.fixture(scope="module", params=[Runtime.OPENAI, Runtime.TRITON], ids=lambda runtime: runtime.value)
def deployed(
    request: pytest.FixtureRequest, bucket: None, api: Api, keda: Keda, prometheus: Prometheus
) -> Iterator[Runtime]:
    """The service with one of the runtimes."""
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    objects = service(request.param, prometheus.url)
    last = {"Deployment": 1, "ScaledObject": 2}
    objects.sort(key=lambda item: last.get(item["kind"], 0))
    for manifest in objects:
        api.apply(manifest)
    yield request.param
    for manifest in reversed(objects):
        api.delete(manifest)
    api.wait("pods gone", lambda: not api.list("v1", "Pod", NAMESPACE), timeout=90)


def test_it_becomes_available_and_streams(deployed: Runtime, api: Api) -> None:
    def available() -> int:
        for pod in api.list("v1", "Pod", NAMESPACE):
            for status in pod["status"].get("containerStatuses", []):
                assert status["restartCount"] == 0, status
        return api.get("apps/v1", "Deployment", NAME, NAMESPACE)["status"].get("availableReplicas", 0)

    api.wait("the service", available, timeout=600)
    api.wait("the Service's listener", lambda: complete(api, deployed), timeout=20)
    assert len(complete(api, deployed)) > 2  # a stream: one event may hold several of the eight tokens


def complete(api: Api, runtime: Runtime, tokens: int = 8) -> list[str]:
    """The events of a streamed answer."""
    host, port = address(api, NAMESPACE, NAME, "http")
    prompt, sampling = "The quick brown fox", {"ignore_eos": True, "temperature": 0}
    if runtime is Runtime.OPENAI:
        path = "/v1/completions"
        body = {"model": NAME, "prompt": prompt, "max_tokens": tokens, "stream": True, **sampling}
        body["stream_options"] = {"include_usage": True}
    else:
        path = "/v2/models/llm/generate_stream"
        body = {"PROMPT": prompt, "MAX_TOKENS": tokens, "STREAM": True, "SAMPLING_PARAMETERS": json.dumps(sampling)}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{host}:{port}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return [line for line in response.read().decode().splitlines() if line.startswith("data: ")]


def test_its_demand_reaches_the_autoscaler(deployed: Runtime, api: Api, prometheus: Prometheus) -> None:
    """Metric names, labels and queries fit together: server, PodMonitor, Prometheus, KEDA, HPA."""

    def value() -> list[Manifest]:
        return series(prometheus, demand(NAMESPACE, NAME))

    (found,) = api.wait("the demand in Prometheus", value, timeout=180)
    assert float(found["value"][1]) == 0  # nothing runs or waits

    def metrics() -> list[Manifest]:
        hpa = api.get("autoscaling/v2", "HorizontalPodAutoscaler", f"keda-hpa-{NAME}", NAMESPACE)
        found = hpa["status"].get("currentMetrics") or []
        return found if all("external" in item for item in found) else []  # at first it holds an empty one

    names = [item["external"]["metric"]["name"] for item in api.wait("the HPA's metrics", metrics, timeout=180)]
    assert len(names) == 2  # demand and KV cache

    def ready() -> bool:
        scaler = api.get("keda.sh/v1alpha1", "ScaledObject", NAME, NAMESPACE)
        return {item["type"]: item["status"] for item in scaler["status"]["conditions"]}["Ready"] == "True"

    api.wait("KEDA's word that it is ready", ready)


def test_a_pod_drains_without_losing_a_stream(deployed: Runtime, api: Api, runner: PodRunner) -> None:
    """Its preStop keeps it serving, SIGTERM lets its streams end: a long one that runs ends complete."""
    (pod,) = api.list("v1", "Pod", NAMESPACE)
    api.wait("the Service's listener", lambda: complete(api, deployed), timeout=20)
    streams: list[list[str]] = []
    clients = [threading.Thread(target=lambda: streams.append(complete(api, deployed, tokens=200))) for _ in range(4)]
    for client in clients:
        client.start()
    time.sleep(0.3)
    api.delete(pod)
    for client in clients:
        client.join(timeout=60)
    assert [tokens(stream) for stream in streams] == [200] * 4
    name = pod["metadata"]["name"]

    def gone() -> bool:
        return name not in [item["metadata"]["name"] for item in api.list("v1", "Pod", NAMESPACE)]

    api.wait("the pod is gone", gone, timeout=120)
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
