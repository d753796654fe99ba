"""Builds pinned Go modules: all programs of a module in one `go build`, which share its time."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .progress import Line
from .registry import Tool
from .versions import numbers, reported

WARM = 10**9
"""Bytes from which on a Go build cache is somebody's who works with Go."""


class ToolError(Exception):
    """A tool that is neither there nor can be had. The message says what to do."""


@dataclass(frozen=True)
class Built:
    """What a build made."""

    binaries: list[Path]
    """In the order of the tools."""
    cpu: float
    """Processor seconds of the build and of all that it started."""


def groups(tools: Iterable[Tool]) -> list[list[Tool]]:
    """Tools by the module that pins them."""
    found: dict[Path, list[Tool]] = {}
    for tool in tools:
        found.setdefault(tool.module, []).append(tool)
    return list(found.values())


def title(tools: Sequence[Tool]) -> str:
    """Such as `etcd v3.6.14`."""
    return f"{', '.join(tool.name for tool in tools)} {tools[0].version}"


def go() -> str | None:
    return shutil.which("go")


def cache_of(command: str, tools_dir: Path) -> Path | None:
    """Folder for what Go compiles here, removed once the tools are there; None: Go's own cache is used as it is.

    A developer's cache may hold part of what is to be built, and what it takes from here serves later builds. On a
    machine where nobody works with Go it would only be gigabytes that nobody asked for (docs/decisions/0011).
    """
    if os.environ.get("GOCACHE"):
        return None
    run = subprocess.run([command, "env", "GOCACHE"], capture_output=True, text=True, check=False)
    own = tools_dir / "go-build"
    return None if _holds(Path(run.stdout.strip() or "/nowhere"), WARM) else own


def _holds(folder: Path, size: int) -> bool:
    """Whether the files of a folder take as much; looks no further once they do."""
    total = 0
    for parent, _, files in os.walk(folder):
        total += sum(os.lstat(os.path.join(parent, file)).st_size for file in files)
        if total >= size:
            return True
    return False


def build(
    tools: Sequence[Tool], work: Path, cache: Path | None, deadline: float, status: Callable[[int], str]
) -> Built:
    """Builds tools of one module in the empty folder `work`. `status`: words for the progress, by packages compiled.

    Raises `ToolError`.
    """
    command = go()
    name = title(tools)
    if not command:
        hints = "\n".join(f"or put {tool.name} {tool.version} on PATH ({tool.install_hint})" for tool in tools)
        raise ToolError(
            f"{name} is neither on PATH nor built yet, and Go is missing to build it.\n"
            "Either install Go 1.21 or newer (https://go.dev/dl/; it fetches the exact toolchain that the module asks "
            f"for) and try again,\n{hints}."
        )
    first, out, temporary = tools[0], work / "out", work / "go"
    for folder in (out, temporary):
        folder.mkdir()
    target = out if len(tools) > 1 else out / first.binary
    arguments = [
        command,
        "build",
        "-v",
        "-mod=readonly",
        "-buildvcs=false",
        "-ldflags",
        first.ldflags,
        "-o",
        str(target),
    ]
    if first.tags:
        arguments += ["-tags", first.tags]
    if any(tool.embeds or tool.edit for tool in tools):
        arguments += ["-overlay", str(_overlay(command, tools, work))]
    environment = {**os.environ, "GOTMPDIR": str(temporary), **({"GOCACHE": str(cache)} if cache else {})}
    arguments += map(_package, tools)
    code, tail, cpu = _run(name, first, arguments, environment=environment, deadline=deadline, status=status)
    if code is None:
        raise ToolError(f"{name}: the build reached its time limit; run it again, it goes on where it stopped")
    if code != 0:
        raise ToolError(f"{name}: go build failed with status {code}:\n" + "\n".join(tail))
    # Go names a binary after its package where it makes several.
    binaries = [target] if len(tools) == 1 else [out / Path(_package(tool)).name for tool in tools]
    for tool, binary in zip(tools, binaries, strict=True):
        version = reported(tool, binary) if tool.version_args else numbers(tool.version)
        if version != numbers(tool.version):
            told = "v" + ".".join(map(str, version)) if version else "no version"
            raise ToolError(f"{tool.name}: the built binary reports {told}, not {tool.version}")
    return Built(binaries, cpu)


def _package(tool: Tool) -> str:
    return f"./{tool.name}" if tool.edit else tool.package


def _overlay(command: str, tools: Sequence[Tool], folder: Path) -> Path:
    """An overlay file: which files `go build` sees besides those that are there.

    Beside our main `tool.embeds`, as `go:embed` reads no other module's files; and an edited main.go in a folder of its
    own, as Go replaces no file of its module cache.
    """
    replace: dict[str, str] = {}
    for tool in tools:
        for name, package in tool.embeds:
            replace[str(tool.module / name)] = str(_folder(command, tool, package) / name)
        if tool.edit:
            source, edited = _folder(command, tool, tool.package) / "main.go", folder / f"{tool.name}.go"
            text, (old, new) = source.read_text(), tool.edit
            if text.count(old) != 1:
                raise ToolError(
                    f"{tool.name}: {old!r} is {text.count(old)} times in {source}; see `edit` in registry.py"
                )
            edited.write_text(text.replace(old, new))
            replace[str(tool.module / tool.name / "main.go")] = str(edited)
    file = folder / "overlay.json"
    file.write_text(json.dumps({"Replace": replace}))
    return file


def _folder(command: str, tool: Tool, package: str) -> Path:
    listed = [command, "list", "-e", "-mod=readonly", "-find", "-f", "{{.Dir}}", package]
    run = subprocess.run(listed, cwd=tool.module, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise ToolError(f"{tool.name}: go list {package} failed:\n{run.stderr}")
    return Path(run.stdout.strip())


def _run(
    name: str,
    tool: Tool,
    command: Sequence[str],
    *,
    environment: dict[str, str],
    deadline: float,
    status: Callable[[int], str],
) -> tuple[int | None, list[str], float]:
    """Runs a build under a progress line: its exit code (None: out of time), the end of its output, its CPU seconds."""
    # A process group, so that compilers and linkers end with it. No session: it would have as much of the CPUs as this
    # one has, however nice the build is (sched(7), autogroup).
    process = subprocess.Popen(
        command, cwd=tool.module, env=environment, stderr=subprocess.PIPE, text=True, process_group=0
    )
    seen = _Counter()
    reader = threading.Thread(target=seen.read, args=(process.stderr,), daemon=True)
    reader.start()
    line = Line(f"{name}: building (once)")
    try:
        while True:
            # Not `poll`, which does not tell what the process and its children have used.
            pid, code, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(code)
                reader.join(timeout=5)
                return process.returncode, list(seen.tail), usage.ru_utime + usage.ru_stime
            if time.monotonic() > deadline:
                return None, [], 0
            line.show(seen.text(status))
            time.sleep(0.1)
    finally:
        line.end()
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


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

    def text(self, status: Callable[[int], str]) -> str:
        fetched = f"{self.modules} modules fetched, " if self.modules and not self.packages else ""
        return fetched + status(self.packages)
