"""SIGTERM: what is in flight finishes inside the budget, new requests go elsewhere, the rest gets a clear status."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.serving.client import Result, ask_at, generate, tensors
from tests.serving.metrics import wait_for
from tests.serving.server import Server

LONG = {"PROMPT": "The quick brown fox", "SAMPLING_PARAMETERS": {"ignore_eos": True}}


@dataclass
class Drained:
    streams: list[Result]
    late: Result
    """A gRPC request between preStop and SIGTERM."""
    late_http: int
    seconds: float
    """From the first request to the end of the server."""


def drain_with_streams(server: Server, streams: int, tokens: int) -> Drained:
    """Streams flow; preStop, late requests, SIGTERM; waits for the end of the server."""

    async def go() -> tuple[list[Result], Result, int]:
        inputs = [tensors(**LONG, MAX_TOKENS=tokens, STREAM=True) for _ in range(streams)]
        running = asyncio.create_task(ask_at(server.grpc, *inputs))
        await asyncio.sleep(0.5)
        server.pre_stop()
        (late,) = await ask_at(server.grpc, tensors(**LONG, MAX_TOKENS=4, STREAM=True))
        status, _ = await asyncio.to_thread(generate, server.http, {"PROMPT": "fox", "MAX_TOKENS": 4})
        server.terminate()
        (too_late,) = await ask_at(server.grpc, tensors(**LONG, MAX_TOKENS=4, STREAM=True))
        assert too_late.error
        return await running, late, status

    began = time.monotonic()
    seen, late, status = asyncio.run(go())
    assert server.process
    server.process.wait(60)
    return Drained(seen, late, status, time.monotonic() - began)


def test_no_stream_is_lost(start: Callable[..., Server]) -> None:
    server = start()
    drained = drain_with_streams(server, 64, 400)
    assert [result.error for result in drained.streams if result.error] == []
    assert all(result.usage and result.usage["completion_tokens"] == 400 for result in drained.streams)
    assert drained.late.error is not None
    assert "shutting down" in drained.late.error
    assert drained.late_http in (400, 503)  # Triton 2.51 answers every error of generate with 400
    wait_for(lambda: server.processes() == [], 20)  # the engine process stops the engine after its last front end left


def test_after_the_budget_the_rest_ends_with_a_clear_status(start: Callable[..., Server]) -> None:
    server = start(drain={"exitTimeoutSeconds": 4})
    drained = drain_with_streams(server, 128, 1000)
    cut = [result for result in drained.streams if result.error]
    assert cut, "the budget was long enough after all"
    assert all("drain budget of 4 s is over" in (result.error or "") for result in cut)
    assert drained.seconds < 30
