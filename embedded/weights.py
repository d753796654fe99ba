"""The model files of a stack that runs on this machine: folders in place of S3 buckets."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .process import PlatformError
from .serving_env import ROOT, ServingEnvironment
from .stack import Stack

TINY = "tiny"
"""The model that is made here where a service names it. The files of all others have to be there."""


def provide(stack: Stack, buckets: Path, serving: ServingEnvironment, progress: Callable[[str], None]) -> None:
    """Sees to the weights of all services. `buckets` has a folder for each bucket. Raises `PlatformError`."""
    for name, service in stack.services.items():
        folder = buckets / service["weights"].removeprefix("s3://").rstrip("/")
        if (folder / "config.json").exists():
            continue
        if service["model"] != TINY:
            raise PlatformError(
                f"{stack.file.name}: services.{name}.weights: {folder} holds no model, and it stands for "
                f"{service['weights']} here; copy the files of {service['model']} there"
            )
        progress(f"making the tiny model in {folder}")
        make_tiny(serving, folder)


def make_tiny(serving: ServingEnvironment, folder: Path) -> None:
    """Makes the tiny model in `folder`, all of it or nothing. Raises `PlatformError`."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    command = [str(serving.python), "-m", "embedded.tiny_model", str(partial)]
    environment = {**os.environ, **serving.variables(), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise PlatformError(f"the tiny model cannot be made:\n{run.stderr[-2000:]}")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
