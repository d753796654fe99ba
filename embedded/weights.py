"""The model files of a stack that runs on this machine: folders in place of S3 buckets."""

import os
import shutil
import subprocess
from pathlib import Path

from .process import PlatformError
from .serving_env import ROOT, ServingEnvironment

TINY = "tiny"
"""The model that is made here, when a service names it. All others' files have to be put into their folder."""


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
