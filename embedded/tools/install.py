"""Finds a pinned tool, downloads its release or builds it, in this order: PATH, .tools/bin, release, `go build`.

It is done once per pin, by one process at a time, with time limits and visible progress. What was interrupted goes on
where it stopped: downloads by ranges, builds because Go keeps what it has downloaded and compiled.
"""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import releases
from .build import ToolError, build, cache_of, go, groups, title
from .obtain import Downloads, problems
from .progress import Estimate, Line
from .registry import TOOLS, Tool
from .versions import numbers, reported

ROOT = Path(__file__).parents[2]
TOOLS_DIR = ROOT / ".tools"
LIMIT = 45 * 60.0
"""Seconds for one build, and for waiting for those of another process. Pulumi took 210 to 390 s cold on two cores."""
MODE = "EKS_LLM_TOOLS"
"""Variable: `build` downloads no release binary."""


def provide(name: str, tools_dir: Path = TOOLS_DIR, limit: float = LIMIT) -> Path:
    """Path of the tool at its pinned version. Raises `ToolError`."""
    return provide_all([name], tools_dir, limit)[name]


def provide_all(
    names: Sequence[str],
    tools_dir: Path = TOOLS_DIR,
    limit: float = LIMIT,
    before_builds: Callable[[list[str]], None] = lambda _: None,
) -> dict[str, Path]:
    """Paths of tools. What is missing is downloaded, side by side, or else built, a module after the other.

    `before_builds`: called with the names of the tools that have to be built, and may refuse by an exception.
    Raises `ToolError`.
    """
    if unknown := [name for name in names if name not in TOOLS]:
        raise ToolError(f"unknown tool {unknown[0]!r} (known: {', '.join(sorted(TOOLS))})")
    tools = [TOOLS[name] for name in names]
    found = {tool.name: find(tool, tools_dir) for tool in tools}
    missing = [tool for tool in tools if not found[tool.name]]
    if missing:
        with _lock(tools_dir, missing, time.monotonic() + limit):
            _get([tool for tool in missing if not find(tool, tools_dir)], tools_dir, limit, before_builds)
    return {tool.name: found[tool.name] or _installed(tool, tools_dir) for tool in tools}


def find(tool: Tool, tools_dir: Path = TOOLS_DIR) -> Path | None:
    """Path of the tool at its pinned version; None: it has to be downloaded or built."""
    return on_path(tool) or next((path for path in _places(tool, tools_dir) if path.exists()), None)


def _installed(tool: Tool, tools_dir: Path) -> Path:
    if found := next((path for path in _places(tool, tools_dir) if path.exists()), None):
        return found
    raise ToolError(f"{tool.name} {tool.version} has gone from {tools_dir} again; try once more")


def _places(tool: Tool, tools_dir: Path) -> list[Path]:
    """Where the tool is after a download, and after a build."""
    published = [origin.key(tool) for origin in releases.origins(tool, releases.architecture())]
    return [tools_dir / "bin" / key / tool.binary for key in (*published, tool.key)]


def on_path(tool: Tool) -> Path | None:
    """The tool on PATH, if its major and minor version are the pinned ones."""
    found = shutil.which(tool.binary)
    if not found or not tool.version_args:
        return None
    try:
        version = reported(tool, Path(found))
    except OSError:
        return None
    return Path(found) if version and version[:2] == numbers(tool.version)[:2] else None


def _get(missing: Sequence[Tool], tools_dir: Path, limit: float, before_builds: Callable[[list[str]], None]) -> None:
    """Installs tools, with those of the same modules: these cost little beside, and are wanted next."""
    modules = {tool.module for tool in missing}
    others = (tool for tool in TOOLS.values() if tool.module in modules and not find(tool, tools_dir))
    wanted = list(dict.fromkeys([*missing, *others]))
    arch = releases.architecture() if os.environ.get(MODE) != "build" else ""
    published = [tool for tool in wanted if releases.origins(tool, arch)]
    if published:
        line = Line("release binaries")
        failed = Downloads(published, tools_dir, arch).wait(line.show)
        line.end()
        for problem in problems(failed):
            _say(f"{problem}{'; built instead' if go() else ''}")
    unbuilt = [tool for tool in wanted if not find(tool, tools_dir)]
    if unbuilt:
        before_builds([tool.name for tool in unbuilt])
        _build_all(groups(unbuilt), tools_dir, limit)


def _build_all(builds: Sequence[Sequence[Tool]], tools_dir: Path, limit: float) -> None:
    command = go()
    cache = cache_of(command, tools_dir) if command else None
    estimate = Estimate(builds, time.monotonic())
    for tools in builds:
        with _emptied(tools_dir / "work") as work:
            begin = time.monotonic()
            built = build(
                tools,
                work,
                cache,
                begin + limit,
                lambda packages, tools=tools: estimate.text(tools, packages, time.monotonic()),
            )
            for tool, binary in zip(tools, built.binaries, strict=True):
                target = tools_dir / "bin" / tool.key / tool.binary
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(binary, target)
        estimate.finished(tools)
        _say(f"{title(tools)}: built in {time.monotonic() - begin:.0f} s, {built.cpu:.0f} s of processor time")
    if cache:
        shutil.rmtree(cache, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _lock(tools_dir: Path, wanted: Sequence[Tool], deadline: float) -> Iterator[None]:
    """One process at a time installs in a folder. The kernel frees the lock when its holder ends, however it ends.

    Who finds the tools installed meanwhile has waited enough, and needs no lock.
    """
    path = tools_dir / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        line: Line | None = None
        while not all(any(place.exists() for place in _places(tool, tools_dir)) for tool in wanted):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    names = ", ".join(tool.name for tool in wanted)
                    raise ToolError(f"{names}: another process still holds {path}; end it and try again") from None
                line = line or Line(title(wanted))
                line.show("waiting for another process that is installing tools")
                time.sleep(0.5)
        if line:
            line.end()
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
