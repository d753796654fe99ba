"""How much one request may ask for. Standard library only: `vllm serve`'s API servers read the same file as Triton.

An engine is one process for everybody, and so is the event loop of a front end: what a request may cost there has to be
known before any of it is done.
"""

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class RequestLimits:
    """Keys of engine.json's `limits` (in camelCase); a request beyond one of them is refused as wrong."""

    max_body_bytes: int = 4 * 1024 * 1024
    """A request as JSON: the body of a request to `vllm serve`, SAMPLING_PARAMETERS of one to Triton."""
    max_sequences: int = 16
    """Answers of one request: prompts times `n`."""
    max_answer_tokens: int = 0
    """Tokens of an answer, asked for or by default. 0: what the context leaves."""
    max_logprobs: int = 20
    """`logprobs`, `top_logprobs` and `prompt_logprobs`. 20 is what the OpenAI API allows."""
    max_stops: int = 16
    """Stop strings, of at most 256 characters each. The OpenAI API allows four."""
    max_token_ids: int = 1024
    """Entries of `stop_token_ids`, `allowed_token_ids`, `logprob_token_ids` and `logit_bias`."""
    max_bad_words: int = 64
    """Entries of `bad_words`, of at most 64 characters each: they are tokenised on the front end's event loop."""
    max_grammar_bytes: int = 32_768
    """A schema, regex, grammar or list of choices, or all tools of a request together. Compiling 32 KiB took xgrammar
    0.2.9 up to 2.5 CPU seconds with a vocabulary of 128,000 (properties; enums a tenth of it), and nothing stops it."""
    max_grammar_depth: int = 32
    """Objects and lists within each other in a schema. The OpenAI API allows ten levels, of two or three each."""
    max_enum_values: int = 500
    """Values of all enums, or choices. The OpenAI API allows 1,000."""
    max_references: int = 256
    """`$ref` in a schema, and rules in a grammar."""
    media_domains: tuple[str, ...] = ()
    """Hosts from which images, audio and video may be fetched (`vllm serve`). Empty: none; data URLs always work."""


def keys() -> dict[str, str]:
    """Field name by key of engine.json."""
    return {_camel(field.name): field.name for field in fields(RequestLimits)}


def read(section: dict[str, Any]) -> RequestLimits:
    """The limits of a checked `limits` section; what it leaves out has the default."""
    found = {name: section[key] for key, name in keys().items() if key in section}
    if "media_domains" in found:
        found["media_domains"] = tuple(found["media_domains"])
    return RequestLimits(**found)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
