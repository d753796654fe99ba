"""The OpenAI-compatible runtime: `vllm serve`, told by flags what engine.json tells Triton."""

import json
from pathlib import Path
from typing import Any

import pulumi

from ..catalog.images import IMAGES
from ..core.timing import ENGINE_STOP_SECONDS
from . import openai_drain
from .workload import HTTP_PORT, Server, Workload

API_KEY = "api-key"
"""Key of the Secret that holds the API key."""
MIDDLEWARE_FILE = "eks_llm_drain.py"
PYTHONPATH = "/etc/eks-llm/python"


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


def middleware() -> dict[str, str]:
    """The drain middleware, as its ConfigMap holds it."""
    return {MIDDLEWARE_FILE: Path(openai_drain.__file__).read_text(encoding="utf-8")}


def last_act(budget: int) -> str:
    """How preStop ends: new requests are refused, then it waits until none is in flight, `budget` seconds at most."""
    directory = openai_drain.DIRECTORY
    marker, lock = (f"{directory}/{name}" for name in (openai_drain.DRAIN_MARKER, openai_drain.BUSY_LOCK))
    return f"touch {marker}; flock --timeout {budget} {lock} true || true"


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, (dict, list)):
        return f"--{name}={json.dumps(value, sort_keys=True)}"
    return f"--{name}={value}"


def server(config: dict[str, Any], middleware_map: str, keyed: bool) -> Server:
    """The server of an engine.json. Its queue limits have no flag in this vLLM (from 0.3x on they have).

    `middleware_map`: name of the ConfigMap with `middleware()`. `keyed`: the API key comes from `secret()`, by the
    environment; arguments would show it to everyone who may read pods. `/health` and `/metrics` need no key.
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
            f"--shutdown-timeout={ENGINE_STOP_SECONDS}",
            f"--middleware={MIDDLEWARE_FILE.removesuffix('.py')}.{openai_drain.Drain.__name__}",
            *flags(config["engine"]),
            *(["--lora-modules", *adapters] if adapters else []),
        ],
        ports={"http": HTTP_PORT},
        serving_ports=["http"],
        metrics_ports=["http"],
        health_path="/health",
        last_act=last_act(config["drain"]["exitTimeoutSeconds"]),
        env=[
            {"name": "PYTHONPATH", "value": PYTHONPATH},
            *([{"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": reference}}] if keyed else []),
        ],
        mounts=[{"name": "drain", "mountPath": PYTHONPATH, "readOnly": True}],
        volumes=[{"name": "drain", "configMap": {"name": middleware_map}}],
    )
