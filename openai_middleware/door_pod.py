"""What the API servers of a pod share, and the watch that ends the pod when its engine stands still.

vLLM's `/health` asks whether the engine's process lives. One that is stopped, or hangs in a step, is alive: requests
then wait for ever, and its gauges stand still at what they were.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_config import EngineConfig
from pod_state import PodState, RunDirectory

logger = logging.getLogger("eks_llm.door")
WATCH_SECONDS = 0.25
ANSWER_SECONDS = 1.0
"""Time to tell the clients why, before the engine is killed."""
GRACE_SECONDS = 10.0
"""Time for vLLM to end by itself after its engine died."""
_ENGINE = (b"VLLM::EngineCore", b"VLLM::Worker", b"VLLM::DPCoordinator")


class Pod:
    """One API server's place among those of the pod."""

    def __init__(self, config: EngineConfig, index: int) -> None:
        directory = RunDirectory.of_environment()
        directory.root.mkdir(parents=True, exist_ok=True)
        self.config, self.index = config, index
        self.state = PodState(directory, config.frontends, index)
        self._in_flight = 0
        self.lost: str | None = None
        """Why this pod ends, if it does."""
        for field in ("in_flight", "progress", "heartbeat", "step_at"):  # a container before this one left its numbers
            self.state.set(field, 0)

    def enter(self, sequences: int) -> None:
        if not self._in_flight:
            self.progressed()  # the engine was not asked for anything until now
        self._in_flight += sequences
        self.state.set("in_flight", self._in_flight)

    def leave(self, sequences: int) -> None:
        self._in_flight -= sequences
        self.state.set("in_flight", self._in_flight)

    def progressed(self) -> None:
        self.state.set("progress", time.monotonic())

    def full(self, sequences: int) -> str | None:
        """Why no more requests are taken now; None if they are."""
        running, limit = int(self.config.engine["max_num_seqs"]), self.config.limits.max_queued_requests
        in_flight = self.state.totals().in_flight
        if in_flight + sequences <= max(running + limit, sequences):
            return None
        return f"the queue is full: {in_flight} in flight, the engine runs {running} at most and {limit} may wait"

    def listen(self, core: Any) -> None:
        """Notes whenever the engine answers this API server, whose other ways to hear of it are the engine's own."""
        receive = core.get_output_async

        async def receive_noted() -> Any:
            outputs = await receive()
            self.progressed()
            return outputs

        core.get_output_async = receive_noted

    def watch(self, loop: asyncio.AbstractEventLoop, lose: Callable[[str], None]) -> None:
        """Starts the watch on a thread. `lose` is called on the loop when the engine is lost."""

        def run() -> None:
            while not (reason := self._trouble()):
                try:
                    loop.call_soon_threadsafe(lambda: self.state.set("heartbeat", time.monotonic()))
                except RuntimeError:  # the loop is closed: the server ends by itself
                    return
                time.sleep(WATCH_SECONDS)
            logger.error("%s", reason)
            self.lost = reason
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lose, reason)
            time.sleep(ANSWER_SECONDS)
            _take_down(os.getppid() if self.config.frontends > 1 else os.getpid())

        threading.Thread(target=run, daemon=True, name="door-watch").start()

    def _trouble(self) -> str | None:
        totals, limit = self.state.totals(), self.config.stall_seconds
        if totals.step_age > limit:
            return (
                f"the engine hangs: no step for {totals.step_age:.0f} s (limit {limit:g} s) while "
                f"{totals.in_flight} requests wait"
            )
        if (silent := time.monotonic() - totals.oldest_heartbeat) > limit:
            return f"an API server hangs: its event loop has not run for {silent:.0f} s"
        return None

    def unready(self) -> str | None:
        """Why no request should come here now."""
        age = self.state.totals().step_age
        if self.lost:
            return self.lost
        return f"no engine step for {age:.0f} s while requests wait" if age > self.config.stale_seconds else None


def _take_down(main: int) -> None:
    """Kills the engine, which does not answer; vLLM's main process then ends by itself, or is killed."""
    for pid in _descendants(main):
        if _command(pid).startswith(_ENGINE):
            _kill(pid)
    until = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < until:
        time.sleep(0.1)
        if main not in (os.getppid(), os.getpid()):
            break  # the main process is gone, and this one has another parent
    for pid in [*_descendants(main), main]:
        if pid != os.getpid():
            _kill(pid)
    os._exit(1)


def _descendants(main: int) -> list[int]:
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
    found = [main]
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found[1:]


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
