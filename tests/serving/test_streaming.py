"""What a client gets: new text only, the final flag once and with the last payload, over gRPC and over HTTP."""

# pyright: reportMissingImports=false

import json
import socket
from contextlib import ExitStack

import numpy as np
import pytest

from tests.serving.client import ask_all, generate, generate_stream, tensors
from tests.serving.metrics import gauge, wait_for
from tests.serving.reference import Reference
from tests.serving.server import Server

PROMPTS = ["The quick brown fox", "Größe 東京 🚀", "Pack my box", '{"name": ']


@pytest.mark.parametrize("prompt", PROMPTS)
def test_grpc_stream_pieces_join_to_the_reference_answer(server: Server, reference: Reference, prompt: str) -> None:
    (seen,) = ask_all(server.grpc, tensors(PROMPT=prompt, MAX_TOKENS=40, TEMPERATURE=0.0, STREAM=True))
    text, reason = reference.greedy(prompt, 40)
    assert seen.error is None
    assert (seen.text, seen.finish_reason) == (text, reason)
    assert len(seen.pieces) > 1  # a busy machine joins some
    assert seen.finals == 1


def test_the_last_payload_carries_the_final_flag_reason_and_usage(server: Server, reference: Reference) -> None:
    prompt = PROMPTS[0]
    (seen,) = ask_all(
        server.grpc,
        tensors(PROMPT=prompt, MAX_TOKENS=12, TEMPERATURE=0.0, STREAM=True, SAMPLING_PARAMETERS={"ignore_eos": True}),
    )
    assert seen.finals == 1
    assert len(seen.times) == len(seen.pieces), "an empty final response costs a round trip more"
    assert seen.finish_reason == "length"
    prompt_tokens = reference.tokens(prompt)
    assert seen.usage is not None
    assert seen.usage["prompt_tokens"] == prompt_tokens
    assert seen.usage["completion_tokens"] == 12
    assert seen.usage["total_tokens"] == prompt_tokens + 12


def test_without_stream_there_is_one_response(server: Server, reference: Reference) -> None:
    prompt = PROMPTS[0]
    (seen,) = ask_all(server.grpc, tensors(PROMPT=prompt, MAX_TOKENS=30, TEMPERATURE=0.0))
    assert len(seen.pieces) == 1
    assert seen.finals == 1
    assert seen.text == reference.greedy(prompt, 30)[0]


def test_http_generate(server: Server, reference: Reference) -> None:
    prompt = PROMPTS[1]
    status, answer = generate(server.http, {"PROMPT": prompt, "MAX_TOKENS": 30, "TEMPERATURE": 0.0})
    assert status == 200
    assert answer["TEXT_OUTPUT"] == reference.greedy(prompt, 30)[0]


def test_http_generate_stream(server: Server, reference: Reference) -> None:
    prompt = PROMPTS[2]
    status, events = generate_stream(
        server.http, {"PROMPT": prompt, "MAX_TOKENS": 30, "TEMPERATURE": 0.0, "STREAM": True}
    )
    assert status == 200
    assert len(events) > 3
    assert "".join(event["TEXT_OUTPUT"] for event in events) == reference.greedy(prompt, 30)[0]
    assert [index for index, event in enumerate(events) if "FINISH_REASON" in event] == [len(events) - 1]


def test_many_streams_over_all_front_ends_do_not_mix(server: Server, reference: Reference) -> None:
    prompts = [f"{PROMPTS[index % 4]} number {index}" for index in range(48)]
    seen = ask_all(
        server.grpc, *(tensors(PROMPT=prompt, MAX_TOKENS=24, TEMPERATURE=0.0, STREAM=True) for prompt in prompts)
    )
    assert [result.text for result in seen] == [reference.greedy(prompt, 24)[0] for prompt in prompts]
    assert all(result.finals == 1 for result in seen)


def test_defaults_come_from_the_models_generation_config(server: Server) -> None:
    """generation_config.json of the tiny model says max_new_tokens 24."""
    (seen,) = ask_all(server.grpc, tensors(PROMPT="fox", TEMPERATURE=0.0, SAMPLING_PARAMETERS={"ignore_eos": True}))
    assert seen.usage is not None
    assert seen.usage["completion_tokens"] == 24


def test_stop_string_ends_the_answer_and_is_not_part_of_it(server: Server, reference: Reference) -> None:
    prompt = PROMPTS[0]
    whole = reference.greedy(prompt, 40)[0]
    stop = whole[10:12]
    (seen,) = ask_all(
        server.grpc,
        tensors(PROMPT=prompt, MAX_TOKENS=40, TEMPERATURE=0.0, STREAM=True, SAMPLING_PARAMETERS={"stop": [stop]}),
    )
    assert seen.text == whole[: whole.index(stop)]
    assert seen.finish_reason == "stop"


def test_a_seed_makes_sampling_repeatable(server: Server) -> None:
    inputs = tensors(PROMPT="box", MAX_TOKENS=16, SAMPLING_PARAMETERS={"seed": 7, "temperature": 1.0, "top_k": 0})
    first, second = (ask_all(server.grpc, inputs)[0] for _ in range(2))
    assert first.error is None
    assert first.text == second.text


def test_structured_outputs(server: Server) -> None:
    cases: list[tuple[dict[str, object], set[str]]] = [
        ({"choice": ["yes", "no"]}, {"yes", "no"}),
        ({"regex": "(ab|cd){2}"}, {"abab", "abcd", "cdab", "cdcd"}),
    ]
    for structured, allowed in cases:
        (seen,) = ask_all(
            server.grpc,
            tensors(
                PROMPT="Answer:", MAX_TOKENS=20, STREAM=True, SAMPLING_PARAMETERS={"structured_outputs": structured}
            ),
        )
        assert seen.error is None
        assert seen.text in allowed


def test_a_client_that_does_not_read_slows_nobody(server: Server) -> None:
    extra = json.dumps({"ignore_eos": True})
    document = {"PROMPT": "fox", "MAX_TOKENS": 900, "TEMPERATURE": 0.0, "STREAM": True, "SAMPLING_PARAMETERS": extra}
    body = json.dumps(document).encode()
    head = f"POST /v2/models/llm/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(4):
            lazy = stack.enter_context(socket.socket())
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            lazy.connect(("127.0.0.1", server.http))
            lazy.sendall(head + body)
        inputs = tensors(PROMPT="box", MAX_TOKENS=300, STREAM=True, SAMPLING_PARAMETERS={"ignore_eos": True})
        seen = ask_all(server.grpc, *[inputs] * 8)
        assert all(result.usage and result.usage["completion_tokens"] == 300 for result in seen)
        # The engine has finished all of them, read or not.
        wait_for(lambda: gauge(server.scrape(), "vllm:num_requests_running") == 0)


def test_exclude_prompt_false_puts_the_prompt_first(server: Server, reference: Reference) -> None:
    prompt = PROMPTS[2]
    (seen,) = ask_all(
        server.grpc, tensors(PROMPT=prompt, MAX_TOKENS=10, TEMPERATURE=0.0, EXCLUDE_PROMPT=np.array([False]))
    )
    assert seen.text == prompt + reference.greedy(prompt, 10)[0]
