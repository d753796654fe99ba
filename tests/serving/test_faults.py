"""Death and hanging of each process: the pod is never half alive, and clients learn why."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable

import pytest

from tests.serving.client import Result, streaming, tensors
from tests.serving.metrics import gauge, wait_for
from tests.serving.server import Server

LONG = {"PROMPT": "The quick brown fox", "MAX_TOKENS": 900, "SAMPLING_PARAMETERS": {"ignore_eos": True}}
STALL = 5
"""Seconds without a step after which an engine with requests hangs. A busy machine may hold it up for one or two."""


def streams_while(
    server: Server,
    act: Callable[[], None],
    streams: int = 6,
    begun: Callable[[Iterable[object]], bool] = all,
) -> list[Result]:
    """Runs streams, acts once `all` or `any` of them flow, returns what each client saw."""

    async def go() -> list[Result]:
        inputs = [tensors(**LONG, STREAM=True) for _ in range(streams)]
        async with streaming(server.grpc, *inputs, begun=begun) as seen:
            act()
        return seen

    return asyncio.run(go())


def gone(server: Server) -> None:
    """Waits for every process of the server to end."""

    def ended() -> bool:
        return bool(server.process and server.process.poll() is not None and not server.processes())

    wait_for(ended)


def dies(server: Server, victim: str, reason: str, streams: int = 6) -> None:
    """Without one of its processes, the server ends all streams, one at least with the reason, and then itself.

    More streams than the engine runs at a time are there when it happens, however late a busy machine makes it.
    """
    pid = server.processes(victim)[-1]
    seen = streams_while(server, lambda: os.kill(pid, signal.SIGKILL), streams, begun=any)
    assert all(result.error or result.finish_reason for result in seen), (
        "every stream is answered or ends with an error"
    )
    assert any(reason in (result.error or "") for result in seen), [result.error for result in seen]
    wait_for(lambda: not server.ready())
    gone(server)


def test_the_engine_dies(start: Callable[..., Server]) -> None:
    dies(start(engine={"max_num_seqs": 4}), "VLLM::EngineCore", "the engine died")


@pytest.mark.ends_server
def test_the_engine_process_dies(queueing: Server) -> None:
    dies(queueing, "engine_process.py", "the engine process died", streams=3)


@pytest.mark.ends_server
def test_a_front_end_dies(crowded: Server) -> None:
    dies(crowded, "llm/1/model.py", "front end", streams=10)


def test_a_hung_engine_is_found_and_a_busy_one_is_not(start: Callable[..., Server]) -> None:
    server = start(frontends=1, health={"stallSeconds": STALL, "staleSeconds": 1})
    # Busy: more work than the engine can run at once, for longer than the limit.
    began = time.monotonic()
    while time.monotonic() < began + STALL + 1:
        assert not any(result.error for result in streams_while(server, lambda: None, streams=32))
    assert server.ready()
    # Idle for longer than the limit is no trouble either.
    time.sleep(STALL + 1)
    assert server.ready()
    engine = server.processes("VLLM::EngineCore")[0]
    unready: list[float] = []

    def look() -> None:
        """Until the pod is told to go, it is alive and not ready, and its metrics say for how long."""
        with contextlib.suppress(OSError, AssertionError):
            while True:
                statuses = [server.health(kind) for kind in ("live", "ready")]
                if statuses == [200, 503]:
                    unready.append(gauge(server.scrape(), "eks_llm_engine_step_age_seconds"))
                time.sleep(0.2)

    looking = threading.Thread(target=look)

    def stop_engine() -> None:
        os.kill(engine, signal.SIGSTOP)
        looking.start()

    seen = streams_while(server, stop_engine)
    looking.join(60)
    assert unready, "clients were sent to it until its end"
    assert max(unready) > 1
    assert all("the engine hangs" in (result.error or "") for result in seen), [result.error for result in seen]
    gone(server)
