"""Files that projects publish in their Go modules: Kubernetes' schemas, CRDs, a script of Pulumi's."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path


@cache
def go_module(module: str, version: str) -> Path:
    """The folder of a module in the module cache, downloaded on first use and checked by Go's checksum database."""
    go = shutil.which("go")
    if not go:
        raise RuntimeError(f"Go is missing, which fetches {module}; see https://go.dev/dl/")
    command = [go, "mod", "download", "-json", f"{module}@{version}"]
    run = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=600, check=False)
    answer = json.loads(run.stdout or "{}")
    if "Dir" not in answer:
        raise RuntimeError(f"{module}@{version}: {answer.get('Error') or run.stderr}")
    return Path(answer["Dir"])
