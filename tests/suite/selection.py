"""Which levels and files the arguments of `./dev test` name."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.suite.levels import LEVELS, ROOT, level_of


class UsageError(Exception):
    """Arguments that name nothing that can run. The message says what would."""


@dataclass
class Chosen:
    """What to run."""

    targets: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Level → files, folders or tests in it, as pytest takes them; none: the whole level."""
    options: list[str] = field(default_factory=list[str])
    """What pytest gets besides."""
    everything: bool = False
    """No level and no file was named: checks belong to it."""


def chosen(arguments: list[str], cwd: Path) -> Chosen:
    """Names of levels come first, then files, relative to `cwd` or to the repository; all else is pytest's.

    Raises:
        UsageError: no such level or file, or a file of a level that was not named.
    """
    rest = list(arguments)
    named: list[str] = []
    while rest and rest[0] in LEVELS:
        named.append(rest.pop(0))
    found = Chosen()
    for argument in rest:
        target = target_of(argument, cwd)
        if not target:
            found.options.append(argument)
            continue
        level, text = target
        if named and level not in named:
            raise UsageError(f"{argument} is a test of the level {level}, not of {', '.join(named)}")
        found.targets.setdefault(level, []).append(text)
    first = rest[0] if rest else ""
    if first and not first.startswith("-") and first in found.options:
        raise UsageError(f"{first} is neither a level ({', '.join(LEVELS)}, changed) nor a file in tests/")
    found.everything = not named and not found.targets
    for level in LEVELS:
        if level in named or found.everything:
            found.targets.setdefault(level, [])
    return found


QUICK = ("unit", "rules", "engine")
"""Levels that a change runs at once."""


def affected(files: list[str]) -> tuple[Chosen, list[str]]:
    """Of test files that a change can reach: what to run, and a line with a command for each longer level."""
    found, left = Chosen(), list[str]()
    for name, level in LEVELS.items():
        of_level = [file for file in files if file.startswith(f"tests/{name}/")]
        if name in QUICK and of_level:
            found.targets[name] = of_level
        elif of_level:
            all_of_it = len(of_level) == len(list(level.folder.glob("test_*.py")))
            command = f"./dev test {name}" if all_of_it else f"./dev test {' '.join(of_level)}"
            minutes = f", about {level.minutes:g} minutes" if all_of_it else ""
            left.append(f"not run, though the change can reach it{minutes}: {command}")
    return found, left


def target_of(argument: str, cwd: Path) -> tuple[str, str] | None:
    """The level of a test file, a folder or one test (`FILE::NAME`), and its path as pytest takes it."""
    path, separator, test = argument.partition("::")
    for base in (cwd, ROOT):
        file = (base / path).resolve()
        level = level_of(file)
        if path and level and file.exists():
            return level.name, f"{file.relative_to(ROOT)}{separator}{test}"
    return None
