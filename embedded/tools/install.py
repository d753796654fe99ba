"""Finds a pinned tool or builds it: on PATH, then in .tools/bin, then `go build` of its pinned module.

A build is done once per pin, by one process at a time, with a time limit and visible progress. One that was
interrupted goes on where it stopped, because Go keeps what it has downloaded and compiled.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .registry import TOOLS, Tool

ROOT = Path(__file__).parents[2]
TOOLS_DIR = ROOT / ".tools"
BUILD_LIMIT = 45 * 60.0
"""Seconds for one build, and for waiting for those of another process. Pulumi took 210 to 390 s cold on two cores."""


class ToolError(Exception):
    """A tool that is neither there nor can be built. The message says what to do."""


def provide(name: str, tools_dir: Path = TOOLS_DIR, limit: float = BUILD_LIMIT) -> Path:
    """Path of the tool at its pinned version. Raises `ToolError`."""
    tool = TOOLS.get(name)
    if tool is None:
        raise ToolError(f"unknown tool {name!r} (known: {', '.join(sorted(TOOLS))})")
    if found := find(tool, tools_dir):
        return found
    installed = _installed(tool, tools_dir)
    with _lock(tools_dir / "lock", tool, installed, time.monotonic() + limit):
        if not installed.exists():  # another process may have built it while this one waited
            with _emptied(tools_dir / "work") as work:
                _build(tool, installed, work, time.monotonic() + limit)
    return installed


def find(tool: Tool, tools_dir: Path = TOOLS_DIR) -> Path | None:
    """Path of the tool at its pinned version; None: it has to be built."""
    if found := on_path(tool):
        return found
    installed = _installed(tool, tools_dir)
    return installed if installed.exists() else None


def _installed(tool: Tool, tools_dir: Path) -> Path:
    return tools_dir / "bin" / tool.key / tool.binary


def on_path(tool: Tool) -> Path | None:
    """The tool on PATH, if its major and minor version are the pinned ones."""
    found = shutil.which(tool.binary)
    if not found or not tool.version_args:
        return None
    version = _version(tool, Path(found))
    return Path(found) if version and version[:2] == _numbers(tool.version)[:2] else None


def _version(tool: Tool, binary: Path) -> list[int]:
    """The version that a binary reports; empty if it reports none."""
    try:
        run = subprocess.run([binary, *tool.version_args], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return _numbers(run.stdout + run.stderr) if run.returncode == 0 else []


def _numbers(text: str) -> list[int]:
    match = re.search(r"\bv?(\d+)\.(\d+)\.(\d+)", text)
    return [int(part) for part in match.groups()] if match else []


@contextmanager
def _lock(path: Path, tool: Tool, installed: Path, deadline: float) -> Iterator[None]:
    """One build at a time on this checkout. The kernel frees the lock when its holder ends, however it ends.

    Who finds the tool installed meanwhile has waited enough, and needs no lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        progress: _Progress | None = None
        while not installed.exists():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ToolError(f"{tool.name}: another process still holds {path}; end it and try again") from None
                progress = progress or _Progress(f"{tool.name} {tool.version}", time.monotonic())
                progress.show("waiting for another process that is building tools")
                time.sleep(0.5)
        if progress:
            progress.end()
        yield


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    """A folder for what a build takes on the way: gigabytes, which Go leaves behind if it is killed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(tool: Tool, target: Path, work: Path, deadline: float) -> None:
    go = shutil.which("go")
    if not go:
        raise ToolError(
            f"{tool.name} {tool.version} is neither on PATH nor built yet, and Go is missing to build it.\n"
            f"Either install Go 1.21 or newer (https://go.dev/dl/; it fetches the exact toolchain that the module "
            f"asks for) and try again,\nor put {tool.name} {tool.version} on PATH ({tool.install_hint})."
        )
    binary = work / tool.binary
    command = [go, "build", "-v", "-mod=readonly", "-buildvcs=false", "-ldflags", tool.ldflags, "-o", str(binary)]
    if tool.tags:
        command += ["-tags", tool.tags]
    if tool.embeds or tool.edit:
        command += ["-overlay", str(_overlay(go, tool, work))]
    package = f"./{tool.name}" if tool.edit else tool.package
    status, tail = _run(tool, [*command, package], work, deadline)
    if status is None:
        raise ToolError(f"{tool.name}: the build reached its time limit; run it again, it goes on where it stopped")
    if status != 0:
        raise ToolError(f"{tool.name}: go build failed with status {status}:\n" + "\n".join(tail))
    built = _version(tool, binary) if tool.version_args else _numbers(tool.version)
    if built != _numbers(tool.version):
        reported = "v" + ".".join(map(str, built)) if built else "no version"
        raise ToolError(f"{tool.name}: the built binary reports {reported}, not {tool.version}")
    target.parent.mkdir(parents=True, exist_ok=True)
    binary.replace(target)


def _overlay(go: str, tool: Tool, folder: Path) -> Path:
    """Go's file that puts other modules' files into ours for the build.

    Beside our main `tool.embeds`, as `go:embed` reads no other module's files; and an edited main.go in a folder of its
    own, as Go replaces no file of its module cache.
    """
    replace = {str(tool.module / name): str(_folder(go, tool, package) / name) for name, package in tool.embeds}
    if tool.edit:
        source, edited = _folder(go, tool, tool.package) / "main.go", folder / "main.go"
        text, (old, new) = source.read_text(), tool.edit
        if text.count(old) != 1:
            raise ToolError(f"{tool.name}: {old!r} is {text.count(old)} times in {source}; see `edit` in registry.py")
        edited.write_text(text.replace(old, new))
        replace[str(tool.module / tool.name / "main.go")] = str(edited)
    file = folder / "overlay.json"
    file.write_text(json.dumps({"Replace": replace}))
    return file


def _folder(go: str, tool: Tool, package: str) -> Path:
    listed = [go, "list", "-e", "-mod=readonly", "-find", "-f", "{{.Dir}}", package]
    run = subprocess.run(listed, cwd=tool.module, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise ToolError(f"{tool.name}: go list {package} failed:\n{run.stderr}")
    return Path(run.stdout.strip())


def _run(tool: Tool, command: list[str], work: Path, deadline: float) -> tuple[int | None, list[str]]:
    """Runs the build under a progress line. Returns its status (None: out of time) and the end of what it said."""
    start = time.monotonic()
    # A process group, so that compilers and linkers end with it. No session: it would have as much of the CPUs as this
    # one has, however nice the build is (sched(7), autogroup).
    environment = {**os.environ, "GOTMPDIR": str(work)}
    build = subprocess.Popen(
        command, cwd=tool.module, env=environment, stderr=subprocess.PIPE, text=True, process_group=0
    )
    seen = _Counter()
    reader = threading.Thread(target=seen.read, args=(build.stderr,), daemon=True)
    reader.start()
    progress = _Progress(f"{tool.name} {tool.version}: building (once)", start)
    try:
        while build.poll() is None:
            if time.monotonic() > deadline:
                return None, []
            progress.show(f"{seen.modules} modules fetched, {seen.packages} packages compiled")
            time.sleep(0.2)
        reader.join(timeout=5)
        return build.returncode, list(seen.tail)
    finally:
        progress.end()
        if build.poll() is None:
            os.killpg(build.pid, signal.SIGTERM)
            try:
                build.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(build.pid, signal.SIGKILL)


class _Counter:
    """Counts what `go build -v` reports: a line per fetched module and per compiled package."""

    def __init__(self) -> None:
        self.modules = 0
        self.packages = 0
        self.tail: deque[str] = deque(maxlen=20)

    def read(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.tail.append(line.rstrip())
            if line.startswith("go: downloading"):
                self.modules += 1
            elif not line.startswith(("go: ", "#", "\t")):
                self.packages += 1


class _Progress:
    """One line that moves on a terminal; a line each ten seconds elsewhere, such as in a CI log."""

    def __init__(self, title: str, start: float) -> None:
        self.title = title
        self.start = start
        self.live = sys.stderr.isatty()
        self.next = start

    def show(self, what: str) -> None:
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (0.2 if self.live else 10)
        elapsed = int(now - self.start)
        text = f"{self.title}, {elapsed // 60}:{elapsed % 60:02}, {what}"
        print(f"\r\x1b[K{text}" if self.live else text, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.live:
            print(file=sys.stderr)
