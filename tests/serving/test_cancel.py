"""Cancelled, left and late requests: the engine is free again, and the client knows why.

How soon is counted in tokens, which a busy machine makes later: a request that nobody ends makes all that it asked for.
"""

# pyright: reportMissingImports=false

import asyncio
import contextlib
import http.client
import json
import time
from collections.abc import AsyncIterator, Iterator

import tritonclient.grpc.aio as grpc_aio

from tests.serving.client import ask, ask_all, tensors
from tests.serving.metrics import gauge, generated, wait_for
from tests.serving.server import Server

TOKENS = 900
LONG = {"PROMPT": "The quick brown fox", "MAX_TOKENS": TOKENS, "SAMPLING_PARAMETERS": {"ignore_eos": True}}


def idle(server: Server) -> bool:
    scrape = server.scrape()
    return gauge(scrape, "vllm:num_requests_running") == 0 and gauge(scrape, "vllm:kv_cache_usage_perc") == 0


@contextlib.contextmanager
def freed(server: Server, requests: int = 1) -> Iterator[None]:
    """The engine is idle after the block, and has not made all tokens that the requests asked for."""
    wait_for(lambda: idle(server))
    before = generated(server.scrape())
    yield
    wait_for(lambda: idle(server))
    made = generated(server.scrape()) - before
    assert made < 0.9 * requests * TOKENS, f"{made:g} of {requests * TOKENS} tokens"


async def one() -> AsyncIterator[dict[str, object]]:
    """The request of a stream."""
    yield {"model_name": "llm", "inputs": tensors(**LONG, STREAM=True)}


def test_a_cancelled_grpc_stream_is_freed(server: Server) -> None:
    async def cancel_one() -> float:
        async with grpc_aio.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
            stream = client.stream_infer(one())
            await anext(aiter(stream))
            stream.cancel()
            began = time.monotonic()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                async for _ in stream:
                    pass
            await asyncio.to_thread(wait_for, lambda: idle(server))
            return time.monotonic() - began

    with freed(server, requests=20):
        durations = sorted(asyncio.run(cancel_one()) for _ in range(20))
    print(f"freed after {durations[10]:.3f} s, at most {durations[-1]:.3f} s")


def test_a_closed_http_connection_is_freed(server: Server) -> None:
    with freed(server, requests=4):
        for _ in range(4):
            connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)
            connection.request("POST", "/v2/models/llm/generate_stream", json.dumps(http_document(stream=True)))
            answer = connection.getresponse()
            answer.read(20)
            connection.sock.close()
            answer.close()
            wait_for(lambda: idle(server))


def http_document(stream: bool) -> dict[str, object]:
    return {**LONG, "SAMPLING_PARAMETERS": json.dumps(LONG["SAMPLING_PARAMETERS"]), "STREAM": stream}


def test_cancelling_some_streams_leaves_the_others(server: Server) -> None:
    async def go() -> list[str | None]:
        async with grpc_aio.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:

            async def leave_early() -> None:
                stream = client.stream_infer(one())
                await anext(aiter(stream))
                stream.cancel()

            leaving = [asyncio.ensure_future(leave_early()) for _ in range(8)]
            staying = await asyncio.gather(*(ask(client, tensors(**LONG, STREAM=True)) for _ in range(8)))
            await asyncio.gather(*leaving)
            return [result.error or str(result.usage and result.usage["completion_tokens"]) for result in staying]

    made: list[float] = []
    for _ in range(5):  # a client that gets no time of a busy machine leaves too late
        before = generated(server.scrape())
        assert asyncio.run(go()) == [str(TOKENS)] * 8
        wait_for(lambda: idle(server))
        made.append(generated(server.scrape()) - before)
        if made[-1] < 16 * TOKENS:
            return
    raise AssertionError(f"those that left were answered to the end: {made} tokens")


def test_a_deadline_of_the_request_ends_it(server: Server) -> None:
    """900 tokens take about a second; the client gives it 0.3."""
    (seen,) = ask_all(server.grpc, tensors(**LONG, STREAM=True), timeout=300_000)
    assert seen.error is not None
    assert "deadline of 0.3 s" in seen.error
    wait_for(lambda: idle(server))
