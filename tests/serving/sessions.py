"""All processes that a server has started, and their end.

They are found by their session: vLLM's processes change the title of their command line, which takes the place of their
environment, and Triton's and vLLM's own process groups are several.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

CLEANER = "multiprocessing.resource_tracker"
"""Python's own process that removes shared memory once those who use it are gone, however they ended."""


def members(leader: int, name: str = "") -> list[int]:
    """Processes of the session that `leader` has begun, by part of their command line; without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # The second field is the program's name in brackets and may hold anything, so count from its end.
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == leader and state != "Z" and name in command(int(entry.name)):
                    found.append(int(entry.name))
    return found


def command(pid: int) -> str:
    """The command line; empty if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def end(leader: int, patience: float = 30) -> None:
    """Kills the session's processes; those that clean up after them have `patience` seconds to end by themselves."""
    for pid in members(leader):
        if CLEANER not in command(pid):
            _kill(pid)
    until = time.monotonic() + patience
    while members(leader) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in members(leader):
        _kill(pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
