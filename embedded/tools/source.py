"""Files that projects publish in their Go modules beside the code: CRDs, KWOK's stages."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

from .build import ToolError


@cache
def go_module(module: str, version: str) -> Path:
    """The folder of a module in the module cache, downloaded on first use and checked by Go's checksum database.

    Raises `ToolError`.
    """
    go = shutil.which("go")
    if not go:
        raise ToolError(f"Go is missing, which fetches {module} {version}; install it from https://go.dev/dl/")
    command = [go, "mod", "download", "-json", f"{module}@{version}"]
    run = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=600, check=False)
    answer = json.loads(run.stdout or "{}")
    if "Dir" not in answer:
        raise ToolError(f"{module}@{version} cannot be fetched: {answer.get('Error') or run.stderr}")
    return Path(answer["Dir"])
