"""One line that says how far the levels are: it moves on a terminal, and comes every ten seconds elsewhere."""

import sys
import time

from tests.suite.jobs import Job
from tests.suite.summary import clock

EVERY = 10
"""Seconds between lines where nothing moves, such as in a CI log."""


class Progress:
    """Reads what the levels have written, at most once a second."""

    def __init__(self) -> None:
        self.begin = time.monotonic()
        self.moves = sys.stdout.isatty()
        self.next = self.begin

    def show(self, running: list[Job]) -> None:
        now = time.monotonic()
        if now < self.next or not running:
            return
        self.next = now + (1 if self.moves else EVERY)
        text = f"{clock(now - self.begin)}  " + " · ".join(map(state, running))
        print(f"\r\x1b[K{text}" if self.moves else text, end="" if self.moves else "\n", flush=True)

    def clear(self) -> None:
        """Makes room for something else."""
        if self.moves:
            print("\r\x1b[K", end="", flush=True)


def state(job: Job) -> str:
    lines = job.tests()
    collected = max((line["collected"] for line in lines if "collected" in line), default=0)
    outcomes = [line["outcome"] for line in lines if "test" in line]
    failed = outcomes.count("failed")
    return f"{job.name} {len(outcomes)} of {collected or '…'}" + (f", {failed} failed" if failed else "")
