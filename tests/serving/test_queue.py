"""The queue in front of the engine: bounded in tokens too, ordered by priority where the engine is told to."""

# pyright: reportMissingImports=false

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as grpc_aio

from tests.serving.client import GRPC_STATUS, Result, ask, ask_all, tensors
from tests.serving.metrics import BUSY_MACHINE, gauge
from tests.serving.reference import Reference
from tests.serving.server import REPOSITORY, Server

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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BUSY_MACHINE):
        while not condition():
            await asyncio.sleep(0.01)


def in_flight(server: Server) -> int:
    """Requests that the front ends have taken and not answered, whether the engine moves or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(REPOSITORY / "llm" / "1"), *sys.path])
        from pod_state import PodState, RunDirectory
    return PodState(RunDirectory(server.run_directory), server.document["frontends"]).totals().in_flight


def test_overload_is_refused_and_what_was_accepted_is_answered(crowded: Server) -> None:
    server, extra = crowded, {"ignore_eos": True}

    async def go() -> list[Result]:
        async with grpc_aio.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
            long = tensors(**LONG, MAX_TOKENS=300, SAMPLING_PARAMETERS=extra)
            with standstill(server):
                asked = [asyncio.ensure_future(ask(client, long)) for _ in range(40)]
                await until(lambda: in_flight(server) + sum(request.done() for request in asked) >= 40)
            return await asyncio.gather(*asked)

    seen = asyncio.run(go())
    refused = [result.error for result in seen if result.error]
    answered = [result for result in seen if not result.error]
    # Four run and eight wait; each of the two front ends may let one more in, as their counts cross.
    assert 12 <= len(answered) <= 14
    assert all(result.usage and result.usage["completion_tokens"] == 300 for result in answered)
    assert all("retry after" in error for error in refused)
    (after,) = ask_all(server.grpc, tensors(PROMPT="again", MAX_TOKENS=4))
    assert after.error is None

    tokens = {"PROMPT": "fox jumps " * 100, "MAX_TOKENS": 4}
    assert gauge(server.scrape(), "vllm:num_requests_waiting") == 0
    assert ask_all(server.grpc, tensors(**tokens))[0].error is None


def test_prompt_tokens_that_wait_are_bounded(queueing: Server, reference: Reference) -> None:
    server, prompt = queueing, "fox jumps " * 90
    tokens = reference.tokens(prompt)
    assert 150 < tokens <= 300, "one may wait, two may not"

    async def go() -> list[Result]:
        async with grpc_aio.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
            inputs = tensors(PROMPT=prompt, MAX_TOKENS=4, TEMPERATURE=0.0)
            with standstill(server):
                asked = [asyncio.ensure_future(ask(client, inputs, headers=GRPC_STATUS)) for _ in range(3)]
                await until(lambda: sum(request.done() for request in asked) == 2)
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
            await until(lambda: bool(seen.pieces))
            with standstill(server):
                queue = [asyncio.ensure_future(ask(client, prioritised(5))) for _ in range(12)]
                await until(lambda: in_flight(server) == 13)
                urgent = asyncio.ensure_future(ask(client, prioritised(-5)))
                await until(lambda: in_flight(server) == 14)
            return await running, await asyncio.gather(*queue), await urgent

    running, queue, urgent = asyncio.run(go())
    assert [result.error for result in (running, urgent, *queue)] == [None] * 14
    assert gauge(server.scrape(), "vllm:num_preemptions_total") == 0, "who runs is not pushed out"
    # Answers of different calls reach the client some milliseconds out of order: 60 tokens lie between these two.
    assert urgent.times[0] < min(result.times[0] for result in queue)


def test_a_priority_without_effect_is_refused(server: Server) -> None:
    request = {"PROMPT": "fox", "MAX_TOKENS": np.array([2], np.int32)}
    (seen,) = ask_all(server.grpc, tensors(**request, SAMPLING_PARAMETERS={"priority": 1}))
    assert seen.error is not None
    assert "priority: 1 has no effect here" in seen.error
    assert "engine.scheduling_policy: priority" in seen.error
    (seen,) = ask_all(server.grpc, tensors(**request, SAMPLING_PARAMETERS={"priority": 0}))
    assert seen.error is None, "0 is what every request has"
