"""Many requests of all kinds, and nonsense: nothing leaks, the server lives, everybody gets an answer."""

# pyright: reportMissingImports=false

import asyncio
import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_aio

from tests.serving.client import Result, ask, ask_all, responses, tensors
from tests.serving.metrics import gauge, wait_for
from tests.serving.server import Server
from tests.serving.test_invalid_requests import WRONG

REQUESTS = int(os.environ.get("EKS_LLM_SOAK_REQUESTS", "1500"))
"""The whole soak has 10,000 requests (about ten minutes on two cores); this many show a leak per request as well."""
GOOD: dict[str, Any] = {"PROMPT": "The quick brown fox", "MAX_TOKENS": 8, "TEMPERATURE": 0.0}


def resident(server: Server) -> int:
    """Bytes of tritonserver, its stubs and the engine process (not the engine's own, whose pools vLLM sizes)."""
    pages = sum(
        int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        for name in ("tritonserver", "triton_python_backend_stub", "engine_process.py")
        for pid in server.processes(name)
    )
    return pages * os.sysconf("SC_PAGE_SIZE")


async def mixed(server: Server, count: int, seed: int) -> list[str]:
    """Sends `count` requests, 24 at a time; returns how each ended."""
    dice, ends = random.Random(seed), []
    address = f"127.0.0.1:{server.grpc}"
    numbers = iter(range(count))

    async def one(client: Any) -> str:
        kind = dice.choices(("normal", "cancelled", "invalid", "oversized", "disconnected"), (70, 10, 10, 5, 5))[0]
        if kind == "normal":
            seen = await ask(client, tensors(**{**GOOD, "MAX_TOKENS": dice.randint(1, 24)}, STREAM=dice.random() < 0.7))
            return kind if seen.error is None and seen.finals == 1 else f"normal failed: {seen.error}"
        if kind == "invalid":
            seen = await ask(client, tensors(**{**GOOD, **dice.choice(list(WRONG.values()))[0]}))
            return kind if seen.error else "invalid was answered"
        if kind == "oversized":
            seen = await ask(client, tensors(PROMPT="fox " * 3000))
            return kind if seen.error else "oversized was answered"
        long = tensors(PROMPT="fox", MAX_TOKENS=900, STREAM=True, SAMPLING_PARAMETERS={"ignore_eos": True})
        if kind == "cancelled":
            await _leave(client, long, dice.randint(0, 3))
        else:
            other = grpc_aio.InferenceServerClient(address)
            task = asyncio.create_task(ask(other, long))
            await asyncio.sleep(dice.random() * 0.05)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await other.close()
        return kind

    async def worker() -> None:
        async with grpc_aio.InferenceServerClient(address) as client:
            for _ in numbers:
                ends.append(await one(client))  # noqa: PERF401

    await asyncio.gather(*(worker() for _ in range(24)))
    return ends


async def _leave(client: Any, inputs: list[Any], pieces: int) -> None:
    async with contextlib.aclosing(responses(client, inputs)) as stream:
        async for _ in stream:
            pieces -= 1
            if pieces < 0:
                return


def quiet(server: Server) -> bool:
    scrape = server.scrape()
    return all(
        gauge(scrape, f"vllm:{name}") == 0
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    )


def test_a_mixed_load_leaves_nothing_behind(server: Server) -> None:
    asyncio.run(mixed(server, REQUESTS // 2, seed=1))  # pools and caches grow to their size
    wait_for(lambda: quiet(server))
    before = resident(server)
    ends = asyncio.run(mixed(server, REQUESTS // 2, seed=2))
    wait_for(lambda: quiet(server))
    assert len(ends) == REQUESTS // 2
    assert [end for end in ends if "failed" in end or "was answered" in end] == []
    growth = resident(server) / before - 1
    assert abs(growth) < 0.05, f"{growth:.1%} over {REQUESTS // 2} requests"


def test_nonsense_is_answered_and_survived(server: Server) -> None:
    """200 random inputs: each is answered (with an error or, where it happens to be sound, with text)."""
    dice = random.Random(0)
    many = [tensors(**_nonsense(dice)) for _ in range(200)]
    results: list[Result] = []
    for start in range(0, len(many), 20):
        results += ask_all(server.grpc, *many[start : start + 20])
    assert all(result.error or result.finals == 1 for result in results)
    assert not [result.error for result in results if result.error and "Internal" in result.error]
    (after,) = ask_all(server.grpc, tensors(**GOOD))
    assert after.error is None
    assert server.ready()


def _nonsense(dice: random.Random) -> dict[str, Any]:
    words = ["", "fox", "\0", "🚀" * 50, "{", "[1]", "null", "NaN", "a" * 5000, "(", "root ::= root"]
    numbers = [0, -1, 1, 2**31 - 1, -(2**31), 7, 1024]
    keys = [
        "temperature", "top_k", "top_p", "min_p", "seed", "stop", "stop_token_ids", "logit_bias", "bad_words",
        "priority", "min_tokens", "max_tokens", "allowed_token_ids", "structured_outputs", "lora_name", "ignore_eos",
        "nothing", "repetition_penalty", "presence_penalty", "frequency_penalty",
    ]  # fmt: skip
    values: list[Any] = [
        *numbers, *words, None, True, 1e308, -0.0, 2**63, 2**70, [], [1], ["a"], [None], {}, {"1": 1}, {"a": "b"},
        {"regex": "("}, {"regex": "a{1000}"}, {"json": {}}, {"choice": ["a", "b"]}, {"grammar": "("}, [[1]],
        {"999999": 5},
    ]  # fmt: skip
    request: dict[str, Any] = {"MAX_TOKENS": np.array([dice.choice(numbers + [4] * 8)], np.int32)}
    if dice.random() < 0.95:
        raw = bytes(dice.randrange(256) for _ in range(dice.randint(0, 40)))
        request["PROMPT"] = dice.choice([raw, *(word.encode() for word in words), b"fox"])
    if dice.random() < 0.8:
        document = {dice.choice(keys): dice.choice(values) for _ in range(dice.randint(0, 3))}
        request["SAMPLING_PARAMETERS"] = dice.choice([json.dumps(document)] * 4 + words)
    if dice.random() < 0.3:
        request["TEMPERATURE"] = np.array([dice.choice([float("nan"), -1.0, 0.0, 1e30, float("inf")])], np.float32)
    if dice.random() < 0.5:
        request["STREAM"] = dice.random() < 0.5
    return request
