"""SIGTERM: what is in flight finishes inside the budget, new requests go elsewhere, the rest gets a clear status."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.serving.client import Result, ask_at, generate, streaming, tensors
from tests.serving.metrics import BUSY_MACHINE, wait_for
from tests.serving.server import Server

LONG = {"PROMPT": "The quick brown fox", "SAMPLING_PARAMETERS": {"ignore_eos": True}}


@dataclass
class Drained:
    streams: list[Result]
    late: Result
    """A gRPC request between preStop and SIGTERM."""
    late_http: int


def drain_with_streams(server: Server, streams: int, tokens: int) -> Drained:
    """Streams flow; preStop, late requests, SIGTERM; waits for the end of the server."""

    async def go() -> Drained:
        inputs = [tensors(**LONG, MAX_TOKENS=tokens, STREAM=True) for _ in range(streams)]
        async with streaming(server.grpc, *inputs) as running:
            server.pre_stop()
            assert not all(stream.finals for stream in running), "nothing was in flight"
            (late,) = await ask_at(server.grpc, tensors(**LONG, MAX_TOKENS=4, STREAM=True))
            status, _ = await asyncio.to_thread(generate, server.http, {"PROMPT": "fox", "MAX_TOKENS": 4})
            server.terminate()
            (too_late,) = await ask_at(server.grpc, tensors(**LONG, MAX_TOKENS=4, STREAM=True))
            assert too_late.error
        return Drained(running, late, status)

    drained = asyncio.run(go())
    began = time.monotonic()
    assert server.process
    server.process.wait(BUSY_MACHINE)
    print(f"ended {time.monotonic() - began:.1f} s after the last stream")
    return drained


@pytest.mark.ends_server
def test_no_stream_is_lost(server: Server) -> None:
    drained = drain_with_streams(server, 64, 400)
    assert [result.error for result in drained.streams if result.error] == []
    assert all(result.usage and result.usage["completion_tokens"] == 400 for result in drained.streams)
    assert drained.late.error is not None
    assert "shutting down" in drained.late.error
    assert drained.late_http in (400, 503)  # Triton 2.51 answers every error of generate with 400
    wait_for(lambda: server.processes() == [])  # the engine process stops the engine after its last front end left


def test_after_the_budget_the_rest_ends_with_a_clear_status(start: Callable[..., Server]) -> None:
    server = start(frontends=1, drain={"exitTimeoutSeconds": 4})
    drained = drain_with_streams(server, 128, 1000)
    cut = [result for result in drained.streams if result.error]
    assert cut, "the budget was long enough after all"
    assert all("drain budget of 4 s is over" in (result.error or "") for result in cut)
