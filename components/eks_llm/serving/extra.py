"""What `engine.extra` may hold: arguments of the pinned vLLM by name and type, but those that the settings decide."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..catalog.engine_arguments import ENGINE_ARGUMENTS, SERVER_ARGUMENTS, VLLM, Takes
from ..core.faults import Fault
from ..core.problems import nearest, shown

NOT_EXTRA = {
    "allowed_media_domains": "set {key.limits.media_domains}",
    "disable_log_stats": "metrics need the statistics",
    "enable_lora": "set {key.engine.lora_adapters}",
    "gpu_memory_utilization": "set {key.engine.gpu_memory_utilization}",
    "kv_cache_dtype": "set {key.engine.kv_cache_dtype}",
    "enable_prefix_caching": "set {key.engine.enable_prefix_caching}",
    "lora_modules": "set {key.engine.lora_adapters}",
    "max_logprobs": "set {key.limits.max_logprobs}",
    "max_lora_rank": "set {key.engine.max_lora_rank}",
    "max_loras": "set {key.engine.lora_adapters}",
    "max_model_len": "set {key.engine.max_model_len}",
    "max_num_batched_tokens": "set {key.engine.max_num_batched_tokens}",
    "max_num_seqs": "set {key.engine.max_num_seqs}",
    "model": "set {key.weights}",
    "pipeline_parallel_size": "set {key.pipeline_parallel}",
    "served_model_name": "it is the service's name",
    "shutdown_timeout": "it follows from {key.limits.request_timeout}",
    "speculative_config": "set {key.engine.speculative}",
    "stat_loggers": "metrics need the statistics",
    "tensor_parallel_size": "set {key.tensor_parallel}",
}
"""vLLM arguments that `extra` may not hold, and why, as templates of a `Fault`."""
SERVER_ARGS = re.compile(
    "host|port|uds|api_key|api_server_count|headless|config|root_path|middleware|grpc|hf_token|tool_parser_plugin|log_config_file"
    "|allow_credentials|allowed_(origins|methods|headers)|disable_access_log_for_endpoints|disable_fastapi_docs"
    "|(enable_)?ssl_.*|(disable_)?uvicorn_.*|h11_.*|dp_supervisor_.*|data_parallel_.*"
)
"""Arguments of `vllm serve` that are not the engine's: what listens where, who may call, code to load, more processes.

An API key here would stand in the arguments of a process, in the pod's manifest and in plain text in the stack file.
Source: vllm/entrypoints/openai/cli_args.py and vllm/entrypoints/cli/serve.py.
"""


KNOWN = {**SERVER_ARGUMENTS, **ENGINE_ARGUMENTS}
"""What each argument takes, by name."""


def extra_problems(extra: Mapping[str, Any]) -> Iterator[Fault]:
    """What is wrong with each argument, below `extra`."""
    for key, value in extra.items():
        if template := _problem(key, value):
            yield Fault("", template, at=key)


def _problem(key: str, value: Any) -> str | None:
    """As a template of a `Fault`."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", key):
        return "not spelt as vLLM spells arguments, e.g. scheduling_policy"
    if key in NOT_EXTRA:
        return f"cannot be set here: {NOT_EXTRA[key]}"
    if SERVER_ARGS.fullmatch(key):
        return "cannot be set here: it belongs to the server around the engine"
    if key not in KNOWN:
        return _literally(f"vLLM {VLLM} has no such argument{_near(key)}")
    if value is None:
        return "has no value; leave the key out for vLLM's default"
    wanted = _wanted(value, KNOWN[key])
    return _literally(f"{shown(value, python=False)}{wanted}") if wanted else None


def _wanted(value: Any, takes: Takes) -> str:
    """What would be right in the place of a value; empty: it is."""
    if isinstance(takes, tuple):
        fits = value in takes and type(value) in map(type, takes)
        return "" if fits else f" is not one of {', '.join(map(str, takes))}"
    fits = any(_is(value, kind) for kind in takes.split(" or "))
    return "" if fits else f": {WRITE.get(takes, f'write a {takes}')}"


def _literally(text: str) -> str:
    """A message as a template without placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def _near(key: str) -> str:
    """The nearest name; all 300 would say nothing."""
    hint = nearest(key, [name for name in KNOWN if name not in NOT_EXTRA])
    return hint if hint.startswith(";") else "; its arguments are those of AsyncEngineArgs"


WRITE = {
    "boolean": "write true or false, without quotes",
    "whole number": "write a whole number, such as 2, without quotes",
    "number": "write a number, such as 0.9, without quotes",
    "list": "write a list, such as [a, b]",
    "mapping": "write a mapping, such as {backend: guidance}",
}


def _is(value: Any, kind: str) -> bool:
    """Whether a value of a stack file is of the kind. A boolean is no number, and 2.0 is not whole: flags are text."""
    return {
        "boolean": isinstance(value, bool),
        "whole number": type(value) is int,
        "number": type(value) in (int, float),
        "text": isinstance(value, str),
        "list": isinstance(value, (list, tuple)),
        "mapping": isinstance(value, dict),
        "any": True,
    }[kind]


def server_arguments(extra: Mapping[str, Any]) -> list[str]:
    """Those of `extra` that only `vllm serve` has."""
    return [key for key in extra if key not in ENGINE_ARGUMENTS and key in SERVER_ARGUMENTS]
