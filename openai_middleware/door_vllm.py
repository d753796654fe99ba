"""What the door knows of the vLLM around it: all uses of internals are here, so that a new version breaks one file."""

from typing import Any

from door_requests import Model
from engine_config import EngineConfig


def model(state: Any, config: EngineConfig) -> Model:
    """What requests are checked against. `state`: of vLLM's application, once the server starts."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    requests = {
        "/v1/chat/completions": ChatCompletionRequest,
        "/v1/completions": CompletionRequest,
        "/v1/responses": ResponsesRequest,
    }
    return Model(
        vocabulary=state.vllm_config.model_config.get_vocab_size(),
        priorities=config.engine.get("scheduling_policy") == "priority",
        fields={path: frozenset(request.model_fields) for path, request in requests.items()},
    )


def no_short_answers() -> None:
    """Makes an answer as long as the context allows where `/v1/completions` does not say, as all other ways in do.

    vLLM takes 16 tokens there. It fills that default in itself, from the field's, before the field is checked.
    """
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    CompletionRequest.model_fields["max_tokens"].default = None


def engine_core(state: Any) -> Any:
    """The API server's client of the engine: has `client_index`, and `get_output_async`."""
    return state.engine_client.engine_core
