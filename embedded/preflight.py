"""What this machine must have before anything starts: all that is missing is said at once."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import sandbox, serving_env
from .process import PlatformError
from .tools import TOOLS, TOOLS_DIR, Tool
from .tools.build import cache_of, groups
from .tools.install import MODE
from .tools.progress import cost_of
from .tools.releases import architecture, origins

GB = 10**9


@dataclass(frozen=True)
class Need:
    """Space that something takes on a disk."""

    folder: Path
    gb: float
    what: str


def check(home: Path, to_build: Collection[str]) -> None:
    """`home`: the state folder; `to_build`: tools that have to be built. Raises `PlatformError`."""
    if found := list(_problems(home, to_build)):
        raise PlatformError("\n".join(["This machine cannot run the platform:", *(f"- {item}" for item in found)]))


def _problems(home: Path, to_build: Collection[str]) -> Iterator[str]:
    if sys.platform != "linux":
        yield f"it runs {sys.platform}; pods run in Linux namespaces, so a virtual machine with Linux is needed"
        return
    if reason := sandbox.problem():
        yield reason
    if not shutil.which("go"):
        yield (
            "Go is missing, which builds the tools that nobody publishes and fetches CRDs; install Go 1.21 or newer "
            "(https://go.dev/dl/)"
        )
    try:
        servers = serving_env.is_made()
    except serving_env.InstallError as error:  # no Python for it
        yield str(error)
        servers = True
    yield from too_full(needs(home, to_build, servers, go_caches() if to_build else {}))


def unpublished(missing: Iterable[str]) -> list[str]:
    """Those of the missing tools that will be built however the network is."""
    arch = "" if os.environ.get(MODE) == "build" else architecture()
    return [name for name in missing if not origins(TOOLS[name], arch)]


def go_caches() -> dict[str, Path]:
    """Where Go will keep what it compiles (GOCACHE) and downloads (GOMODCACHE); empty if it does not say both."""
    if not (go := shutil.which("go")):
        return {}
    command = [go, "env", "-json", "GOCACHE", "GOMODCACHE"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    caches = {name: Path(folder) for name, folder in json.loads(run.stdout or "{}").items()}
    if len(caches) != 2 or not all(map(Path.is_absolute, caches.values())):
        return {}
    return {**caches, "GOCACHE": cache_of(go, TOOLS_DIR) or caches["GOCACHE"]}


def needs(home: Path, to_build: Iterable[str], servers: bool, caches: Mapping[str, Path]) -> Iterator[Need]:
    """Space that `up` takes, as measured. `servers`: Triton and vLLM are installed; `caches`: see `go_caches`."""
    yield Need(home, 3, "state, logs and metrics of a day (elsewhere with EKS_LLM_HOME)")
    if not servers:
        yield Need(serving_env.ROOT, 6.5, "Triton and vLLM")
    builds = groups(TOOLS[name] for name in to_build)
    if builds:
        yield Need(TOOLS_DIR, 5.5, "tools, and what their builds take on the way")
    fresh = [cost_of(tools) for tools in builds if caches and not _downloaded(tools[0], caches["GOMODCACHE"])]
    if fresh:
        compiled, sources = sum(cost.compiled for cost in fresh), sum(cost.sources for cost in fresh)
        yield Need(caches["GOCACHE"], round(compiled, 1), "what Go compiles (elsewhere with GOCACHE)")
        yield Need(caches["GOMODCACHE"], round(sources, 1), "sources that Go downloads (elsewhere with GOMODCACHE)")


def _downloaded(tool: Tool, modules: Path) -> bool:
    """A guess whether the tool has been built on this machine before: the sources of its module are there."""
    match = re.search(r"^(?:require |\t)(\S+) (v\S+)$", (tool.module / "go.mod").read_text(), re.MULTILINE)
    return bool(match) and (modules / f"{match[1]}@{match[2]}").exists()


def too_full(wanted: Iterable[Need]) -> Iterator[str]:
    """A line per disk that holds less than is needed on it."""
    disks: dict[int, list[Need]] = {}
    for need in wanted:
        disks.setdefault(disk_of(_existing(need.folder)), []).append(need)
    for here in disks.values():
        folder = here[0].folder
        free, sum_ = shutil.disk_usage(_existing(folder)).free / GB, sum(need.gb for need in here)
        if free < sum_:
            parts = ", ".join(f"{need.gb:g} GB for {need.what}" for need in here)
            yield f"the disk of {folder} has {free:.1f} GB free, and {sum_:g} GB are needed: {parts}"


def disk_of(folder: Path) -> int:
    return folder.stat().st_dev


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)
