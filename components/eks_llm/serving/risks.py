"""Arguments of vLLM that weaken what keeps clients, pods and node apart; a service has to accept them by name.

Source: vLLM's docs/usage/security.md and the docstrings of its configuration classes, version 0.27; read 2026-12-01.
"""

from collections.abc import Iterator
from typing import Any

_CODE = "the engine runs Python code that is named here, with the pod's rights"
_PEERS = "engines exchange it over ports that ask for no key and are not encrypted"
_TENSORS = "clients send tensors, and one of a wrong shape ends the engine for everybody"

RISKS = {
    "allowed_local_media_path": "requests may read the pod's files below this path",
    "ec_transfer_config": _PEERS,
    "enable_log_requests": "prompts stand in the log",
    "enable_mm_embeds": _TENSORS,
    "enable_prompt_embeds": _TENSORS,
    "io_processor_plugin": _CODE,
    "kv_events_config": "the tokens of all prompts are published on a port that asks for no key",
    "kv_transfer_config": _PEERS,
    "logits_processors": _CODE,
    "model_class_overrides": _CODE,
    "reasoning_parser_plugin": _CODE,
    "scheduler_cls": _CODE,
    "structured_outputs_config.reasoning_parser_plugin": _CODE,
    "trust_remote_code": "Python code that lies beside the weights runs in the engine, with the pod's rights",
    "weight_transfer_config": _PEERS,
    "worker_cls": _CODE,
    "worker_extension_cls": _CODE,
}
"""What each of them opens. Keys are names of `AsyncEngineArgs`, with a dot those of an object in it."""


def risky(engine: dict[str, Any]) -> Iterator[str]:
    """The arguments of an engine that are in use and weaken isolation. `engine`: values by vLLM's own names."""
    for argument in RISKS:
        value: Any = engine
        for key in argument.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value and value != "auto":  # vLLM's default of worker_cls
            yield argument
