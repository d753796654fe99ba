"""Clients of the tests: gRPC streams (tritonclient), HTTP generate and generate_stream (standard library)."""

# pyright: reportMissingImports=false

import asyncio
import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio

from tests.serving.metrics import BUSY_MACHINE

_TYPES = {"MAX_TOKENS": (np.int32, "INT32"), "TEMPERATURE": (np.float32, "FP32")}
_BOOLEANS = ("STREAM", "EXCLUDE_PROMPT", "stream", "exclude_input_in_output")


@dataclass
class Result:
    """What a client saw of one request."""

    pieces: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, int] | None = None
    finals: int = 0
    error: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def tensors(**values: Any) -> list[grpc.InferInput]:
    """Input tensors by name; a value that is an array already goes as it is."""
    made = []
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            array, kind = value, grpc_type(value)
        elif name in _BOOLEANS:
            array, kind = np.array([value]), "BOOL"
        elif name in _TYPES:
            array, kind = np.array([value], _TYPES[name][0]), _TYPES[name][1]
        else:
            text = value if isinstance(value, str | bytes) else json.dumps(value)
            array, kind = np.array([text.encode() if isinstance(text, str) else text], np.object_), "BYTES"
        tensor = grpc.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


def grpc_type(array: np.ndarray) -> str:
    from tritonclient.utils import np_to_triton_dtype

    return str(np_to_triton_dtype(array.dtype))


GRPC_STATUS = {"triton_grpc_error": "true"}
"""Header with which Triton ends a stream with gRPC's own status instead of a message in it."""


async def responses(
    client: Any, inputs: list[Any], model: str = "llm", headers: dict[str, str] | None = None, **options: Any
) -> AsyncGenerator[Any]:
    """(response, error) of one request over a gRPC stream of its own."""

    async def once() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": model, "inputs": inputs, "enable_empty_final_response": True, **options}

    async for result, error in client.stream_infer(once(), headers=headers):
        yield result, error
        if error or result.get_response().parameters["triton_final_response"].bool_param:
            return


async def ask(
    client: Any,
    inputs: list[Any],
    model: str = "llm",
    output: str = "TEXT_OUTPUT",
    into: Result | None = None,
    **options: Any,
) -> Result:
    """What the client saw, which `into` shows as it comes."""
    seen = into or Result()
    try:
        async with contextlib.aclosing(responses(client, inputs, model, **options)) as stream:
            async for result, error in stream:
                seen.times.append(time.monotonic())
                if error:
                    seen.error = f"{error.status() or ''} {error.message()}".strip()
                    break
                seen.finals += result.get_response().parameters["triton_final_response"].bool_param
                if (text := result.as_numpy(output)) is not None:
                    seen.pieces.append(text[0].decode())
                if (reason := result.as_numpy("FINISH_REASON")) is not None:
                    seen.finish_reason = reason[0].decode()
                if (usage := result.as_numpy("USAGE")) is not None:
                    seen.usage = json.loads(usage[0])
    except Exception as error:
        seen.error = str(error)
    return seen


async def ask_at(port: int, *many: list[Any], **options: Any) -> list[Result]:
    """Sends requests at the same time over one connection."""
    async with grpc_aio.InferenceServerClient(f"127.0.0.1:{port}") as client:
        return list(await asyncio.gather(*(ask(client, inputs, **options) for inputs in many)))


@contextlib.asynccontextmanager
async def streaming(
    port: int, *many: list[Any], begun: Callable[[Iterable[object]], bool] = all
) -> AsyncIterator[list[Result]]:
    """Streams over one connection; when the block is left, all have ended.

    `begun`: `all` or `any` of them, before the block. An engine that runs fewer at a time has ended the first ones by
    the time the last has begun.
    """
    seen = [Result() for _ in many]
    async with grpc_aio.InferenceServerClient(f"127.0.0.1:{port}") as client:
        asked = [asyncio.ensure_future(ask(client, inputs, into=one)) for inputs, one in zip(many, seen, strict=True)]
        async with asyncio.timeout(BUSY_MACHINE):
            while not begun(one.pieces or one.error for one in seen):
                await asyncio.sleep(0.005)
        yield seen
        async with asyncio.timeout(BUSY_MACHINE):
            await asyncio.gather(*asked)


def ask_all(port: int, *many: list[Any], **options: Any) -> list[Result]:
    return asyncio.run(ask_at(port, *many, **options))


def generate(port: int, document: Any, model: str = "llm", timeout: float = 60) -> tuple[int, Any]:
    """HTTP /generate: status and JSON."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/models/{model}/generate", data=body)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def generate_stream(port: int, document: Any, model: str = "llm", timeout: float = 60) -> tuple[int, list[Any]]:
    """HTTP /generate_stream: status and the events of the stream."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v2/models/{model}/generate_stream", data=json.dumps(document).encode()
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            lines = answer.read().decode().splitlines()
            return answer.status, [json.loads(line.removeprefix("data: ")) for line in lines if line]
    except urllib.error.HTTPError as error:
        return error.code, [json.loads(error.read())]
