"""What is going on, in one line, and how long it will last."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from .registry import Tool

FILE = Path(__file__).with_name("costs.yaml")
TRUST = 20.0
"""Seconds that the assumed pace counts for, beside the one seen: it says more than the first packages of a build."""
ASSUMED = 0.8
"""Part of its processors' time that a build gets on an idle machine, as measured with two."""


@dataclass(frozen=True)
class Cost:
    """What the build of a module's tools takes with empty caches."""

    cpu: float
    """Processor seconds."""
    packages: int
    """Go packages that it compiles."""
    compiled: float
    """GB that it leaves in Go's build cache."""
    sources: float
    """GB of modules that it downloads."""


@cache
def costs() -> Mapping[str, Cost]:
    """By the name of the module's folder."""
    return {name: Cost(**cost) for name, cost in yaml.safe_load(FILE.read_text())["modules"].items()}


class Estimate:
    """How long builds will take: their recorded costs at the pace of this machine, which is seen as they go on."""

    def __init__(self, builds: Sequence[Sequence[Tool]], begin: float) -> None:
        self._left = {tools[0].module.name: cost_of(tools) for tools in builds}
        self._begin = begin
        self._done = 0.0

    def finished(self, tools: Sequence[Tool]) -> None:
        """Counts a build as done: all that was recorded for it, so what caches spared it makes the pace."""
        self._done += self._left.pop(tools[0].module.name).cpu

    def seconds(self, tools: Sequence[Tool], packages: int, now: float) -> float:
        """What is left, `packages` into the build of `tools`."""
        cost = self._left[tools[0].module.name]
        done = cost.cpu * min(packages / cost.packages, 0.98)  # linking comes after the last package
        left = sum(other.cpu for other in self._left.values()) - done
        pace = (self._done + done + TRUST * ASSUMED * (os.cpu_count() or 1)) / (now - self._begin + TRUST)
        return left / pace

    def text(self, tools: Sequence[Tool], packages: int, now: float) -> str:
        """As a person would say it."""
        seconds = self.seconds(tools, packages, now)
        minutes = max(round(seconds / 60), 1)
        total = self._left[tools[0].module.name].packages
        about = "less than a minute" if seconds < 50 else f"about {minutes} minute{'s' * (minutes > 1)}"
        return f"{packages} of some {max(total, packages):,} packages compiled, {about} left for all builds"


def cost_of(tools: Sequence[Tool]) -> Cost:
    """What the build of tools of one module takes."""
    return costs().get(
        tools[0].module.name, Cost(cpu=200, packages=1000, compiled=2, sources=0.5)
    )  # one that nobody has measured yet


class Line:
    """One line that moves on a terminal; a line each ten seconds elsewhere, such as in a CI log."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.start = time.monotonic()
        self.live = sys.stderr.isatty()
        self._next = self.start

    def show(self, what: str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (0.2 if self.live else 10)
        elapsed = int(now - self.start)
        text = f"{self.title}, {elapsed // 60}:{elapsed % 60:02}, {what}"
        print(f"\r\x1b[K{text}" if self.live else text, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.live:
            print(file=sys.stderr)
