"""Cancelled, left, late and refused requests: the engine is free again, and the client knows why."""

# pyright: reportMissingImports=false

import asyncio
import contextlib
import http.client
import json
import time
from collections.abc import Callable

import tritonclient.grpc.aio as grpc_aio

from tests.serving.client import ask, ask_all, responses, tensors
from tests.serving.metrics import gauge, wait_for
from tests.serving.server import Server

LONG = {"PROMPT": "The quick brown fox", "MAX_TOKENS": 900, "SAMPLING_PARAMETERS": {"ignore_eos": True}}
FREED_SECONDS = 0.25


def idle(server: Server) -> bool:
    scrape = server.scrape()
    return gauge(scrape, "vllm:num_requests_running") == 0 and gauge(scrape, "vllm:kv_cache_usage_perc") == 0


def test_a_cancelled_grpc_stream_is_freed_in_time(server: Server) -> None:
    async def cancel_one() -> float:
        async with grpc_aio.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
            stream = client.stream_infer(one())
            await anext(aiter(stream))
            stream.cancel()
            began = time.monotonic()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                async for _ in stream:
                    pass
            await asyncio.to_thread(wait_for, lambda: idle(server), 5)
            return time.monotonic() - began

    async def one():
        yield {"model_name": "llm", "inputs": tensors(**LONG, STREAM=True)}

    durations = sorted(asyncio.run(cancel_one()) for _ in range(20))
    assert durations[-1] <= FREED_SECONDS, durations


def test_a_closed_http_connection_is_freed(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=10)
    connection.request("POST", "/v2/models/llm/generate_stream", json.dumps(http_document(stream=True)))
    answer = connection.getresponse()
    answer.read(20)
    assert gauge(server.scrape(), "vllm:num_requests_running") == 1
    connection.sock.close()
    answer.close()
    wait_for(lambda: idle(server), 1.0)


def http_document(stream: bool) -> dict[str, object]:
    return {**LONG, "SAMPLING_PARAMETERS": json.dumps(LONG["SAMPLING_PARAMETERS"]), "STREAM": stream}


def test_cancelling_some_streams_leaves_the_others(server: Server) -> None:
    async def go() -> list[str | None]:
        async with grpc_aio.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:

            async def leave_early() -> None:
                async with contextlib.aclosing(responses(client, tensors(**LONG, STREAM=True))) as stream:
                    async for _ in stream:
                        break

            leaving = [asyncio.ensure_future(leave_early()) for _ in range(8)]
            staying = await asyncio.gather(*(ask(client, tensors(**LONG, STREAM=True)) for _ in range(8)))
            await asyncio.gather(*leaving)
            return [result.error or str(result.usage and result.usage["completion_tokens"]) for result in staying]

    assert asyncio.run(go()) == ["900"] * 8
    wait_for(lambda: idle(server), 2)


def test_a_deadline_of_the_request_ends_it(server: Server) -> None:
    """900 tokens take about a second; the client gives it 0.3."""
    (seen,) = ask_all(server.grpc, tensors(**LONG, STREAM=True), timeout=300_000)
    assert seen.error is not None
    assert "deadline of 0.3 s" in seen.error
    wait_for(lambda: idle(server), 1)


def test_overload_is_refused_and_what_was_accepted_is_answered(start: Callable[..., Server]) -> None:
    server = start(
        engine={"max_num_seqs": 4},
        limits={"maxQueuedRequests": 8, "maxQueuedTokens": 100_000, "requestTimeoutSeconds": 60},
    )
    seen = ask_all(server.grpc, *(tensors(**{**LONG, "MAX_TOKENS": 300}, STREAM=True) for _ in range(40)))
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
