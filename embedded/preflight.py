"""What this machine must have before anything starts: all that is missing is said at once."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from . import sandbox
from .process import PlatformError

FREE_GB = 3
"""For the state, logs and metrics of a day, and the weights that pods copy."""
GB = 10**9


def check(home: Path) -> None:
    """`home`: the state folder. Raises `PlatformError`."""
    if found := list(_problems(home)):
        raise PlatformError("\n".join(["This machine cannot run the platform:", *(f"- {item}" for item in found)]))


def _problems(home: Path) -> Iterator[str]:
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
    home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(home).free / GB
    if free < FREE_GB:
        yield (
            f"the disk of {home} has {free:.1f} GB free, and {FREE_GB} GB are needed; free some, or name a folder on "
            "another disk with EKS_LLM_HOME"
        )
