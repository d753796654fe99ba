"""Checks that both runtimes share: sizes before parsing, ranges, lists, tokens, and what grammars are made of."""

import json
import sys
import time
from typing import Any

import pytest

from tests.unit import pod_modules  # noqa: F401 makes the next two importable

import request_checks as checks  # isort: skip
from request_limits import RequestLimits  # isort: skip

LIMITS = RequestLimits()
VOCABULARY = 421


def refusal(values: dict[str, Any], limits: RequestLimits = LIMITS) -> str:
    with pytest.raises(checks.InvalidRequestError) as caught:
        checks.check_sampling(values, limits, VOCABULARY, "SAMPLING_PARAMETERS.")
    assert caught.value.field in values
    return str(caught.value)


GOOD: dict[str, Any] = {
    "temperature": 0,
    "top_p": 1,
    "top_k": -1,
    "min_p": 0.0,
    "seed": -(2**63),
    "stop": "end",
    "stop_token_ids": [0, VOCABULARY - 1],
    "logit_bias": {"5": -100, "6": 100.0},
    "bad_words": ["never"],
    "repetition_penalty": 1.2,
    "logprobs": True,
    "top_logprobs": 20,
    "max_tokens": None,
    "n": 16,
    "model": "a key that is none of ours",
}


def test_what_is_right_passes() -> None:
    checks.check_sampling(GOOD, LIMITS, VOCABULARY)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"stop_token_ids": [10**9]}, ("stop_token_ids", "1000000000", "421")),
        ({"stop_token_ids": [-1]}, ("-1", "vocabulary")),
        ({"stop_token_ids": [True]}, ("True",)),
        ({"stop_token_ids": "abc"}, ("list",)),
        ({"allowed_token_ids": [421]}, ("421", "vocabulary")),
        ({"logprob_token_ids": [1.5]}, ("1.5",)),
        ({"stop_token_ids": [1] * 1025}, ("1025", "1024")),
        ({"logit_bias": {"421": 1}}, ("421", "vocabulary")),
        ({"logit_bias": {"-1": 1}}, ("-1",)),
        ({"logit_bias": {"٣": 1}}, ("٣",)),
        ({"logit_bias": {"1": 101}}, ("101", "-100 to 100")),
        ({"logit_bias": {"1": float("inf")}}, ("inf",)),
        ({"logit_bias": {"1": float("nan")}}, ("nan",)),
        ({"logit_bias": [1]}, ("object",)),
        ({"stop": [""]}, ("empty",)),
        ({"stop": [7]}, ("7", "string")),
        ({"stop": ["x"] * 17}, ("17", "16")),
        ({"stop": "x" * 257}, ("257", "256")),
        ({"bad_words": [" "]}, ("empty",)),
        ({"bad_words": ["w"] * 65}, ("65", "64")),
        ({"bad_words": ["w" * 65]}, ("65", "64")),
        ({"repetition_penalty": 1e-40}, ("0.01", "100")),
        ({"repetition_penalty": 1e300}, ("0.01", "100")),
        ({"temperature": -0.5}, ("-0.5",)),
        ({"temperature": 2.5}, ("2.5",)),
        ({"temperature": float("nan")}, ("nan",)),
        ({"temperature": "0.9"}, ("'0.9'", "number")),
        ({"temperature": True}, ("True",)),
        ({"top_p": 0}, ("0 excluded",)),
        ({"top_p": 1.5}, ("1.5",)),
        ({"top_k": -5}, ("-5",)),
        ({"top_k": 1.0}, ("whole number",)),
        ({"seed": 2**63}, (str(2**63),)),
        ({"presence_penalty": 3}, ("3",)),
        ({"max_tokens": 0}, ("0",)),
        ({"max_completion_tokens": 2**40}, (str(2**40),)),
        ({"n": 0}, ("0",)),
        ({"logprobs": -1}, ("-1", "20")),
        ({"prompt_logprobs": 21}, ("21", "20")),
        ({"ignore_eos": 1}, ("true or false",)),
    ],
)
def test_what_is_wrong_is_refused_by_name(values: dict[str, Any], words: tuple[str, ...]) -> None:
    said = refusal(values)
    (name,) = values
    for word in (f"SAMPLING_PARAMETERS.{name}: ", *words):
        assert word in said


def test_an_answer_is_no_longer_than_the_service_allows() -> None:
    limits = RequestLimits(max_answer_tokens=100)
    assert "more than the limit of 100" in refusal({"max_tokens": 101}, limits)
    checks.check_sampling({"max_tokens": 100}, limits, VOCABULARY)


def test_messages_can_be_sent_whatever_they_repeat() -> None:
    said = refusal({"stop": [["\ud83d" * 10_000]]})
    assert said.encode()
    assert len(said) < 500


# JSON ---------------------------------------------------------------------------------------------------------------


def parse(text: str, size: int = 4_000_000) -> Any:
    return checks.parse_json(text, "the body", size)


@pytest.mark.parametrize(
    "text", ['{"a": ["[[[[", "\\"]}", {"b": null}]}', "[]", '"text"', '{"a": "\\ud83d\\ude00"}', "1e308"]
)
def test_json_is_read_as_the_standard_library_reads_it(text: str) -> None:
    assert parse(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 120_000, "nested more than 64 deep"),
        ('{"a":' * 65, "nested more than 64 deep"),
        ("[" + "1," * 50_001 + "1]", "more than 50000 values"),
        ("{", "not JSON"),
        ('{"a": 1e999}', "1e999 is not a number"),
        ('{"a": NaN}', "NaN is not a number"),
        ("9" * 5000, "not JSON"),
        ('{"\\ud83d": 1}', "not Unicode"),
        ('["\\udc00 \\ud800"]', "not Unicode"),
    ],
)
def test_what_is_no_document_is_refused(text: str, words: str) -> None:
    with pytest.raises(checks.InvalidRequestError, match=words):
        parse(text)


def test_size_is_looked_at_first() -> None:
    with pytest.raises(checks.InvalidRequestError, match="has 11 bytes; the limit is 10"):
        parse("[" * 11, 10)


@pytest.mark.parametrize("text", ['"' + '\\"' * 1_000_000, '"' * 1_000_001, "\\" * 2_000_000, '["' + "a" * 2_000_000])
def test_no_text_costs_more_than_its_length(text: str) -> None:
    """A scan that goes back would take hours for these; the limit is for a busy machine."""
    began = time.process_time()
    with pytest.raises(checks.InvalidRequestError):
        parse(text)
    assert time.process_time() - began < 10


# Structured outputs -------------------------------------------------------------------------------------------------


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]{1,64}$"}, "kind": {"enum": ["a", "b"]}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    "value",
    [
        {"json": PERSON},
        {"json": json.dumps(PERSON)},
        {"regex": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}"},
        {"choice": ["yes", "no"]},
        {"json_object": True},
        {"grammar": 'root ::= "a" | b\nb ::= "b"'},
        {"json": nested(30)},
    ],
)
def test_usual_structures_pass(value: Any) -> None:
    checks.check_structure(value, LIMITS, "structured_outputs")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"json": {"enum": ["x"] * 501}}, "more than 500 choices"),
        ({"json": {"anyOf": [{"enum": ["x"] * 300}, {"enum": ["y"] * 300}]}}, "more than 500 choices"),
        ({"json": json.dumps({"enum": ["x"] * 501})}, "more than 500 choices"),
        ({"json": {"enum": ["x" * 100] * 400}}, "more than 32768 bytes"),
        ({"choice": ["x"] * 501}, "more than 500 choices"),
        ({"regex": "a" * 40_000}, "more than 32768 bytes"),
        ({"regex": "€" * 20_000}, "more than 32768 bytes"),
        ({"regex": "[a-z]{1,100000}"}, "repeats more than"),
        ({"json": {"pattern": "a{99999999999999}"}}, "repeats more than"),
        ({"json": {"minLength": 10**9}}, "minLength"),
        ({"json": nested(300)}, "nested more than 32"),
        ({"json": json.dumps(nested(60))}, "nested more than 32"),
        ({"json": json.dumps(nested(300))}, "nested more than 32"),
        ({"json": {"properties": {str(i): {"$ref": "#/a"} for i in range(300)}}}, "more than 256 references"),
        ({"grammar": "\n".join(f'r{i} ::= "a"' for i in range(300))}, "more than 256 references or rules"),
        ({"json": {"properties": {f"{'p' * 100}{i}": {} for i in range(400)}}}, "more than 32768 bytes"),
        ({"json": "{"}, "structured_outputs.json is not JSON"),
    ],
)
def test_what_would_hold_up_others_is_refused(value: Any, words: str) -> None:
    with pytest.raises(checks.InvalidRequestError, match=words):
        checks.check_structure(value, LIMITS, "structured_outputs")


def test_the_walk_needs_no_stack() -> None:
    value: Any = []
    for _ in range(sys.getrecursionlimit() * 3):
        value = [value]
    with pytest.raises(checks.InvalidRequestError, match="nested"):
        checks.check_structure(value, LIMITS, "tools")
