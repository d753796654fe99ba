"""What the door knows of the vLLM around it: all uses of internals are here, so that a new version breaks one file."""

# pyright: reportMissingImports=false

from collections.abc import Callable
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


LONGEST = 2**31 - 1


def no_short_answers(state: Any) -> None:
    """Makes `/v1/completions` without `max_tokens` as long as all other ways in: what the generation config says, else
    what the context leaves.

    vLLM takes 16 there. It fills that in itself, from the field's default, and cuts what it generates to the context;
    but first it refuses a prompt that does not fit together with that number, so there it must not be seen.
    """
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    default = state.vllm_config.model_config.get_diff_sampling_param().get("max_tokens") or LONGEST
    CompletionRequest.model_fields["max_tokens"].default = default
    build = CompletionRequest.build_tok_params

    def build_tok_params(request: Any, model_config: Any) -> Any:
        own = request.max_tokens != default
        return build(request if own else request.model_copy(update={"max_tokens": None}), model_config)

    CompletionRequest.build_tok_params = build_tok_params


def engine_core(state: Any) -> Any:
    """The API server's client of the engine: has `client_index`, and `get_output_async`."""
    return state.engine_client.engine_core


def when_engine_ended(state: Any, tell: Callable[[], object]) -> None:
    """Calls `tell`, on some thread, once the server has ended its engine after SIGTERM.

    vLLM then waits for its connections, and nothing tells the requests on them that no answer will come.
    """
    client = state.engine_client
    shutdown = client.shutdown

    def shutdown_told(*arguments: Any, **named: Any) -> None:
        try:
            shutdown(*arguments, **named)
        finally:
            tell()

    client.shutdown = shutdown_told
