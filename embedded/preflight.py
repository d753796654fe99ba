"""What this machine must have before anything starts: all that is missing is said at once."""

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import sandbox, serving_env
from .process import PlatformError
from .tools import TOOLS, TOOLS_DIR

GB = 10**9


@dataclass(frozen=True)
class Need:
    """Space that something takes on a disk."""

    folder: Path
    gb: float
    what: str


def check(home: Path, missing: Collection[str]) -> None:
    """`home`: the state folder; `missing`: tools that have to be built. Raises `PlatformError`."""
    if found := list(_problems(home, missing)):
        raise PlatformError("\n".join(["This machine cannot run the platform:", *(f"- {item}" for item in found)]))


def _problems(home: Path, missing: Collection[str]) -> Iterator[str]:
    if sys.platform != "linux":
        yield f"it runs {sys.platform}; pods run in Linux namespaces, so a virtual machine with Linux is needed"
        return
    if reason := sandbox.problem():
        yield reason
    if not shutil.which("go"):
        yield (
            "Go is missing, which builds the tools that are not on PATH and fetches CRDs; install Go 1.21 or newer "
            "(https://go.dev/dl/)"
        )
    try:
        servers = serving_env.is_made()
    except serving_env.InstallError as error:  # no Python for it
        yield str(error)
        servers = True
    yield from too_full(needs(home, missing, servers, go_caches() if missing else {}))


def go_caches() -> dict[str, Path]:
    """Where Go keeps what it compiles (GOCACHE) and downloads (GOMODCACHE); empty if it does not say both."""
    if not (go := shutil.which("go")):
        return {}
    command = [go, "env", "-json", "GOCACHE", "GOMODCACHE"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    caches = {name: Path(folder) for name, folder in json.loads(run.stdout or "{}").items()}
    return caches if len(caches) == 2 and all(map(Path.is_absolute, caches.values())) else {}


def needs(home: Path, missing: Collection[str], servers: bool, caches: Mapping[str, Path]) -> Iterator[Need]:
    """Space that `up` takes, as measured. `servers`: Triton and vLLM are installed; `caches`: see `go_caches`."""
    yield Need(home, 3, "state, logs and metrics of a day (elsewhere with EKS_LLM_HOME)")
    if not servers:
        yield Need(serving_env.ROOT, 6.5, "Triton and vLLM")
    if missing:
        yield Need(TOOLS_DIR, 5.5, "tools, and what their builds take on the way")
    if caches and "kube-apiserver" in missing and not _seem_filled(caches):
        yield Need(caches["GOCACHE"], 13.5, "what Go compiles (elsewhere with GOCACHE)")
        yield Need(caches["GOMODCACHE"], 5, "sources that Go downloads (elsewhere with GOMODCACHE)")


def _seem_filled(caches: Mapping[str, Path]) -> bool:
    """A guess: the largest of the tools has been downloaded on this machine before."""
    return (caches["GOMODCACHE"] / "k8s.io" / f"kubernetes@{TOOLS['kube-apiserver'].version}").exists()


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
