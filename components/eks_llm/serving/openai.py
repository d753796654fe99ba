"""The OpenAI-compatible runtime: `vllm serve`, told by flags what engine.json tells Triton."""

import json
from typing import Any

import pulumi

from ..catalog.images import IMAGES
from .workload import HTTP_PORT, Server, Workload

API_KEY = "api-key"
"""Key of the Secret that holds the API key."""


def secret_name(service: str) -> str:
    return f"{service}-api-key"


def secret(work: Workload, api_key: pulumi.Input[str]) -> dict[str, Any]:
    """The Secret that the server's environment refers to."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": work.metadata(secret_name(work.name)),
        "type": "Opaque",
        "stringData": {API_KEY: api_key},
    }


def flags(args: dict[str, Any]) -> list[str]:
    """Arguments of vLLM as `vllm serve` spells them: booleans as `--x` or `--no-x`, structures as JSON."""
    return [_flag(name.replace("_", "-"), value) for name, value in args.items()]


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, (dict, list)):
        return f"--{name}={json.dumps(value, sort_keys=True)}"
    return f"--{name}={value}"


def server(config: dict[str, Any], keyed: bool) -> Server:
    """The server of an engine.json. Its queue limits have no flag in this vLLM (from 0.3x on they have).

    `keyed`: the API key comes from `secret()`, by the environment; arguments would show it to everyone who may read
    pods. `/health` and `/metrics` need no key.
    """
    adapters = [f"{name}={path}" for name, path in config["loraAdapters"].items()]
    reference = {"name": secret_name(config["servedModelName"]), "key": API_KEY}
    return Server(
        image=IMAGES["openai"],
        command=["vllm", "serve"],
        args=[
            config["model"],
            f"--served-model-name={config['servedModelName']}",
            "--host=0.0.0.0",  # the NetworkPolicy says who may connect
            f"--port={HTTP_PORT}",
            f"--api-server-count={config['frontends']}",
            f"--shutdown-timeout={config['drain']['exitTimeoutSeconds']}",
            *flags(config["engine"]),
            *(["--lora-modules", *adapters] if adapters else []),
        ],
        ports={"http": HTTP_PORT},
        serving_ports=["http"],
        metrics_ports=["http"],
        health_path="/health",
        env=[{"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": reference}}] if keyed else [],
    )
