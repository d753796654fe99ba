"""Records the program of another revision, in a process of its own: `python -P base_run.py PACKAGE PROJECT STACK`.

The program imports that revision's components. What records it is this revision's planner, loaded from PACKAGE under a
name of its own, so that a base without a planner, or with another one, can be compared too.
"""

import gc
import importlib
import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any


def main(package: str, project: str, stack: str) -> None:
    gc.disable()
    spec = importlib.util.spec_from_file_location(
        "eks_llm_planner", Path(package) / "__init__.py", submodule_search_locations=[package]
    )
    assert spec  # noqa: S101 a path to a file always has one
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    program = importlib.import_module(f"{spec.name}.plan.program")
    try:
        recording = program.run(program.find_project(Path(project)), stack)
        answer = {"recording": asdict(recording)}
    except program.AbsentError:
        answer = {"absent": True}
    except program.PlanError as error:
        answer = {"problems": error.problems}
    json.dump(answer, sys.stdout, default=_plain)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else str(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
