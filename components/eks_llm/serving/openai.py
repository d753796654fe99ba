"""The OpenAI-compatible runtime: `vllm serve`, told by flags what engine.json tells Triton."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pulumi

from ..catalog.images import IMAGES
from ..core.timing import ENGINE_STOP_SECONDS
from .workload import ENGINE_CONFIG, HTTP_PORT, Server, Workload

API_KEY = "api-key"
"""Key of the Secret that holds the API keys."""
KEYS_VARIABLE = "EKS_LLM_API_KEYS"
"""Not vLLM's own variable, which takes one key and guards some of the routes: the door checks them."""
DOOR = "eks_llm_door.Door"
RUN_DIRECTORY, DRAIN_MARKER, BUSY_LOCK = "/dev/shm/eks-llm", "draining", "busy"  # noqa: S108 the pod's own
"""Where the door counts what is in flight; its names are in openai_middleware/eks_llm_drain.py."""
SHARED = ("engine_config.py", "pod_state.py", "request_checks.py", "request_limits.py")
"""Files of Triton's model repository that the door uses too."""
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
    """What stands in front of vLLM in its API servers, as its ConfigMap holds it."""
    package = Path(str(files("eks_llm")))
    door = sorted((package / "openai_middleware").glob("*.py"))
    shared = [package / "model_repository" / "llm" / "1" / name for name in SHARED]
    return {file.name: file.read_text(encoding="utf-8") for file in [*door, *shared]}


def last_act(budget: int) -> str:
    """How preStop ends: new requests are refused, then it waits until none is in flight, `budget` seconds at most."""
    marker, lock = (f"{RUN_DIRECTORY}/{name}" for name in (DRAIN_MARKER, BUSY_LOCK))
    return f"touch {marker}; flock --timeout {budget} {lock} true || true"


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, (dict, list)):
        return f"--{name}={json.dumps(value, sort_keys=True)}"
    return f"--{name}={value}"


def server(config: dict[str, Any], middleware_map: str, engine_map: str, keyed: bool) -> Server:
    """The server of an engine.json: vLLM gets it as flags, and the door in front of it as the file.

    `middleware_map`, `engine_map`: names of the ConfigMaps with `middleware()` and with the file. `keyed`: the API keys
    come from `secret()`, by the environment; arguments would show them to everyone who may read pods.
    """
    adapters = [f"{name}={path}" for name, path in config["loraAdapters"].items()]
    reference = {"name": secret_name(config["servedModelName"]), "key": API_KEY}
    most = config["limits"]["maxAnswerTokens"]
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
            f"--middleware={DOOR}",
            "--disable-fastapi-docs",
            *flags(_with_longest_answer(config["engine"], most)),
            *(["--lora-modules", *adapters] if adapters else []),
        ],
        ports={"http": HTTP_PORT},
        serving_ports=["http"],
        metrics_ports=["http"],
        health_path="/health",
        last_act=last_act(config["drain"]["exitTimeoutSeconds"]),
        env=[
            {"name": "PYTHONPATH", "value": PYTHONPATH},
            {"name": "VLLM_MEDIA_URL_ALLOW_REDIRECTS", "value": "0"},  # limits.mediaDomains counts for the last address
            *([{"name": KEYS_VARIABLE, "valueFrom": {"secretKeyRef": reference}}] if keyed else []),
        ],
        mounts=[
            {"name": "drain", "mountPath": PYTHONPATH, "readOnly": True},
            {"name": "engine", "mountPath": ENGINE_CONFIG, "subPath": "engine.json", "readOnly": True},
        ],
        volumes=[
            {"name": "drain", "configMap": {"name": middleware_map}},
            {"name": "engine", "configMap": {"name": engine_map}},
        ],
    )


def _with_longest_answer(engine: dict[str, Any], most: int) -> dict[str, Any]:
    """The default length of an answer is the generation config's, here the limit's: vLLM cuts it to what the context
    leaves, which a number in the request it does not.
    """
    if not most:
        return engine
    override = {**engine.get("override_generation_config", {}), "max_new_tokens": most}
    return {**engine, "override_generation_config": override}
