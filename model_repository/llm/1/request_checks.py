"""Every check of a request that both runtimes share. Standard library only, see request_limits.py.

What is not checked here reaches an engine that serves everybody. vLLM looks at most ranges but not at sizes, and not at
`stop_token_ids`, which end the engine where they are outside the vocabulary.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

from request_limits import RequestLimits

STOP_CHARACTERS = 256
BAD_WORD_CHARACTERS = 64
DOCUMENT_DEPTH = 64
"""Of a request as a whole. A parser that recurses dies of some 100,000 levels."""
VALUES = 50_000
"""In a request, beside the tokens of a prompt: parsing holds Python's lock."""
LARGEST_REPEAT = 10_000
"""`{n,m}` in a regex, and the least sizes of a schema. `{1,100000}` took 3 CPU seconds to compile."""
MESSAGE_CHARACTERS = 400
_MAX_INT = 2**31 - 1

_TOKENS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]|,', re.DOTALL)
"""Strings as a whole (an open one to the end of the text: no text costs more than its length), and structure."""
_REPEATS = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_RULES = re.compile(r"^\s*[\w-]+\s*(?:::=|:)", re.MULTILINE)
_SIZES = frozenset(("minItems", "minLength", "minProperties"))


class InvalidRequestError(ValueError):
    """The request cannot be served as it is, for this reason, which names the field: INVALID_ARG, or status 400."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(clip(message))
        self.field = field


def clip(message: str) -> str:
    """A message that can be sent: it may repeat what the client wrote, of any length and with half characters."""
    text = message.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= MESSAGE_CHARACTERS else f"{text[:MESSAGE_CHARACTERS]}… ({len(text)} characters)"


def reason(error: BaseException | None) -> str:
    """An error's first line, with its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return clip(lines[0] if lines else type(error).__name__)


# JSON ---------------------------------------------------------------------------------------------------------------


def parse_json(text: str, where: str, max_bytes: int, max_depth: int = DOCUMENT_DEPTH, max_values: int = VALUES) -> Any:
    """Parses text whose size and shape are looked at first.

    Raises:
        InvalidRequestError: too long, too deep, too many values, not JSON, a number that is none, or half a character.
    """
    if len(text) > max_bytes:
        raise InvalidRequestError(f"{where} has {len(text)} bytes; the limit is {max_bytes}", where)
    depth = values = 0
    for token in _TOKENS.finditer(text):
        mark = text[token.start()]
        if mark in "[{":
            depth += 1
            if depth > max_depth:
                raise InvalidRequestError(f"{where} is nested more than {max_depth} deep", where)
        elif mark in "]}":
            depth -= 1
        elif mark == "," and (values := values + 1) > max_values:
            raise InvalidRequestError(f"{where} has more than {max_values} values", where)
    try:
        document = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        if "\\u" in text:
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{where} is not Unicode text: {error.reason}", where) from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{where} is not JSON: {error}", where) from None
    return document


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number to sample with")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


# Sampling parameters ------------------------------------------------------------------------------------------------

_RANGES: dict[str, tuple[float, float, type]] = {
    "frequency_penalty": (-2, 2, float),
    "length_penalty": (-10, 10, float),
    "max_completion_tokens": (1, _MAX_INT, int),
    "max_output_tokens": (1, _MAX_INT, int),
    "max_tokens": (1, _MAX_INT, int),
    "min_p": (0, 1, float),
    "min_tokens": (0, _MAX_INT, int),
    "n": (1, _MAX_INT, int),
    "presence_penalty": (-2, 2, float),
    "repetition_penalty": (0.01, 100, float),  # logits are divided by it: nearer to 0 they are no numbers any more
    "seed": (-(2**63), 2**63 - 1, int),
    "temperature": (0, 2, float),
    "top_k": (-1, _MAX_INT, int),
    "top_p": (0, 1, float),
    "truncate_prompt_tokens": (-1, _MAX_INT, int),
}
"""Smallest and largest value: those of the OpenAI API and of vLLM (`SamplingParams._verify_args`), if they have one."""
_BOOLEANS = (
    "add_special_tokens",
    "echo",
    "ignore_eos",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stream",
    "use_beam_search",
)
_LOGPROBS = ("logprobs", "top_logprobs", "prompt_logprobs")
_TOKENS_OF = ("stop_token_ids", "allowed_token_ids", "logprob_token_ids")


def check_sampling(values: Mapping[str, Any], limits: RequestLimits, vocabulary: int, where: str = "") -> None:
    """Checks sampling parameters by name; a null means that the parameter is not given.

    Raises:
        InvalidRequestError: names the first that cannot be, after `where`.
    """

    def wrong(name: str, message: str) -> NoReturn:
        raise InvalidRequestError(f"{where}{name}: {message}", name)

    for name, value in values.items():
        if value is None:
            continue
        if name in _RANGES:
            _check_range(name, value, wrong)
        elif name in _BOOLEANS and not isinstance(value, bool):
            wrong(name, f"{value!r} is not true or false")
        elif name in _LOGPROBS and not (isinstance(value, int) and 0 <= value <= limits.max_logprobs):
            wrong(name, f"{value!r} is not a whole number from 0 to {limits.max_logprobs}")
        elif name in _TOKENS_OF:
            _check_tokens(name, value, limits, vocabulary, wrong)
        elif name == "logit_bias":
            _check_bias(value, limits, vocabulary, wrong)
        elif name in ("stop", "bad_words"):
            _check_strings(name, [value] if isinstance(value, str) and name == "stop" else value, limits, wrong)
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        if limits.max_answer_tokens and (values.get(name) or 0) > limits.max_answer_tokens:
            wrong(name, f"{values[name]} is more than the limit of {limits.max_answer_tokens}")


Wrong = Callable[[str, str], NoReturn]


def _check_range(name: str, value: Any, wrong: Wrong) -> None:
    low, high, kind = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        wrong(name, f"{value!r} is not {'a number' if kind is float else 'a whole number'} ({kind.__name__})")
    if not low <= value <= high or (name == "top_p" and not value):
        wrong(name, f"{value} is not from {low:g} to {high:g}{', 0 excluded' if name == 'top_p' else ''}")


def _check_list(name: str, value: Any, limit: int, wrong: Wrong) -> list[Any]:
    if not isinstance(value, list):
        wrong(name, f"{value!r} is not a list")
    entries = cast(list[Any], value)
    if len(entries) > limit:
        wrong(name, f"has {len(entries)} entries; the limit is {limit}")
    return entries


def _check_strings(name: str, value: Any, limits: RequestLimits, wrong: Wrong) -> None:
    words = name == "bad_words"
    longest = BAD_WORD_CHARACTERS if words else STOP_CHARACTERS
    for entry in _check_list(name, value, limits.max_bad_words if words else limits.max_stops, wrong):
        if not isinstance(entry, str):
            wrong(name, f"{entry!r} is not a string (str)")
        if not (entry.strip() if words else entry):
            wrong(name, f"{entry!r} is empty")
        if len(entry) > longest:
            wrong(name, f"an entry has {len(entry)} characters; the limit is {longest}")


def _check_tokens(name: str, value: Any, limits: RequestLimits, vocabulary: int, wrong: Wrong) -> None:
    tokens = _check_list(name, value, limits.max_token_ids, wrong)
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int):
            wrong(name, f"{token!r} is not a token, which is a whole number")
    if outside := [token for token in tokens if not 0 <= token < vocabulary]:
        wrong(name, f"{outside[:5]} are outside the vocabulary ({vocabulary} tokens)")


def _check_bias(value: Any, limits: RequestLimits, vocabulary: int, wrong: Wrong) -> None:
    name = "logit_bias"
    if not isinstance(value, dict):
        wrong(name, f"{value!r} is not an object of token and bias")
    biases = cast(dict[str, Any], value)
    if len(biases) > limits.max_token_ids:
        wrong(name, f"has {len(biases)} entries; the limit is {limits.max_token_ids}")
    for token, bias in biases.items():
        if not re.fullmatch(r"\d{1,10}", token, re.ASCII):
            wrong(name, f"{token!r} is not a token, which is a whole number")
        if int(token) >= vocabulary:
            wrong(name, f"{token} is outside the vocabulary ({vocabulary} tokens)")
        if isinstance(bias, bool) or not isinstance(bias, (int, float)) or not -100 <= bias <= 100:
            wrong(name, f"{bias!r} for {token} is not a number from -100 to 100")


# Structured outputs -------------------------------------------------------------------------------------------------


def check_structure(value: Any, limits: RequestLimits, where: str) -> None:
    """Checks whatever a grammar is made of: a schema (as an object or as text), a regex, a grammar, choices, tools.

    Raises:
        InvalidRequestError: it is larger than the limits. Whether it is right is for the grammar's own library to say.
    """
    measured = _Structure(limits, where)
    pending: list[tuple[str, Any, int]] = [("", value, 0)]
    while pending:
        key, node, depth = pending.pop()
        if depth > limits.max_grammar_depth:
            measured.wrong(f"is nested more than {limits.max_grammar_depth} deep")
        measured.size += len(key.encode()) + 2
        if isinstance(node, str):
            if (document := measured.add_text(key, node)) is not None:
                pending.append(("", document, depth))
        elif isinstance(node, dict):
            pending.extend((name, entry, depth + 1) for name, entry in cast(dict[str, Any], node).items())
        elif isinstance(node, list):
            items = cast(list[Any], node)
            measured.values += len(items) if key in ("enum", "choice") else 0
            pending.extend(("", item, depth + 1) for item in items)
        elif key in _SIZES and isinstance(node, (int, float)) and node > LARGEST_REPEAT:
            measured.wrong(f"{key} {node} is more than {LARGEST_REPEAT}")
        measured.check()


class _Structure:
    """What a grammar would be made of, so far."""

    def __init__(self, limits: RequestLimits, where: str) -> None:
        self.limits, self.where = limits, where
        self.size = self.values = self.references = 0

    def wrong(self, message: str) -> NoReturn:
        raise InvalidRequestError(f"{self.where}: {message}", self.where)

    def add_text(self, key: str, text: str) -> Any:
        """Counts a string by what it is for; returns the document that is in it, if it is one."""
        self.size += len(text.encode())
        self.check()
        if key in ("json", "structural_tag"):  # nobody has looked into it yet
            return parse_json(text, f"{self.where}.{key}", self.limits.max_grammar_bytes, self.limits.max_grammar_depth)
        if key in ("pattern", "regex"):
            for bounds in _REPEATS.findall(text):
                if any(len(bound) > 10 or int(bound or 0) > LARGEST_REPEAT for bound in bounds):
                    self.wrong(f"the regex repeats more than {LARGEST_REPEAT} times")
        elif key in ("grammar", "definition"):
            self.references += len(_RULES.findall(text))
        self.references += key in ("$ref", "$dynamicRef", "$recursiveRef")
        return None

    def check(self) -> None:
        limits = self.limits
        if self.size > limits.max_grammar_bytes:
            self.wrong(f"has more than {limits.max_grammar_bytes} bytes, which is the limit")
        if self.values > limits.max_enum_values:
            self.wrong(f"has more than {limits.max_enum_values} choices or enum values, which is the limit")
        if self.references > limits.max_references:
            self.wrong(f"has more than {limits.max_references} references or rules, which is the limit")
