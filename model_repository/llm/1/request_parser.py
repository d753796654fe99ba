"""Tensors and parameters of a request → what the engine gets. What both runtimes check is in request_checks.py.

A wrong value must never reach the engine: it is one process for everybody. vLLM's SamplingParams checks ranges but not
types, so the values of SAMPLING_PARAMETERS are converted by msgspec to the types that vLLM declares.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import request_checks as checks
from engine_config import unknown_key
from request_checks import InvalidRequestError
from request_limits import RequestLimits
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm_internals import CLIENT_ERRORS

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
OUR_KEYS = frozenset(("add_special_tokens", "lora_name", "priority", "structured_outputs"))
STRUCTURED_KEYS = frozenset(("json", "regex", "choice", "grammar", "json_object", "structural_tag"))
_WHERE = "SAMPLING_PARAMETERS."
_MAX_INT = 2**31 - 1


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
    request: RequestLimits
    """How much one request may ask for."""


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
    add_special_tokens: bool
    """Whether the tokenizer adds the model's own, such as BOS; a prompt that a chat template rendered has them."""


def parse(tensors: Mapping[str, np.ndarray | None], parameters: str, limits: ModelLimits) -> ParsedRequest:
    """Checks a request: its tensors (by name; None where not given) and Triton's request parameters (JSON).

    Clients of other servers send sampling parameters as request parameters, and Triton makes them of every key of an
    HTTP body that names no tensor. They count like those of SAMPLING_PARAMETERS.

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
    extra = _sampling_document(_text(tensors, "SAMPLING_PARAMETERS"), parameters, limits.request)
    for name, key in (("MAX_TOKENS", "max_tokens"), ("TEMPERATURE", "temperature")):
        value = _scalar(tensors, name, None)
        if value is not None:
            if not math.isfinite(value):
                raise InvalidRequestError(f"{name}: {value} is not a number to sample with")
            extra[key] = value
    lora_name, priority = extra.pop("lora_name", None), extra.pop("priority", 0)
    if lora_name is not None and (not isinstance(lora_name, str) or lora_name not in limits.lora_adapters):
        known = ", ".join(sorted(limits.lora_adapters)) or "none"
        raise InvalidRequestError(f"{_WHERE}lora_name: {lora_name!r} is not an adapter here (there is: {known})")
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _MAX_INT:
        raise InvalidRequestError(f"{_WHERE}priority: {priority!r} is not a whole number")
    if priority and not limits.priorities:
        raise InvalidRequestError(
            f"{_WHERE}priority: {priority} has no effect here, requests are served as they arrive "
            "(engine.json would say engine.scheduling_policy: priority)"
        )
    structured = _structured_outputs(extra.pop("structured_outputs", None), limits.request)
    checks.check_sampling(extra, limits.request, limits.vocabulary, _WHERE)
    special = extra.pop("add_special_tokens", True)
    return ParsedRequest(
        prompt=prompt,
        stream=stream,
        exclude_prompt=exclude_prompt,
        params=_sampling_params({**limits.defaults, **extra}, structured),
        max_tokens_given="max_tokens" in extra,
        lora_name=lora_name,
        priority=priority,
        add_special_tokens=special,
    )


def fit(request: ParsedRequest, prompt_tokens: int, limits: ModelLimits) -> None:
    """Checks the lengths now that the prompt's is known, and fills in max_tokens where the request left it open."""
    room = limits.max_model_len - prompt_tokens
    if room < 1:
        raise InvalidRequestError(
            f"PROMPT has {prompt_tokens} tokens; the model takes {limits.max_model_len}, one of the answer among them"
        )
    if not request.max_tokens_given:
        most = (request.params.max_tokens, limits.request.max_answer_tokens, room)
        request.params.max_tokens = min(limit for limit in most if limit)
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


def _sampling_document(text: str, parameters: str, limits: RequestLimits) -> dict[str, Any]:
    """SAMPLING_PARAMETERS and the request parameters as one document of known keys, without those that are null."""
    found: dict[str, Any] = {}
    for content, name in ((text, "SAMPLING_PARAMETERS"), (parameters, "the request's parameters")):
        if not content:
            continue
        document = checks.parse_json(content, name, limits.max_body_bytes)
        if not isinstance(document, dict):
            raise InvalidRequestError(f"{name} must be a JSON object, not {type(document).__name__}")
        for key, value in document.items():
            if key not in SAMPLING_KEYS | OUR_KEYS:
                where = _WHERE if content is text else "parameter "
                raise InvalidRequestError(unknown_key(key, sorted(SAMPLING_KEYS | OUR_KEYS), where))
            if found.get(key, value) != value:
                raise InvalidRequestError(f"{key} is given twice: {found[key]!r} in SAMPLING_PARAMETERS, and {value!r}")
            if value is not None:
                found[key] = value
    return found


def _structured_outputs(value: Any, limits: RequestLimits) -> StructuredOutputsParams | None:
    if value is None:
        return None
    where = f"{_WHERE}structured_outputs"
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{where} must be an object with one of {', '.join(sorted(STRUCTURED_KEYS))}")
    for key in value:
        if key not in STRUCTURED_KEYS:
            raise InvalidRequestError(unknown_key(key, sorted(STRUCTURED_KEYS), f"{where}."))
    if len(given := [key for key in value if value[key] is not None]) != 1:
        raise InvalidRequestError(f"{where} takes one of {', '.join(sorted(STRUCTURED_KEYS))}, not {given}")
    checks.check_structure(value, limits, where)
    try:
        return StructuredOutputsParams(**value)
    except (*CLIENT_ERRORS, TypeError) as error:
        raise InvalidRequestError(f"{where}: {checks.reason(error)}") from None


def _sampling_params(values: dict[str, Any], structured: StructuredOutputsParams | None) -> SamplingParams:
    try:
        params = msgspec.convert({"max_tokens": None, **values}, SamplingParams, str_keys=True)
    except (*CLIENT_ERRORS, msgspec.ValidationError, TypeError, OverflowError) as error:
        raise InvalidRequestError(f"sampling parameters: {checks.reason(error)}") from None
    params.structured_outputs = structured
    params.output_kind = RequestOutputKind.DELTA
    params.skip_clone = structured is None  # made for this request alone
    return params
