"""Death and hanging of each process: the pod is never half alive, and clients learn why."""

import asyncio
import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.serving.client import Result, ask_at, tensors
from tests.serving.server import Server

LONG = {"PROMPT": "The quick brown fox", "MAX_TOKENS": 900, "SAMPLING_PARAMETERS": {"ignore_eos": True}}

VICTIMS = {
    "engine": ("VLLM::EngineCore", "the engine died"),
    "engine process": ("engine_process.py", "the engine process died"),
    "front end": ("llm/1/model.py", "front end"),
}


def streams_while(server: Server, act: Callable[[], None], streams: int = 6) -> list[Result]:
    """Runs streams, acts once they flow, returns what each client saw."""

    async def go() -> list[Result]:
        inputs = [tensors(**LONG, STREAM=True) for _ in range(streams)]
        running = asyncio.ensure_future(ask_at(server.grpc, *inputs))
        await asyncio.sleep(0.4)
        act()
        return await asyncio.wait_for(running, 60)

    return asyncio.run(go())


def gone(server: Server, seconds: float) -> float:
    """Waits for every process of the server to end; returns how long it took."""
    began = time.monotonic()
    while server.processes():
        assert time.monotonic() < began + seconds, f"still there: {server.processes()}\n{server.tail()}"
        if server.process:
            server.process.poll()
        time.sleep(0.1)
    return time.monotonic() - began


@pytest.mark.parametrize("victim", VICTIMS)
def test_death_of_a_process_takes_the_pod_down(start: Callable[..., Server], victim: str) -> None:
    server = start()
    name, reason = VICTIMS[victim]
    pid = server.processes(name)[-1]
    seen = streams_while(server, lambda: os.kill(pid, signal.SIGKILL))
    assert all(result.error for result in seen), "every stream ends, none hangs"
    assert any(reason in (result.error or "") for result in seen), [result.error for result in seen]
    began = time.monotonic()
    while server.ready():
        assert time.monotonic() < began + 5
        time.sleep(0.05)
    gone(server, 25)


def test_a_hung_engine_is_found_and_a_busy_one_is_not(start: Callable[..., Server]) -> None:
    server = start(health={"stallSeconds": 4})
    # Busy: more work than the engine can run at once, for longer than the limit.
    began = time.monotonic()
    while time.monotonic() < began + 8:
        assert not any(result.error for result in streams_while(server, lambda: None, streams=32))
    assert server.ready()
    # Idle for longer than the limit is no trouble either.
    time.sleep(5)
    assert server.ready()
    engine = server.processes("VLLM::EngineCore")[0]
    seen = streams_while(server, lambda: os.kill(engine, signal.SIGSTOP))
    assert all("the engine hangs" in (result.error or "") for result in seen), [result.error for result in seen]
    gone(server, 25)
