"""engine.json: read, validated, typed. Standard library only, so it can be checked without vLLM.

Every problem is named with its key path and what would be right; an unknown key with the nearest valid one.
"""

import difflib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import request_limits
from request_limits import RequestLimits

DEFAULT_PATH = "/etc/eks-llm/engine.json"
SCHEMA = 1


class ConfigError(ValueError):
    """engine.json, or what it points to, cannot be served. The message has one line per problem."""


@dataclass(frozen=True)
class Limits:
    """What is accepted before a request is refused with UNAVAILABLE. All numbers are for the pod, not per front end."""

    max_queued_requests: int
    """Requests beyond the engine's `max_num_seqs` that may wait."""
    max_queued_tokens: int
    """Prompt tokens of requests that have not produced a token yet."""
    request_timeout_seconds: float
    """From arrival to last token; a shorter deadline of the request itself wins."""


@dataclass(frozen=True)
class EngineConfig:
    """The content of engine.json."""

    model: str
    """Directory of the model in the container (config.json, tokenizer, safetensors)."""
    served_model_name: str
    """Label `model_name` of the metrics."""
    frontends: int
    """Triton instances in front of the engine; equals instance_group's count."""
    engine: Mapping[str, Any]
    """vLLM's AsyncEngineArgs by name."""
    lora_adapters: Mapping[str, str]
    """Adapter name → directory in the container."""
    limits: Limits
    requests: RequestLimits
    """How much one request may ask for; the rest of `limits`."""
    drain_seconds: float
    """Triton's --exit-timeout-secs: how long streams in flight may go on after SIGTERM."""
    stall_seconds: float
    """Without an engine step for this long while requests wait, the engine counts as hung."""
    stale_seconds: float
    """Without an engine step for this long while requests wait, the pod is not ready: requests go to another one."""
    metrics_port: int
    """Where the engine's metrics are served."""


def _default(name: str) -> Any:
    value = getattr(RequestLimits(), name)
    return list(value) if isinstance(value, tuple) else value


# Keys of each section: (JSON type, required, default).
_NUMBER, _INTEGER = (int, float), int
_SECTIONS: dict[str, dict[str, tuple[Any, bool, Any]]] = {
    "": {
        "schema": (_INTEGER, True, None),
        "model": (str, True, None),
        "servedModelName": (str, True, None),
        "frontends": (_INTEGER, True, None),
        "engine": (dict, True, None),
        "loraAdapters": (dict, False, {}),
        "limits": (dict, False, {}),
        "drain": (dict, False, {}),
        "health": (dict, False, {}),
        "metrics": (dict, False, {}),
    },
    "limits": {
        "maxQueuedRequests": (_INTEGER, False, 256),
        "maxQueuedTokens": (_INTEGER, False, 1_000_000),
        "requestTimeoutSeconds": (_NUMBER, False, 600),
        **{
            key: (list if name == "media_domains" else _INTEGER, False, _default(name))
            for key, name in request_limits.keys().items()
        },
    },
    "drain": {"exitTimeoutSeconds": (_NUMBER, False, 600)},
    "health": {"stallSeconds": (_NUMBER, False, 120), "staleSeconds": (_NUMBER, False, 10)},
    "metrics": {"port": (_INTEGER, False, 8003), "intervalSeconds": (_NUMBER, False, 1)},
}
_TYPE_NAMES = {str: "a string", dict: "an object", list: "a list", int: "an integer", _NUMBER: "a number"}
_EXPLICIT = ("max_model_len", "max_num_seqs", "max_num_batched_tokens")
"""Engine settings whose defaults depend on the caller or the GPU; a deployment must say them."""
_OURS = ("model", "served_model_name", "disable_log_stats", "lora_modules", "stat_loggers", "shutdown_timeout")
"""Engine settings that other keys of engine.json or this model decide."""


def path() -> Path:
    """Where engine.json is: EKS_LLM_ENGINE_CONFIG or the default."""
    return Path(os.environ.get("EKS_LLM_ENGINE_CONFIG", DEFAULT_PATH))


def load(file: Path | None = None) -> EngineConfig:
    """Reads and checks engine.json.

    Raises:
        ConfigError: the file is missing, not JSON, or says something that cannot be.
    """
    file = file or path()
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file (set EKS_LLM_ENGINE_CONFIG, or mount it there)") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    problems: list[str] = []
    values = _section("", document, problems)
    if problems:  # without sound sections the rules below would only repeat what is said already
        raise ConfigError("\n".join(f"{file}: {problem}" for problem in problems))
    sections = {name: _section(name, values[name], problems) for name in _SECTIONS if name}
    _check(values, sections, problems)
    if problems:
        raise ConfigError("\n".join(f"{file}: {problem}" for problem in problems))
    return EngineConfig(
        model=values["model"],
        served_model_name=values["servedModelName"],
        frontends=values["frontends"],
        engine=values["engine"],
        lora_adapters=values["loraAdapters"],
        limits=Limits(
            max_queued_requests=sections["limits"]["maxQueuedRequests"],
            max_queued_tokens=sections["limits"]["maxQueuedTokens"],
            request_timeout_seconds=sections["limits"]["requestTimeoutSeconds"],
        ),
        requests=request_limits.read(sections["limits"]),
        drain_seconds=sections["drain"]["exitTimeoutSeconds"],
        stall_seconds=sections["health"]["stallSeconds"],
        stale_seconds=sections["health"]["staleSeconds"],
        metrics_port=sections["metrics"]["port"],
    )


def unknown_key(key: str, valid: Iterable[str], where: str) -> str:
    """The message for a key that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(key[:100], list(valid), n=1, cutoff=0.5)
    return f"{where}{key[:100]}: no such key" + (f" (did you mean {near[0]}?)" if near else "")


def _section(name: str, document: Any, problems: list[str]) -> dict[str, Any]:
    keys, where = _SECTIONS[name], f"{name}." if name else ""
    if not isinstance(document, dict):
        problems.append(f"{name or 'top level'}: {document!r} is not an object")
        return {}
    problems.extend(unknown_key(key, keys, where) for key in document if key not in keys)
    values: dict[str, Any] = {}
    for key, (kind, required, default) in keys.items():
        value = document.get(key, default)
        if required and key not in document:
            problems.append(f"{where}{key}: missing")
        elif isinstance(value, bool) or not isinstance(value, kind):
            problems.append(f"{where}{key}: {value!r} is not {_TYPE_NAMES[kind]}")
        elif kind in (_INTEGER, _NUMBER) and value < 0:
            problems.append(f"{where}{key}: {value!r} is negative")
        values[key] = value
    return values


def _check(values: dict[str, Any], sections: dict[str, dict[str, Any]], problems: list[str]) -> None:
    if values["schema"] != SCHEMA:
        problems.append(f"schema: {values['schema']} is not {SCHEMA}, the one that this model repository reads")
    if values["frontends"] < 1:
        problems.append("frontends: must be at least 1")
    for name, adapter in values["loraAdapters"].items():
        if not isinstance(adapter, str):
            problems.append(f"loraAdapters.{name}: {adapter!r} is not a directory")
    for section, key in (("drain", "exitTimeoutSeconds"), ("health", "stallSeconds")):
        if sections[section][key] == 0:
            problems.append(f"{section}.{key}: must be more than 0")
    engine = values["engine"]
    problems.extend(f"engine.{key}: is set by this model repository; remove it" for key in _OURS if key in engine)
    for key in _EXPLICIT:
        value = engine.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            problems.append(f"engine.{key}: must be said (a whole number above 0), its default depends on the GPU")


def check_model_files(directory: str, config: str = "config.json") -> None:
    """Checks that a directory of a model (or of an adapter, by its `config`) is there and complete.

    The engine's own error would not name the file.

    Raises:
        ConfigError: names the directory or the file that is missing or cut short.
    """
    root = Path(directory)
    if not root.is_dir():
        raise ConfigError(f"model: {directory} is not a directory (are the weights downloaded and mounted there?)")
    if not (root / config).is_file():
        raise ConfigError(f"model: {root / config} is missing: {directory} holds no complete model")
    index = root / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError):
            raise ConfigError(f"model: {index} is cut short or not a safetensors index") from None
    else:
        names = sorted(file.name for file in root.glob("*.safetensors"))
    for name in names:
        _check_safetensors(root / name)


def _check_safetensors(file: Path) -> None:
    """A safetensors file says its own length: 8 bytes, a JSON header of that length, then the tensors."""
    if not file.is_file():
        raise ConfigError(f"model: {file} is missing (half-downloaded?)")
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            (header_length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(header_length, size)))
        tensors = [entry for key, entry in header.items() if key != "__metadata__"]
        expected = 8 + header_length + max((entry["data_offsets"][1] for entry in tensors), default=0)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"model: {file} is cut short or not a safetensors file ({size} bytes)") from None
    if size < expected:
        raise ConfigError(f"model: {file} is cut short: {size} of {expected} bytes (half-downloaded?)")
