"""The version that a program tells."""

import errno
import re
import subprocess
import time
from pathlib import Path

from .registry import Tool


def reported(tool: Tool, binary: Path) -> list[int]:
    """Major, minor and patch that a binary tells; empty if it tells none. Raises OSError if it cannot be run."""
    for _ in range(100):
        try:
            run = subprocess.run([binary, *tool.version_args], capture_output=True, text=True, timeout=60, check=False)
            return numbers(run.stdout + run.stderr) if run.returncode == 0 else []
        except subprocess.TimeoutExpired:
            return []
        except OSError as error:
            # A file that was just written is held open by what another thread starts at that moment.
            if error.errno != errno.ETXTBSY:
                raise
            time.sleep(0.05)
    return []


def numbers(text: str) -> list[int]:
    """The first version in a text, such as [1, 36, 3] of `Kubernetes v1.36.3`; empty if there is none."""
    match = re.search(r"\bv?(\d+)\.(\d+)\.(\d+)", text)
    return [int(part) for part in match.groups()] if match else []
