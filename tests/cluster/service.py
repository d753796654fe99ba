"""A small service as it goes to EKS, with settings that a CPU can serve, and requests to it."""

import json
import urllib.request
from typing import Any

import yaml

from eks_llm.plan.manifests import manifests
from eks_llm.plan.recorder import record
from eks_llm.serving.service import InferenceService, Runtime
from embedded.api import Api, Manifest
from embedded.services import address
from tests.unit.serving import on_cluster

NAME, NAMESPACE, WEIGHTS = "tiny", "inference-local", "s3://models/tiny/2026-11-29/"
SLO = {"ttft_p99": "250ms", "tpot_p99": "50ms"}


def inference_service(runtime: Runtime, prometheus_url: str, **more: Any) -> InferenceService:
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
    opts = args.pop("opts", None) or on_cluster()
    return InferenceService(NAME, args, opts)


def service(runtime: Runtime, prometheus_url: str) -> list[Manifest]:
    """All objects of the service, as the program registers them, in an order in which they can be made."""
    recording = record(lambda: inference_service(runtime, prometheus_url, slo=SLO))
    objects: list[Manifest] = [yaml.safe_load(text) for text in manifests(recording).values()]
    last = {"Deployment": 1, "ScaledObject": 2}
    return sorted(objects, key=lambda item: last.get(item["kind"], 0))


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
