# pyright: reportMissingImports=false
"""Load generators of benchmarks/serving.py, each run in a process of its own.

serving_clients.py load TASK FILE  one run against a server; writes its times to FILE as JSON
serving_clients.py bare           an AsyncLLM with its client inside; reads tasks as lines of JSON
"""

import asyncio
import json
import os
import random
import string
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

Stream = Callable[[str, int], AsyncIterator[None]]
"""Sends a prompt, asks for so many tokens, yields once per piece of the answer."""


def prompts(task: dict[str, Any]) -> list[tuple[str, int]]:
    """Prompts and the tokens to answer each with.

    `reference` is the load of the published claims: 512 to 1,200 tokens in, one prompt in ten of 4,000, 128 to 384 out.
    `steady` is that of their ramp: 1,024 in, 256 out. `prefix` begins like `steady`, with one of eight texts of 1,024
    tokens, and goes on with 128 tokens of its own. The words are tokens of the models that gpu/models.py makes.
    """
    dice = random.Random(task["seed"])
    if task["load"] == "uniform":
        length = task["prompt"]
        return [
            ("".join(dice.choices(string.ascii_lowercase, k=length)), task["tokens"]) for _ in range(task["requests"])
        ]

    def words(length: int, dice: random.Random = dice) -> str:
        return " ".join(f"w{dice.randrange(1000, 120_000)}" for _ in range(length))

    if task["load"] == "steady":
        return [(words(1024), 256) for _ in range(task["requests"])]
    if task["load"] == "prefix":
        shared = [words(1024, random.Random(number)) for number in range(8)]
        return [(f"{dice.choice(shared)} {words(128)}", 256) for _ in range(task["requests"])]
    return [(words(_reference_length(dice)), dice.randint(128, 384)) for _ in range(task["requests"])]


def _reference_length(dice: random.Random) -> int:
    return 4000 if dice.random() < 0.1 else dice.randint(512, 1200)


async def measure(task: dict[str, Any], stream: Stream) -> dict[str, Any]:
    """Runs the task's prompts, so many at a time."""
    queue = iter(prompts(task))
    ttft: list[float] = []
    gaps: list[float] = []
    tpot: list[float] = []
    total = 0

    async def worker(number: int) -> None:
        nonlocal total
        await asyncio.sleep(number * task["stagger"])
        for prompt, tokens in queue:
            last = began = time.perf_counter()
            first = None
            async for _ in stream(prompt, tokens):
                now = time.perf_counter()
                (ttft if last == began else gaps).append(now - last)
                first = first or now
                last = now
            total += tokens
            if first and tokens > 1:
                tpot.append((last - first) / (tokens - 1))

    start = time.time()
    await asyncio.gather(*(worker(number) for number in range(task["concurrency"])))
    times = {"ttft": ttft, "gaps": gaps, "tpot": tpot}
    return {"start": start, "end": time.time(), "tokens": total, **times, "cpu": time.process_time()}


# Against servers ----------------------------------------------------------------------------------------------------


async def load(task: dict[str, Any]) -> dict[str, Any]:
    began = time.process_time()
    if task["path"] == "grpc":
        result = await _grpc(task)
    else:
        result = await _sse(task)
    return result | {"cpu": time.process_time() - began}


async def _grpc(task: dict[str, Any]) -> dict[str, Any]:
    import numpy as np
    import tritonclient.grpc as grpc
    import tritonclient.grpc.aio as grpc_aio

    def tensor(name: str, kind: str, array: Any) -> grpc.InferInput:
        made = grpc.InferInput(name, [1], kind)
        made.set_data_from_numpy(array)
        return made

    extra = json.dumps({"ignore_eos": True}).encode()
    async with grpc_aio.InferenceServerClient(f"127.0.0.1:{task['port']}") as client:

        async def stream(prompt: str, tokens: int) -> AsyncIterator[None]:
            inputs = [
                tensor("PROMPT", "BYTES", np.array([prompt.encode()], np.object_)),
                tensor("MAX_TOKENS", "INT32", np.array([tokens], np.int32)),
                tensor("TEMPERATURE", "FP32", np.array([0], np.float32)),
                tensor("STREAM", "BOOL", np.array([True])),
                tensor("SAMPLING_PARAMETERS", "BYTES", np.array([extra], np.object_)),
            ]

            async def once() -> AsyncIterator[dict[str, Any]]:
                yield {"model_name": "llm", "inputs": inputs, "enable_empty_final_response": True}

            async for result, error in client.stream_infer(once()):
                if error:
                    raise error
                yield
                if result.get_response().parameters["triton_final_response"].bool_param:
                    return

        return await measure(task, stream)


async def _sse(task: dict[str, Any]) -> dict[str, Any]:
    import aiohttp

    base = f"http://127.0.0.1:{task['port']}"

    def request(prompt: str, tokens: int) -> tuple[str, dict[str, Any]]:
        if task["path"] == "http":
            return f"{base}/v2/models/llm/generate_stream", {
                "PROMPT": prompt, "MAX_TOKENS": tokens, "TEMPERATURE": 0.0, "STREAM": True,
                "SAMPLING_PARAMETERS": json.dumps({"ignore_eos": True}),
            }  # fmt: skip
        return f"{base}/v1/completions", {
            "model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0.0, "stream": True,
            "ignore_eos": True,
        }  # fmt: skip

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def stream(prompt: str, tokens: int) -> AsyncIterator[None]:
            url, document = request(prompt, tokens)
            async with session.post(url, json=document) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        if b'"error"' in line:
                            raise RuntimeError(line.decode())
                        yield

        return await measure(task, stream)


# Bare ---------------------------------------------------------------------------------------------------------------


async def bare() -> None:
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    lines = await _lines()
    first = json.loads(await anext(lines))
    began = time.monotonic()
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(model=first["model"], **first["engine"]), usage_context=UsageContext.OPENAI_API_SERVER
    )
    cache = engine.vllm_config.cache_config
    facts = {"kv_tokens": (cache.num_gpu_blocks or 0) * cache.block_size, "start_seconds": time.monotonic() - began}
    numbers = iter(range(10**9))

    async def stream(prompt: str, tokens: int) -> AsyncIterator[None]:
        params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, output_kind=RequestOutputKind.DELTA)
        async for _ in engine.generate(prompt, params, str(next(numbers))):
            yield

    print(json.dumps(facts), flush=True)
    async for line in lines:
        tasks = json.loads(line)["tasks"]
        results = await asyncio.gather(*(measure(task, stream) for task in tasks))
        Path(tasks[0]["file"]).write_text(json.dumps(results))
        print("{}", flush=True)
    engine.shutdown()


async def _lines() -> AsyncIterator[str]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def read() -> AsyncIterator[str]:
        while line := await reader.readline():
            yield line.decode()

    return read()


if __name__ == "__main__":
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    import uvloop

    if sys.argv[1] == "bare":
        uvloop.run(bare())
    else:
        # To a file: the event loop leaves pipes non-blocking, which cuts long prints short.
        Path(sys.argv[3]).write_text(json.dumps(uvloop.run(load(json.loads(sys.argv[2])))))
