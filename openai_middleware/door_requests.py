"""What a request to `vllm serve` may say, by route. The checks that Triton shares are in request_checks.py."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast
from urllib.parse import urlsplit

import request_checks as checks
from request_checks import InvalidRequestError
from request_limits import RequestLimits

WITHOUT_EFFECT = frozenset(
    (
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    )
)
"""Keys of the OpenAI API that vLLM ignores and that change no answer; its clients send them to every server."""
CLOSED = {
    "ec_transfer_params": "is for servers that share caches with each other",
    "kv_transfer_params": "is for servers that share caches with each other",
    "media_io_kwargs": "would set up the decoders of this server",
    "mm_processor_kwargs": "would set up the processors of this server",
    "prompt_embeds": "is not served here; send text or tokens",
}
"""Keys that vLLM passes on unchecked, to parts that are everybody's."""
STRUCTURES = ("response_format", "structured_outputs", "text", "tools")
"""Keys whose values become grammars."""
_MEDIA = ("messages", "input")


@dataclass(frozen=True)
class Model:
    """What requests are checked against."""

    vocabulary: int
    priorities: bool
    """Whether the engine orders waiting requests by priority; else by arrival."""
    fields: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
    """Keys that vLLM knows, by path."""


def check(path: str, document: Any, limits: RequestLimits, model: Model) -> int:
    """Checks the body of a POST; returns how many answers it asks for.

    Raises:
        InvalidRequestError: names the key.
    """
    if not isinstance(document, dict):
        raise InvalidRequestError(f"the body must be a JSON object, not {type(document).__name__}")
    body = cast(dict[str, Any], document)
    _check_keys(body, model.fields.get(path))
    if (priority := body.get("priority")) and not model.priorities:
        wrong("priority", f"{priority!r} has no effect here: requests are served as they arrive")
    scores = body.get("echo") is True and body.get("max_tokens") == 0  # of the prompt alone: nothing is generated
    checks.check_sampling({**body, "max_tokens": None} if scores else body, limits, model.vocabulary)
    for key in STRUCTURES:
        if body.get(key) is not None:
            kind = list if key == "tools" else dict
            if not isinstance(body[key], kind):
                wrong(key, f"{body[key]!r} is not {'a list' if kind is list else 'an object'}")
            checks.check_structure(body[key], limits, key)
    for key in _MEDIA:
        _check_media(key, body.get(key), limits)
    return _sequences(body, limits)


def has_structure(document: Mapping[str, Any]) -> bool:
    """Whether a grammar is compiled for it."""
    return any(document.get(key) for key in STRUCTURES)


def wrong(key: str, message: str) -> NoReturn:
    raise InvalidRequestError(f"{key}: {message}", key)


def _check_keys(body: Mapping[str, Any], known: Collection[str] | None) -> None:
    for key, value in body.items():
        if key in CLOSED and value is not None:
            wrong(key, CLOSED[key])
        if known is not None and key not in known and key not in WITHOUT_EFFECT:
            near = difflib.get_close_matches(key[:100], [*known], n=1, cutoff=0.5)
            wrong(key[:100], f"no such key{f' (did you mean {near[0]}?)' if near else ''}")


def _sequences(body: Mapping[str, Any], limits: RequestLimits) -> int:
    prompt: Any = body.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
    answers = body.get("n") or 1
    best = body.get("best_of")
    if best is not None and best != answers:
        wrong("best_of", f"{best!r} is not n ({answers}): all answers are returned")
    if prompts * answers > limits.max_sequences:
        key = "n" if answers > 1 else "prompt"
        wrong(key, f"{prompts} prompts of {answers} answers each are more than the limit of {limits.max_sequences}")
    return prompts * answers


def _check_media(where: str, value: Any, limits: RequestLimits) -> None:
    """An address in a message is fetched by the server, with whatever the server may reach."""
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        key, node = pending.pop()
        if isinstance(node, dict):
            pending.extend(cast(dict[str, Any], node).items())
        elif isinstance(node, list):
            pending.extend((key, item) for item in cast(list[Any], node))
        elif isinstance(node, str) and (key == "url" or key.endswith("_url")):
            _check_address(where, node, limits)


def _check_address(where: str, address: str, limits: RequestLimits) -> None:
    if address[:5].lower() == "data:":
        return
    try:
        parts = urlsplit(address)
        host = (parts.hostname or "").lower()
    except ValueError:
        wrong(where, f"{address[:100]!r} is not an address")
    if parts.scheme not in ("http", "https"):
        wrong(where, f"{parts.scheme or 'an address without scheme'}: only data, http and https are served")
    if "\\" in address or "@" in parts.netloc or host not in limits.media_domains:
        allowed = ", ".join(limits.media_domains) or "none; send the data itself"
        wrong(where, f"{host[:100]!r} is not a host from which media may be fetched (there is: {allowed})")
