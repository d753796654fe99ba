"""Processes that outlive the command that started them, and are found and ended again by the next one.

A record file per process holds its id and its start time. A pid is reused sooner or later, a pid with the same start
time is not: so a record that a killed run left behind never leads to the wrong process.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command: Ctrl-C, `kill`, the end of its terminal."""
PATIENCE = 180.0
"""Seconds that anything is waited for which takes a few on a calm machine: this one may be busy."""
SIGNALS = (*ENDING, signal.SIGALRM)
"""These, and what insists on them, see cli.py."""


class PlatformError(Exception):
    """The platform cannot do what was asked. The message says what is wrong, and what to do."""


@dataclass(frozen=True)
class Process:
    """One process of the platform. It runs in a session of its own, so Ctrl-C on a terminal does not reach it."""

    name: str
    command: list[str]
    home: Path
    """Folder of its log and its record: the platform's state folder."""
    ready: Callable[[], bool]
    """True once it serves. Called again and again; it may raise OSError meanwhile."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    """All of it but PATH, HOME and the locale: nothing of the caller's environment leaks in."""

    @property
    def log(self) -> Path:
        return self.home / "logs" / f"{self.name}.log"

    def start(self, timeout: float = PATIENCE) -> float:
        """Starts it and waits until it is ready. Returns the seconds that took.

        Raises:
            PlatformError: it ended or did not become ready; the end of its log is in the message.
        """
        return self.wait(self.launch(), time.monotonic(), timeout)

    def wait(self, process: subprocess.Popen[bytes], begin: float, timeout: float = PATIENCE) -> float:
        """Waits until what `launch` started at `begin` is ready, as `start` does."""
        while time.monotonic() - begin < timeout:
            if process.poll() is not None:
                raise PlatformError(f"{self.name} ended with status {process.returncode}.\n{self._tail()}")
            with suppress(OSError):
                if self.ready():
                    return time.monotonic() - begin
            time.sleep(0.1)
        raise PlatformError(f"{self.name} was not ready after {timeout:g} s.\n{self._tail()}")

    def launch(self) -> subprocess.Popen[bytes]:
        """Starts it without waiting."""
        record = self.home / "run" / f"{self.name}.json"
        for folder in (self.log.parent, record.parent):
            folder.mkdir(parents=True, exist_ok=True)
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "LC_ALL") if key in os.environ}
        with self.log.open("ab") as log, deferred():  # nobody would ever end a process that is not recorded
            process = subprocess.Popen(
                self.command,
                cwd=self.home,
                env=kept | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            record.write_text(json.dumps({"pid": process.pid, "started": start_time(process.pid)}))
        return process

    def _tail(self, lines: int = 15) -> str:
        text = self.log.read_text(errors="replace").splitlines()
        return f"The end of {self.log}:\n" + "\n".join(f"  {line}" for line in text[-lines:])


def start_together(processes: Iterable[Process], progress: Callable[[str], None]) -> None:
    """Starts processes that do not wait for each other, and waits until all are ready.

    Raises `PlatformError`, and then leaves the rest running.
    """
    begin = time.monotonic()
    for process, running in [(process, process.launch()) for process in processes]:
        progress(f"{process.name} ready in {process.wait(running, begin):.1f} s")


@contextmanager
def deferred() -> Iterator[None]:
    """What would end this command does so after the block."""
    came: list[int] = []
    with _handled_by(lambda number, _: came.append(number)):
        yield
    for number in came:
        signal.raise_signal(number)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """What would end this command is ignored."""
    with _handled_by(signal.SIG_IGN):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, Any], None] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield
        return
    before: dict[int, Any] = {}
    try:
        for number in SIGNALS:
            before[number] = signal.signal(number, handler)
        yield
    finally:
        for number in reversed(SIGNALS):  # Ctrl-C last, as it may end this at once
            if number in before:
                signal.signal(number, before[number])


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is none, or only its remains (a zombie)."""
    try:
        # The second field is the program's name in brackets and may hold anything, so count from its end.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def recorded(home: Path) -> list[str]:
    """Names of all processes that were started and not stopped since, in the order of their start."""
    files = (home / "run").glob("*.json")
    return [file.stem for file in sorted(files, key=lambda file: file.stat().st_mtime_ns)]


def pid_of(home: Path, name: str) -> int | None:
    """The pid of a recorded process that still runs."""
    try:
        record = json.loads((home / "run" / f"{name}.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):  # a run that was killed while it wrote
        return None
    alive = record["started"] is not None and start_time(record["pid"]) == record["started"]
    return record["pid"] if alive else None


def stop(home: Path, names: Iterable[str], grace: float = 5) -> None:
    """Ends the named processes and whatever they started in their sessions: SIGTERM to all, SIGKILL after `grace`."""
    names = list(names)
    # Whole sessions, as groups are not enough: Pulumi gives its plugins groups of their own.
    left = _sessions({pid for name in names if (pid := pid_of(home, name))})
    for sent, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, sent)
        deadline = time.monotonic() + patience
        while left and time.monotonic() < deadline:
            left = [pid for pid in left if not gone(pid)]
            time.sleep(0.02)
    if left:
        raise PlatformError(f"processes of {', '.join(names)} did not end: {', '.join(map(str, left))}")
    for name in names:
        (home / "run" / f"{name}.json").unlink(missing_ok=True)


def interrupt(home: Path, name: str, patience: float = 20) -> None:
    """Does to a process and its children what Ctrl-C on a terminal does, and waits `patience` seconds for its end."""
    pid = pid_of(home, name)
    if pid:
        os.killpg(pid, signal.SIGINT)
        deadline = time.monotonic() + patience
        while not gone(pid) and time.monotonic() < deadline:
            time.sleep(0.05)


def _sessions(leaders: set[int]) -> list[int]:
    """All processes in the sessions of these."""
    found = []
    for folder in Path("/proc").iterdir():
        if leaders and folder.name.isdecimal():
            with suppress(ProcessLookupError):
                if os.getsid(int(folder.name)) in leaders:
                    found.append(int(folder.name))
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended and freed all that it held; the threads of a zombie may do so later."""
    with suppress(ChildProcessError):  # collects it, where it is a child of ours
        os.waitpid(pid, os.WNOHANG)
    threads = 0
    with suppress(FileNotFoundError, ProcessLookupError):
        threads = len(os.listdir(f"/proc/{pid}/task"))
    return start_time(pid) is None and threads <= 1
