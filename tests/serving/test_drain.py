"""SIGTERM: what is in flight finishes inside the budget, new requests go elsewhere, the rest gets a clear status."""

import asyncio
import time
from collections.abc import Callable

from tests.serving.client import Result, ask_at, tensors
from tests.serving.server import Server

LONG = {"PROMPT": "The quick brown fox", "SAMPLING_PARAMETERS": {"ignore_eos": True}}


def drain_with_streams(server: Server, streams: int, tokens: int) -> tuple[list[Result], Result, float]:
    """Streams, then preStop and SIGTERM, then one late request. Returns them and the seconds until the server ended."""

    async def go() -> tuple[list[Result], Result]:
        inputs = [tensors(**LONG, MAX_TOKENS=tokens, STREAM=True) for _ in range(streams)]
        running = asyncio.create_task(ask_at(server.grpc, *inputs))
        await asyncio.sleep(0.5)
        server.terminate()
        (late,) = await ask_at(server.grpc, tensors(**LONG, MAX_TOKENS=4, STREAM=True))
        return await running, late

    began = time.monotonic()
    seen, late = asyncio.run(go())
    assert server.process
    server.process.wait(60)
    return seen, late, time.monotonic() - began


def test_no_stream_is_lost(start: Callable[..., Server]) -> None:
    server = start()
    seen, late, _ = drain_with_streams(server, 64, 400)
    lost = [result.error for result in seen if result.error]
    assert lost == []
    assert all(result.usage and result.usage["completion_tokens"] == 400 for result in seen)
    assert late.error is not None
    assert "UNAVAILABLE" in late.error or "shutting down" in late.error
    assert server.processes() == []


def test_after_the_budget_the_rest_ends_with_a_clear_status(start: Callable[..., Server]) -> None:
    server = start(drain={"exitTimeoutSeconds": 4})
    seen, _, seconds = drain_with_streams(server, 128, 1000)
    cut = [result for result in seen if result.error]
    assert cut, "the budget was long enough after all"
    assert all("drain budget of 4 s is over" in (result.error or "") for result in cut)
    assert seconds < 20
