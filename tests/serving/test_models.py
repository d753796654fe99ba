"""The other models beside `llm`: upstream's tensor names, and an ensemble that streams."""

import json

from tests.serving.client import ask_all, generate, tensors
from tests.serving.reference import Reference
from tests.serving.server import Server

PROMPT = "The quick brown fox"
GREEDY = {"temperature": 0.0, "max_tokens": 20}


def test_vllm_model_streams_like_tritons_vllm_backend(server: Server, reference: Reference) -> None:
    inputs = tensors(text_input=PROMPT, stream=True, sampling_parameters=GREEDY)
    (seen,) = ask_all(server.grpc, inputs, model="vllm_model", output="text_output")
    assert seen.error is None
    assert len(seen.pieces) > 3
    assert seen.text == reference.greedy(PROMPT, 20)[0]
    assert seen.finals == 1


def test_vllm_model_over_http(server: Server, reference: Reference) -> None:
    document = {"text_input": PROMPT, "sampling_parameters": json.dumps(GREEDY), "exclude_input_in_output": False}
    status, answer = generate(server.http, document, model="vllm_model")
    assert status == 200
    assert answer["text_output"] == PROMPT + reference.greedy(PROMPT, 20)[0]


def test_errors_pass_through_vllm_model(server: Server) -> None:
    inputs = tensors(text_input=PROMPT, stream=True, sampling_parameters={"top_q": 1})
    (seen,) = ask_all(server.grpc, inputs, model="vllm_model", output="text_output")
    assert seen.error is not None
    assert "top_q" in seen.error


def test_an_ensemble_streams(server: Server, reference: Reference) -> None:
    messages = [{"role": "user", "content": "Pack my box"}]
    inputs = tensors(MESSAGES=json.dumps(messages), STREAM=True, SAMPLING_PARAMETERS=GREEDY)
    (seen,) = ask_all(server.grpc, inputs, model="chat", output="EVENT")
    assert seen.error is None
    text = "".join(json.loads(event)["delta"] for event in seen.pieces)
    assert len(seen.pieces) > 3
    assert text == reference.greedy("user: Pack my box\nassistant:", 20)[0]
