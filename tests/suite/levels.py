"""The levels of tests: their folders, and how pytest runs each of them whole."""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class Level:
    """A folder of tests/ that pytest runs in a process of its own."""

    name: str
    minutes: float
    """Wall time on two idle cores, to say what a level costs before it was measured here."""
    workers: tuple[str, ...] = ()
    """Options of pytest-xdist for the whole level; a few files are faster without."""
    yields: bool = False
    """It only computes, so beside another level it takes the processor time that the other leaves."""

    @property
    def folder(self) -> Path:
        return ROOT / "tests" / self.name


LEVELS = {
    level.name: level
    for level in [
        # Bound by the processor. Files stay together, because their fixtures plan whole stacks.
        Level("unit", 1, ("-n", "2", "--dist", "loadfile") if CORES > 1 else (), yields=True),
        Level("rules", 0.5, yields=True),
        Level("engine", 3, yields=True),
        Level("serving", 8),
        # Most tests of a cluster wait for it. tests/cluster/conftest.py shares them out to the two workers.
        Level("cluster", 18, ("-n", "2", "--dist", "loadscope")),
    ]
}
"""In the order in which a person wants to hear of failures."""

LONGEST_FIRST = ("cluster", "checks", "unit", "rules", "engine", "serving")
"""The order in which a whole run starts them: the cluster level waits most of its time, and those that yield use it."""


def level_of(path: Path) -> Level | None:
    """The level that a file or folder below tests/ belongs to."""
    try:
        first = path.resolve().relative_to(ROOT / "tests").parts[:1]
    except ValueError:
        return None
    return LEVELS.get(first[0]) if first else None
