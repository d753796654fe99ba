"""The Triton runtime: tritonserver with this repository's model repository, which drives vLLM's engine."""

import re
from pathlib import Path
from typing import Any

from ..catalog.images import IMAGES
from .workload import ENGINE_CONFIG, HTTP_PORT, Server

GRPC_PORT = 8001
METRICS_PORT = 8002
"""Triton's own metrics, `nv_*`."""
ENGINE_METRICS_PORT = 8003
"""vLLM's metrics, served by the model."""
REPOSITORY = "/models-repo"
CLOSED_APIS = "model-repository,shared-memory,logging,trace"
"""What no client needs, and what would let one unload the model, map memory or fill the log."""

PING_FLAGS = [
    "--grpc-http2-min-recv-ping-interval-without-data=5000",
    "--grpc-keepalive-permit-without-calls=1",
]
"""Clients and proxies ping every ten seconds or so, also on a stream that waits for its first token. gRPC's default is
to close a connection after the third ping within five minutes without data, with every stream on it."""


def read_model_repository(directory: Path) -> dict[str, str]:
    """The files of a model repository by their path in it: each model's config.pbtxt and Python files.

    Raises `FileNotFoundError` if the directory holds no model.
    """
    files = sorted([*directory.glob("*/config.pbtxt"), *directory.glob("*/*/*.py")])
    if not files:
        raise FileNotFoundError(f"{directory} holds no */config.pbtxt: it is not a Triton model repository")
    return {file.relative_to(directory).as_posix(): file.read_text(encoding="utf-8") for file in files}


def with_frontends(files: dict[str, str], frontends: int) -> dict[str, str]:
    """The repository with as many instances of the model `llm` as there are front ends."""
    config = re.sub(r"(instance_group[^\]]*?\bcount:\s*)\d+", rf"\g<1>{frontends}", files["llm/config.pbtxt"])
    return {**files, "llm/config.pbtxt": config}


def config_data(files: dict[str, str]) -> dict[str, str]:
    """The files as a ConfigMap holds them: its keys have no slashes."""
    return {path.replace("/", "__"): text for path, text in files.items()}


DRAIN_MARKER = "/dev/shm/eks-llm/draining"  # noqa: S108 the pod's own
"""Triton goes on passing requests to a model while it shuts down; from this file on, our model refuses new ones."""


def server(config: dict[str, Any], keys: list[str], repository_map: str, engine_map: str) -> Server:
    """The server of an engine.json and a model repository (its `config_data` keys), in two ConfigMaps.

    The image keeps its entrypoint, which sets up CUDA's compatibility libraries. Each model is mounted by itself: at
    the root of a ConfigMap volume Triton would take Kubernetes' hidden `..data` folder for a model.
    """
    items = [{"key": key, "path": key.replace("__", "/")} for key in keys]
    models = sorted({item["path"].split("/")[0] for item in items})
    return Server(
        image=IMAGES["triton"],
        args=[
            "tritonserver",
            f"--model-repository={REPOSITORY}",
            f"--http-port={HTTP_PORT}",
            f"--grpc-port={GRPC_PORT}",
            f"--metrics-port={METRICS_PORT}",
            "--allow-metrics=true",
            "--allow-gpu-metrics=false",  # the DCGM exporter measures GPUs
            f"--exit-timeout-secs={config['drain']['exitTimeoutSeconds']}",
            # The header's value is the pod's uid: new for each pod, and in no manifest.
            f"--http-restricted-api={CLOSED_APIS}:eks-llm-admin=$(POD_UID)",
            f"--grpc-restricted-protocol={CLOSED_APIS}:eks-llm-admin=$(POD_UID)",
            *PING_FLAGS,
            "--log-format=ISO8601",
        ],
        ports={
            "http": HTTP_PORT,
            "grpc": GRPC_PORT,
            "metrics": METRICS_PORT,
            "engine-metrics": ENGINE_METRICS_PORT,
        },
        serving_ports=["http", "grpc"],
        metrics_ports=["engine-metrics", "metrics"],
        health_path="/v2/health/ready",
        last_act=f"touch {DRAIN_MARKER}",
        env=[{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        mounts=[
            *(
                {"name": "repository", "mountPath": f"{REPOSITORY}/{model}", "subPath": model, "readOnly": True}
                for model in models
            ),
            {"name": "engine", "mountPath": ENGINE_CONFIG, "subPath": "engine.json", "readOnly": True},
        ],
        volumes=[
            {"name": "repository", "configMap": {"name": repository_map, "items": items}},
            {"name": "engine", "configMap": {"name": engine_map}},
        ],
    )
