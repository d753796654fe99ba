"""Every wrong request is answered INVALID_ARG with the reason, and harms no other request."""

# pyright: reportMissingImports=false

import asyncio
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as grpc_aio

from embedded.tiny_model import CONTEXT
from tests.serving.client import ask, ask_all, generate, tensors
from tests.serving.reference import Reference
from tests.serving.server import Server

GOOD: dict[str, Any] = {"PROMPT": "The quick brown fox", "MAX_TOKENS": 8, "TEMPERATURE": 0.0}

WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "empty prompt": ({"PROMPT": ""}, ("PROMPT", "empty")),
    "prompt is not UTF-8": ({"PROMPT": b"\xff\xfe\xfd"}, ("PROMPT", "UTF-8")),
    "no tokens": ({"MAX_TOKENS": 0}, ("max_tokens", "0")),
    "negative tokens": ({"MAX_TOKENS": -5}, ("max_tokens", "-5")),
    "more tokens than the context": ({"MAX_TOKENS": CONTEXT}, ("MAX_TOKENS", str(CONTEXT), "at most")),
    "NaN temperature": ({"TEMPERATURE": float("nan")}, ("TEMPERATURE", "nan")),
    "infinite temperature": ({"TEMPERATURE": float("inf")}, ("TEMPERATURE", "inf")),
    "negative temperature": ({"TEMPERATURE": -0.5}, ("temperature", "-0.5")),
    "not JSON": ({"SAMPLING_PARAMETERS": "{"}, ("SAMPLING_PARAMETERS", "JSON")),
    "not an object": ({"SAMPLING_PARAMETERS": "[1]"}, ("SAMPLING_PARAMETERS", "object")),
    "unknown parameter": ({"SAMPLING_PARAMETERS": {"top_q": 1}}, ("top_q", "did you mean top_")),
    "NaN in JSON": ({"SAMPLING_PARAMETERS": '{"top_p": NaN}'}, ("NaN",)),
    "text for a number": ({"SAMPLING_PARAMETERS": {"top_p": "0.9"}}, ("top_p", "float")),
    "top_p out of range": ({"SAMPLING_PARAMETERS": {"top_p": 1.5}}, ("top_p", "1.5")),
    "top_k beyond 32 bit": ({"SAMPLING_PARAMETERS": {"top_k": 2**40}}, ("top_k",)),
    "seed beyond 64 bit": ({"SAMPLING_PARAMETERS": {"seed": 2**70}}, ("seed",)),
    "numbers for stop": ({"SAMPLING_PARAMETERS": {"stop": [1, 2]}}, ("stop", "str")),
    "empty stop string": ({"SAMPLING_PARAMETERS": {"stop": [""]}}, ("stop",)),
    "stop token outside the vocabulary": (
        {"SAMPLING_PARAMETERS": {"stop_token_ids": [99999]}},
        ("99999", "vocabulary"),
    ),
    "bias outside the vocabulary": ({"SAMPLING_PARAMETERS": {"logit_bias": {"99999": 1}}}, ("99999",)),
    "several answers": ({"SAMPLING_PARAMETERS": {"n": 2}}, ("n: no such key",)),
    "unknown LoRA": ({"SAMPLING_PARAMETERS": {"lora_name": "nobody"}}, ("nobody", "adapter")),
    "priority is no number": ({"SAMPLING_PARAMETERS": {"priority": "high"}}, ("priority",)),
    "invalid regex": ({"SAMPLING_PARAMETERS": {"structured_outputs": {"regex": "(["}}}, ("regex",)),
    "invalid grammar": ({"SAMPLING_PARAMETERS": {"structured_outputs": {"grammar": "root ::= ("}}}, ("grammar",)),
    "invalid schema": (
        {"SAMPLING_PARAMETERS": {"structured_outputs": {"json": {"type": "nothing"}}}},
        ("structured_outputs", "nothing"),
    ),
    "two structures": ({"SAMPLING_PARAMETERS": {"structured_outputs": {"json": {}, "regex": "a"}}}, ("structured",)),
    "empty choice": ({"SAMPLING_PARAMETERS": {"structured_outputs": {"choice": []}}}, ("choice",)),
    "min_tokens above MAX_TOKENS": ({"SAMPLING_PARAMETERS": {"min_tokens": 9}}, ("min_tokens", "9")),
    "prompt kept in a stream": ({"STREAM": True, "EXCLUDE_PROMPT": False}, ("EXCLUDE_PROMPT",)),
    "two prompts": ({"PROMPT": np.array([b"a", b"b"], np.object_)}, ("PROMPT", "shape")),
    "wrong type": ({"MAX_TOKENS": np.array([8], np.int64)}, ("MAX_TOKENS", "INT64")),
}


@pytest.mark.parametrize("name", WRONG)
def test_is_answered_with_the_reason(server: Server, name: str) -> None:
    change, words = WRONG[name]
    (seen,) = ask_all(server.grpc, tensors(**{**GOOD, **change}))
    assert seen.error is not None, f"was answered with {seen.text!r}"
    for word in words:
        assert word.lower() in seen.error.lower()


def test_prompt_missing(server: Server) -> None:
    (seen,) = ask_all(server.grpc, tensors(MAX_TOKENS=4))
    assert seen.error is not None
    assert "PROMPT" in seen.error


def test_a_prompt_longer_than_the_context_is_told_both_lengths(server: Server, reference: Reference) -> None:
    prompt = "fox jumps " * 600
    tokens = reference.tokens(prompt)
    assert tokens > CONTEXT
    (seen,) = ask_all(server.grpc, tensors(PROMPT=prompt))
    assert seen.error is not None
    assert str(tokens) in seen.error
    assert str(CONTEXT) in seen.error


def test_a_prompt_of_megabytes_is_refused_without_tokenizing_it(server: Server) -> None:
    (seen,) = ask_all(server.grpc, tensors(PROMPT="x" * 8_000_000))
    assert seen.error is not None
    assert "8000000 characters" in seen.error


def test_the_codes_of_http(server: Server) -> None:
    status, answer = generate(server.http, {**GOOD, "MAX_TOKENS": 0})
    assert status == 400
    assert "max_tokens" in answer["error"]


def test_wrong_requests_do_not_harm_the_others(server: Server, reference: Reference) -> None:
    async def both() -> list[Any]:
        address = f"127.0.0.1:{server.grpc}"
        async with grpc_aio.InferenceServerClient(address) as good, grpc_aio.InferenceServerClient(address) as bad:
            wrong = [ask(bad, tensors(**{**GOOD, **change})) for change, _ in WRONG.values()]
            right = [ask(good, tensors(**GOOD, STREAM=True)) for _ in range(16)]
            return await asyncio.gather(*right, *wrong)

    results = asyncio.run(both())
    expected = reference.greedy(GOOD["PROMPT"], 8)[0]
    assert [result.text for result in results[:16]] == [expected] * 16
    assert all(result.error for result in results[16:])
