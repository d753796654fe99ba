"""The checks of `./dev check`: format, lint, types and workflows. All run, whatever fails.

python -m tests.suite.checks [LINES]: writes a line of JSON per check to LINES too, as plugin.py does for tests.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from embedded.tools import ToolError, provide
from tests.suite.levels import ROOT

BIN = Path(sys.prefix) / "bin"


def actionlint() -> list[str | Path]:
    # Without shellcheck and pyflakes, which a machine may have or not.
    return [provide("actionlint"), "-shellcheck=", "-pyflakes="]


CHECKS: dict[str, Callable[[], list[str | Path]]] = {
    "ruff format": lambda: [BIN / "ruff", "format", "--check", "."],
    "ruff check": lambda: [BIN / "ruff", "check", "."],
    "pyright": lambda: [BIN / "pyright", "--pythonpath", BIN / "python"],
    "zizmor": lambda: [BIN / "zizmor", "--offline", "--no-progress", "--quiet", ".github/workflows"],
    "actionlint": actionlint,
}


def passes(command: Callable[[], list[str | Path]]) -> bool:
    try:
        return subprocess.run(command(), cwd=ROOT, check=False).returncode == 0
    except ToolError as error:
        print(error, file=sys.stderr)
        return False


def main(lines: Path | None) -> int:
    def write(**line: object) -> None:
        if lines:
            with lines.open("a") as file:
                file.write(json.dumps(line) + "\n")

    write(collected=len(CHECKS))
    failed: list[str] = []
    for name, command in CHECKS.items():
        print(f"{name}:", flush=True)
        begin = time.monotonic()
        good = passes(command)
        failed += [] if good else [name]
        write(test=name, outcome="passed" if good else "failed", seconds={"call": round(time.monotonic() - begin, 3)})
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else None))
