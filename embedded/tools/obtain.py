"""Downloads published tools side by side, and says of each that cannot be had why."""

import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from .archives import extract
from .download import DownloadError, Network, RefusedError, Transfer, fetch, sha256
from .oci import Registry
from .registry import Tool
from .releases import Origin, origins
from .versions import numbers, reported

NETWORK = Network()
"""Of this process: what it has learned about hosts is remembered."""


@dataclass
class Download:
    """One tool on its way."""

    tool: Tool
    transfer: Transfer = field(default_factory=Transfer)
    done: bool = False
    problem: str = ""
    """Why it cannot be had; empty if it is there."""
    refused: bool = False
    """What came is not what was pinned."""


class Downloads:
    """Downloads of several tools, each in a thread of its own, since most wait for other hosts than the rest."""

    def __init__(self, tools: Sequence[Tool], tools_dir: Path, arch: str) -> None:
        self.items = [Download(tool) for tool in tools]
        self._folder = tools_dir / "downloads"
        self._bin = tools_dir / "bin"
        self._arch = arch
        self._network = NETWORK
        self._files: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._begin = time.monotonic()
        for item in self.items:
            threading.Thread(target=self._run, args=(item,), daemon=True).start()

    @property
    def running(self) -> bool:
        return not all(item.done for item in self.items)

    def wait(self, show: Callable[[str], None]) -> list[Download]:
        """Waits for all, and returns those that cannot be had."""
        while self.running:
            show(self.text())
            time.sleep(0.05)
        for file in self._folder.glob("*"):  # what is installed has been copied
            if file.suffix != ".part":
                file.unlink()
        if self._folder.exists() and not list(self._folder.iterdir()):
            self._folder.rmdir()
        return [item for item in self.items if item.problem]

    def text(self) -> str:
        """How far they are, in a few words; empty once all have ended."""
        running = [item for item in self.items if not item.done]
        if not running:
            return ""
        done, total = (sum(getattr(item.transfer, name) for item in self.items) for name in ("done", "total"))
        if not total:
            return f"asking for {len(running)} release binaries"
        rate = done / max(time.monotonic() - self._begin, 0.1)
        there = len(self.items) - len(running)
        return (
            f"{there} of {len(self.items)} are there; {done / 1e6:.0f} of {total / 1e6:.0f} MB at {rate / 1e6:.1f} MB/s"
        )

    def _run(self, item: Download) -> None:
        try:
            problems: list[str] = []
            for origin in origins(item.tool, self._arch):
                try:
                    self._obtain(item, origin)
                    return
                except DownloadError as error:
                    item.refused = item.refused or isinstance(error, RefusedError)
                    problems.append(str(error))
                except (OSError, HTTPException, ValueError, KeyError) as error:  # a full disk; an answer that is none
                    problems.append(f"{origin.location}: {error or type(error).__name__}")
            item.problem = "; ".join(problems)
        finally:
            item.done = True

    def _obtain(self, item: Download, origin: Origin) -> None:
        tool = item.tool
        self._folder.mkdir(parents=True, exist_ok=True)
        binary = self._folder / f"{tool.name}.binary"
        binary.unlink(missing_ok=True)
        try:
            if origin.image:
                registry = Registry(self._network, origin.location)
                registry.take(origin.checksum, self._arch, origin.member, binary, item.transfer)
            else:
                self._from_file(item, origin, binary)
            binary.chmod(0o755)
            if not origin.silent and tool.version_args:
                self._check(tool, origin, binary)
            installed = self._bin / origin.key(tool) / tool.binary
            installed.parent.mkdir(parents=True, exist_ok=True)
            os.replace(binary, installed)
        finally:
            binary.unlink(missing_ok=True)

    def _from_file(self, item: Download, origin: Origin, binary: Path) -> None:
        file = self._folder / origin.checksum
        with self._lock:
            lock = self._files.setdefault(origin.checksum, threading.Lock())
        with lock:  # two tools may be in one archive
            if not file.exists() or sha256(file) != origin.checksum:
                fetch(self._network, origin.location, file, origin.checksum, transfer=item.transfer)
        if not origin.member:
            file.replace(binary)
        elif not extract(file, origin.member, binary):
            raise DownloadError(f"{origin.location} has no file {origin.member}")

    def _check(self, tool: Tool, origin: Origin, binary: Path) -> None:
        try:
            version = reported(tool, binary)
        except OSError as error:
            machine = platform.machine()
            raise DownloadError(f"what {origin.location} holds does not run on {machine} ({error.strerror})") from None
        if version != numbers(tool.version):
            raise DownloadError(f"what {origin.location} holds does not say that it is {tool.version}")


def problems(failed: Sequence[Download]) -> list[str]:
    """A line for each reason why tools cannot be downloaded, with those that it concerns."""
    reasons: dict[tuple[bool, str], list[str]] = {}
    for item in failed:
        reasons.setdefault((item.refused, item.problem), []).append(item.tool.name)
    return [
        f"{'REFUSED: ' if refused else ''}{', '.join(names)}: {problem}"
        for (refused, problem), names in reasons.items()
    ]
