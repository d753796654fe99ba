"""The queue in front of the engine: bounded in tokens too, ordered by priority where the engine is told to."""

# pyright: reportMissingImports=false

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_aio

from tests.serving.client import GRPC_STATUS, Result, ask, ask_all, tensors
from tests.serving.reference import Reference
from tests.serving.server import Server

LONG: dict[str, Any] = {"PROMPT": "The quick brown fox", "STREAM": True}


@contextlib.contextmanager
def standstill(server: Server) -> Iterator[None]:
    """The engine does not move: what is sent meanwhile waits, however slow this machine is."""
    (engine,) = server.processes("VLLM::EngineCore")
    os.kill(engine, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine, signal.SIGCONT)


def test_prompt_tokens_that_wait_are_bounded(start: Callable[..., Server], reference: Reference) -> None:
    limits = {"maxQueuedRequests": 64, "maxQueuedTokens": 300, "requestTimeoutSeconds": 60}
    server = start(frontends=1, limits=limits)
    prompt = "fox jumps " * 90
    tokens = reference.tokens(prompt)
    assert 150 < tokens <= 300, "one may wait, two may not"

    async def go() -> list[Result]:
        async with grpc_aio.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
            inputs = tensors(PROMPT=prompt, MAX_TOKENS=4, TEMPERATURE=0.0)
            with standstill(server):
                asked = [asyncio.ensure_future(ask(client, inputs, headers=GRPC_STATUS)) for _ in range(3)]
                async with asyncio.timeout(60):
                    while sum(request.done() for request in asked) < 2:
                        await asyncio.sleep(0.01)
            return await asyncio.gather(*asked)

    seen = asyncio.run(go())
    (answered,) = [result for result in seen if not result.error]
    assert answered.text == reference.greedy(prompt, 4)[0]
    for error in (result.error for result in seen if result.error):
        assert f"{tokens} prompt tokens wait (limit 300); retry after" in error
        assert "UNAVAILABLE" in error


def test_a_higher_priority_overtakes_those_that_wait(start: Callable[..., Server]) -> None:
    """In vLLM a smaller number is served earlier."""
    server = start(frontends=1, engine={"max_num_seqs": 1, "scheduling_policy": "priority"})

    def prioritised(priority: int, tokens: int = 60) -> list[Any]:
        return tensors(**LONG, MAX_TOKENS=tokens, SAMPLING_PARAMETERS={"ignore_eos": True, "priority": priority})

    async def go() -> tuple[Result, list[Result], Result]:
        async with grpc_aio.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
            seen = Result()
            running = asyncio.ensure_future(ask(client, prioritised(0, 900), into=seen))
            while not seen.pieces:
                await asyncio.sleep(0.005)
            with standstill(server):
                queue = [asyncio.ensure_future(ask(client, prioritised(5))) for _ in range(12)]
                await asyncio.sleep(1)
                urgent = asyncio.ensure_future(ask(client, prioritised(-5)))
                await asyncio.sleep(1)
            return await running, await asyncio.gather(*queue), await urgent

    running, queue, urgent = asyncio.run(go())
    assert [result.error for result in (running, urgent, *queue)] == [None] * 14
    assert running.times[-1] <= urgent.times[0], "who runs is not pushed out"
    assert urgent.times[-1] <= min(result.times[0] for result in queue)


def test_a_priority_without_effect_is_refused(server: Server) -> None:
    request = {"PROMPT": "fox", "MAX_TOKENS": np.array([2], np.int32)}
    (seen,) = ask_all(server.grpc, tensors(**request, SAMPLING_PARAMETERS={"priority": 1}))
    assert seen.error is not None
    assert "priority: 1 has no effect here" in seen.error
    assert "engine.scheduling_policy: priority" in seen.error
    (seen,) = ask_all(server.grpc, tensors(**request, SAMPLING_PARAMETERS={"priority": 0}))
    assert seen.error is None, "0 is what every request has"
