"""Tensors of a request → what the engine gets. Everything that can be wrong with a request is said here.

A wrong value must never reach the engine: it is one process for everybody. vLLM's SamplingParams checks ranges but not
types, so the values of SAMPLING_PARAMETERS are converted by msgspec to the types that vLLM declares.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import numpy as np
from engine_config import unknown_key
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

SAMPLING_KEYS = frozenset(
    [
        "allowed_token_ids",
        "bad_words",
        "frequency_penalty",
        "ignore_eos",
        "include_stop_str_in_output",
        "logit_bias",
        "max_tokens",
        "min_p",
        "min_tokens",
        "presence_penalty",
        "repetition_penalty",
        "seed",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop",
        "stop_token_ids",
        "temperature",
        "top_k",
        "top_p",
    ]
)
"""vLLM sampling parameters that a request may set. `n` and log probabilities have no place in the answer's tensors."""
OUR_KEYS = frozenset(("lora_name", "priority", "structured_outputs"))
STRUCTURED_KEYS = frozenset(("json", "regex", "choice", "grammar", "json_object", "structural_tag"))
_MAX_INT = 2**31 - 1
_MAX_SEED = 2**63 - 1


class InvalidRequestError(ValueError):
    """The request cannot be served as it is: INVALID_ARG, with this message."""


@dataclass(frozen=True)
class ModelLimits:
    """What requests are checked against."""

    max_model_len: int
    vocabulary: int
    longest_token: int
    """Characters of the vocabulary's longest entry: a prompt of n characters has at least n / longest_token tokens."""
    defaults: Mapping[str, Any]
    """Sampling parameters of the model's own generation config."""
    lora_adapters: frozenset[str]
    priorities: bool
    """Whether the engine orders waiting requests by priority; else by arrival."""


@dataclass
class ParsedRequest:
    """A request that is sound as far as can be said without its tokens."""

    prompt: str
    stream: bool
    exclude_prompt: bool
    params: SamplingParams
    max_tokens_given: bool
    lora_name: str | None
    priority: int


def parse(tensors: Mapping[str, np.ndarray | None], limits: ModelLimits) -> ParsedRequest:
    """Checks a request's tensors (by name; None where not given).

    Raises:
        InvalidRequestError: with the reason.
    """
    prompt = _text(tensors, "PROMPT")
    if not prompt:
        raise InvalidRequestError("PROMPT is missing or empty")
    if len(prompt) > limits.max_model_len * limits.longest_token:
        raise InvalidRequestError(
            f"PROMPT has {len(prompt)} characters, at least {len(prompt) // limits.longest_token} tokens; the model "
            f"takes {limits.max_model_len} tokens including the answer"
        )
    stream = bool(_scalar(tensors, "STREAM", False))
    exclude_prompt = bool(_scalar(tensors, "EXCLUDE_PROMPT", True))
    if stream and not exclude_prompt:
        raise InvalidRequestError("EXCLUDE_PROMPT false does not go with STREAM true: a stream has new text only")
    extra = _sampling_document(_text(tensors, "SAMPLING_PARAMETERS"))
    lora_name, priority = extra.pop("lora_name", None), extra.pop("priority", 0)
    if lora_name is not None and lora_name not in limits.lora_adapters:
        known = ", ".join(sorted(limits.lora_adapters)) or "none"
        raise InvalidRequestError(
            f"SAMPLING_PARAMETERS.lora_name: {lora_name!r} is not an adapter here (there is: {known})"
        )
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _MAX_INT:
        raise InvalidRequestError(f"SAMPLING_PARAMETERS.priority: {priority!r} is not a whole number")
    if priority and not limits.priorities:
        raise InvalidRequestError(
            f"SAMPLING_PARAMETERS.priority: {priority} has no effect here, requests are served as they arrive "
            "(engine.json would say engine.scheduling_policy: priority)"
        )
    structured = _structured_outputs(extra.pop("structured_outputs", None))
    values = {**limits.defaults, **extra}
    for name, key in (("MAX_TOKENS", "max_tokens"), ("TEMPERATURE", "temperature")):
        value = _scalar(tensors, name, None)
        if value is not None:
            if not math.isfinite(value):
                raise InvalidRequestError(f"{name}: {value} is not a number to sample with")
            values[key] = value
    return ParsedRequest(
        prompt=prompt,
        stream=stream,
        exclude_prompt=exclude_prompt,
        params=_sampling_params(values, structured, limits),
        max_tokens_given=values.get("max_tokens") is not None,
        lora_name=lora_name,
        priority=priority,
    )


def fit(request: ParsedRequest, prompt_tokens: int, limits: ModelLimits) -> None:
    """Checks the lengths now that the prompt's is known, and fills in max_tokens where the request left it open."""
    room = limits.max_model_len - prompt_tokens
    if room < 1:
        raise InvalidRequestError(
            f"PROMPT has {prompt_tokens} tokens; the model takes {limits.max_model_len}, one of the answer among them"
        )
    if not request.max_tokens_given:
        request.params.max_tokens = room
    elif (request.params.max_tokens or 0) > room:
        raise InvalidRequestError(
            f"MAX_TOKENS {request.params.max_tokens} and the prompt's {prompt_tokens} tokens are more than the model's "
            f"{limits.max_model_len}; at most {room} are left"
        )
    if request.params.min_tokens > (request.params.max_tokens or 0):
        raise InvalidRequestError(f"min_tokens {request.params.min_tokens} is more than {request.params.max_tokens}")
    # One piece as the answer begins (it says that the request has left the queue) and one with the rest.
    request.params.stream_interval = None if request.stream else request.params.max_tokens


# Tensors ------------------------------------------------------------------------------------------------------------


def _scalar(tensors: Mapping[str, np.ndarray | None], name: str, default: Any) -> Any:
    array = tensors.get(name)
    if array is None:
        return default
    if array.size != 1:
        raise InvalidRequestError(f"{name} has shape {list(array.shape)}; it takes one value, shape [1]")
    return array.reshape(-1)[0].item() if array.dtype != np.object_ else array.reshape(-1)[0]


def _text(tensors: Mapping[str, np.ndarray | None], name: str) -> str:
    value = _scalar(tensors, name, b"")
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode("utf-8")
    except (UnicodeDecodeError, TypeError, ValueError) as error:
        raise InvalidRequestError(f"{name} is not UTF-8 text: {error}") from None


# Sampling parameters ------------------------------------------------------------------------------------------------


def _sampling_document(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"SAMPLING_PARAMETERS is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequestError(f"SAMPLING_PARAMETERS must be a JSON object, not {type(document).__name__}")
    for key in document:
        if key not in SAMPLING_KEYS | OUR_KEYS:
            raise InvalidRequestError(unknown_key(key, sorted(SAMPLING_KEYS | OUR_KEYS), "SAMPLING_PARAMETERS."))
    return {key: value for key, value in document.items() if value is not None}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number to sample with")


def _structured_outputs(value: Any) -> StructuredOutputsParams | None:
    if value is None:
        return None
    where = "SAMPLING_PARAMETERS.structured_outputs"
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{where} must be an object with one of {', '.join(sorted(STRUCTURED_KEYS))}")
    for key in value:
        if key not in STRUCTURED_KEYS:
            raise InvalidRequestError(unknown_key(key, sorted(STRUCTURED_KEYS), f"{where}."))
    try:
        return StructuredOutputsParams(**value)
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(f"{where}: {_first_line(error)}") from None


def _sampling_params(
    values: dict[str, Any], structured: StructuredOutputsParams | None, limits: ModelLimits
) -> SamplingParams:
    for key, value in values.items():  # the engine's tensors have 32 bits, and the generator's seed 64
        if isinstance(value, int) and abs(value) > (largest := _MAX_SEED if key == "seed" else _MAX_INT):
            raise InvalidRequestError(f"sampling parameters: {key} {value} is beyond {largest}")
    try:
        params = msgspec.convert({"max_tokens": None, **values}, SamplingParams, str_keys=True)
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError) as error:
        raise InvalidRequestError(f"sampling parameters: {_first_line(error)}") from None
    if outside := [token for token in params.stop_token_ids or () if not 0 <= token < limits.vocabulary]:
        raise InvalidRequestError(
            f"sampling parameters: stop_token_ids {outside[:5]} are outside the vocabulary ({limits.vocabulary} tokens)"
        )
    params.structured_outputs = structured
    params.output_kind = RequestOutputKind.DELTA
    params.skip_clone = structured is None  # made for this request alone
    return params


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
