"""The other models beside `llm`: upstream's tensor names, and an ensemble that streams."""

import json
from pathlib import Path

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


def test_an_adapter_by_name(crowded: Server, reference: Reference) -> None:
    """The right answer is that of the model with the adapter merged into its weights.

    Requests with and without the adapter run together.
    """
    server = crowded
    request = {"PROMPT": PROMPT, "MAX_TOKENS": 16, "TEMPERATURE": 0.0}
    with_adapter, plain = tensors(**request, SAMPLING_PARAMETERS={"lora_name": "poet"}), tensors(**request)
    merged = Path(server.document["loraAdapters"]["poet"]).with_name("merged")
    adapted = Reference(merged).greedy(PROMPT, 16)[0]
    assert adapted != reference.greedy(PROMPT, 16)[0]
    for _ in range(2):
        seen = ask_all(server.grpc, *[with_adapter, plain] * 5)
        assert [result.error for result in seen] == [None] * 10
        assert [result.text for result in seen] == [adapted, reference.greedy(PROMPT, 16)[0]] * 5
    (unknown,) = ask_all(server.grpc, tensors(**request, SAMPLING_PARAMETERS={"lora_name": "poets"}))
    assert unknown.error is not None
    assert "there is: poet" in unknown.error
