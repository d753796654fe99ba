"""Runs levels as processes, some at a time, each with its output in a file; ends them all on a signal."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tests.suite.levels import ROOT

PATIENCE = 90
"""Seconds that a level has to end after a signal; its supervisor uses force before."""


@dataclass
class Job:
    """A level, or a part of it."""

    name: str
    command: list[str]
    folder: Path
    """Where its output, its results and its resources are written."""
    live: bool = False
    """Its output goes to the terminal instead of a file."""
    yields: bool = False
    """It takes the processor time that other jobs leave, and has a place of its own beside them."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    begun: float = 0

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def lines(self) -> Path:
        """A line of JSON per test."""
        return self.folder / f"{self.name}.lines"

    @property
    def result(self) -> Path:
        """What the whole of it took."""
        return self.folder / f"{self.name}.json"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in (self.log, self.lines, self.result):
            file.unlink(missing_ok=True)
        yielding = ["--yield"] if self.yields and not self.live else []
        command = [sys.executable, "-m", "tests.suite.supervise", *yielding, str(self.result), *self.command]
        self.begun = time.monotonic()
        if self.live and os.isatty(0):  # Ctrl-C, and a debugger's questions, are the level's own
            self.process = subprocess.Popen(command, cwd=ROOT)
        elif self.live:
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, process_group=0)
        else:
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(
                    command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def interrupt(self) -> None:
        if self.process and self.running:
            # SIGTERM, as a supervisor leaves a terminal's Ctrl-C to the level.
            self.process.terminate()

    def kill(self) -> None:
        if self.process and self.running:
            os.killpg(self.process.pid, signal.SIGKILL) if not self.live else self.process.kill()

    def tests(self) -> list[dict[str, Any]]:
        """The lines that it has written so far."""
        try:
            text = self.lines.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class SignalledError(Exception):
    """A signal ended the run. Its number is the argument."""


def run(jobs: Iterable[Job], at_once: int, tick: Callable[[list[Job]], None], over: Callable[[Job], None]) -> None:
    """Runs all in their order, `at_once` at a time, and beside them as many of those that yield.

    `tick` is called with those that run, `over` with each that ended.

    Raises:
        SignalledError: SIGINT, SIGTERM or SIGHUP came. Everything that was started has ended.
    """
    waiting, running = list(jobs), list[Job]()
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    # With a handler here, what is started has the default, even where SIGINT was ignored before (`nohup … &`).
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        while (waiting or running) and not came:
            for job in list(waiting):
                if sum(other.yields == job.yields for other in running) < at_once:
                    waiting.remove(job)
                    running.append(job)
                    job.start()
            for job in [job for job in running if not job.running]:
                running.remove(job)
                over(job)
            tick(running)
            time.sleep(0.1)
        if came:
            end(running, lambda: len(came) > 1)
            raise SignalledError(came[0])
    finally:
        for job in running:
            job.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


def end(running: list[Job], at_once: Callable[[], bool]) -> None:
    """Asks all to end and waits for it. A second signal (`at_once`) ends the patience."""
    for job in running:
        job.interrupt()
    until = time.monotonic() + PATIENCE
    while any(job.running for job in running) and time.monotonic() < until and not at_once():
        time.sleep(0.1)
