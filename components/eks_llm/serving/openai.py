"""The OpenAI-compatible runtime: `vllm serve`, told by flags what engine.json tells Triton."""

import json
from typing import Any

import pulumi

from ..catalog.images import IMAGES
from .workload import HTTP_PORT, Server

API_KEY = "api-key"
"""Key of the Secret that holds the API key."""


def flags(args: dict[str, Any]) -> list[str]:
    """Arguments of vLLM as `vllm serve` spells them: booleans as `--x` or `--no-x`, structures as JSON."""
    return [_flag(name.replace("_", "-"), value) for name, value in args.items()]


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, (dict, list)):
        return f"--{name}={json.dumps(value, sort_keys=True)}"
    return f"--{name}={value}"


def server(config: dict[str, Any], api_key_secret: pulumi.Input[str] | None) -> Server:
    """The server of an engine.json. Its queue limits have no flag in this vLLM (from 0.3x on they have).

    The API key reaches vLLM by its environment; arguments would show it to everyone who may read pods. `/health` and
    `/metrics` need no key.
    """
    adapters = [f"{name}={path}" for name, path in config["loraAdapters"].items()]
    reference = {"name": api_key_secret, "key": API_KEY}
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
        env=[{"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": reference}}] if api_key_secret else [],
    )
