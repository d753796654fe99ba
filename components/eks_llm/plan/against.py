"""The plan of another git revision, to compare with: its program and components, in a work tree and process of its own.

No credentials, and nothing of the user's checkout is touched.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import eks_llm

from .program import PlanError, Project
from .recorder import Recording, Resource

PACKAGE = Path(eks_llm.__file__).parent
HOOK_VARIABLES = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX")
TIMEOUT = 300
"""Seconds after which a base is given up."""


@dataclass(frozen=True)
class Base:
    """Another revision: what its program registers, or why it cannot be planned."""

    ref: str
    commit: str
    recording: Recording | None
    problems: tuple[str, ...] = ()
    new: bool = False
    """It has no such stack, and so registers nothing."""


class Pending:
    """A base whose program runs while the caller plans the head."""

    def __init__(self, ref: str, commit: str, process: "subprocess.Popen[str]") -> None:
        self._ref, self._commit, self._process = ref, commit, process

    def result(self) -> Base:
        """Waits for it. A program that fails is a result too."""
        try:
            out, log = self._process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return Base(self._ref, self._commit, None, (f"its program did not end within {TIMEOUT} s",))
        if self._process.returncode:
            last = (log.strip().splitlines() or ["no message"])[-1]
            return Base(self._ref, self._commit, None, (f"its program broke the planner: {last}",))
        answer = json.loads(out)
        if "absent" in answer:
            return Base(self._ref, self._commit, Recording(), new=True)
        if "problems" in answer:
            return Base(self._ref, self._commit, None, tuple(answer["problems"]))
        return Base(self._ref, self._commit, _recording(answer["recording"]))


@contextmanager
def started(project: Project, stack: str, ref: str) -> Iterator[Pending]:
    """Starts the plan of `stack` at the git revision `ref`; ends it with the block.

    Raises `PlanError` where there is no git, no repository or no such revision.
    """
    if not ref.strip():
        raise PlanError("--against: the revision is empty; name one, such as origin/main")
    top = Path(_git(project.root, "rev-parse", "--show-toplevel", fails=f"{project.root} is in no git repository"))
    try:
        commit = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}", fails="")
    except PlanError as error:
        if str(error).startswith("--against needs git"):
            raise
        raise PlanError(f"--against: no revision {ref!r} in {top}; {_what_would_help(top, ref)}") from None
    with tempfile.TemporaryDirectory(prefix="eks-llm-base-") as directory:
        tree = Path(directory) / "tree"
        # Hooks of the repository are none of this work tree's business.
        _git(top, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--detach", str(tree), commit,
             fails=f"--against: cannot check out {ref!r}")  # fmt: skip
        process = _start(top, tree, project, stack)
        try:
            yield Pending(ref, commit, process)
        finally:
            process.kill()
            process.communicate()
            _git(top, "worktree", "remove", "--force", str(tree), fails=f"cannot remove {tree}")


def _what_would_help(top: Path, ref: str) -> str:
    """Against a revision that git does not find."""

    def asked(*args: str) -> str | None:
        try:
            return _git(top, *args, fails="no")
        except PlanError:
            return None

    if asked("rev-parse", "--verify", "--quiet", "HEAD") is None:
        return "the repository has no commit yet, so there is nothing to compare with"
    if asked("rev-parse", "--is-shallow-repository") == "true":
        return "the clone is shallow; fetch the rest: git fetch --unshallow (GitHub Actions: fetch-depth: 0)"
    if kind := asked("cat-file", "-t", ref):
        return f"it is a {kind}, and a commit, branch or tag is wanted"
    return "fetch it first, for example: git fetch origin"


def _start(top: Path, tree: Path, project: Project, stack: str) -> "subprocess.Popen[str]":
    """Runs the base. What this process imports from the repository, such as its components, comes from `tree`."""
    sources = {PACKAGE.parent, *(Path(entry).resolve() for entry in sys.path if entry)}
    inside = [tree / source.relative_to(top) for source in sources if source.is_relative_to(top)]
    inside = [path for path in inside if path.is_dir()]
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return subprocess.Popen(  # noqa: S603 this Python, running this package's file
        [sys.executable, "-P", str(Path(__file__).with_name("base_run.py")), str(PACKAGE),
         str(tree / project.root.relative_to(top)), stack],
        env={**_environment(), "PYTHONPATH": os.pathsep.join([*map(str, inside), *others])},
        cwd=tree,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )  # fmt: skip


def _git(directory: Path, *args: str, fails: str) -> str:
    """What git answers; raises `PlanError` with `fails` and git's own words."""
    try:
        command = ["git", "-C", str(directory), *args]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())  # noqa: S603
    except OSError as error:
        raise PlanError(f"--against needs git, which cannot be run: {error.strerror}") from None
    if done.returncode:
        why = done.stderr.strip().splitlines()
        raise PlanError(f"{fails} ({why[-1]})" if why else fails)
    return done.stdout.strip()


def _environment() -> dict[str, str]:
    """Ours, without what a git hook is told of its own repository, index and work tree."""
    return {key: value for key, value in os.environ.items() if key not in HOOK_VARIABLES}


def _recording(content: dict[str, Any]) -> Recording:
    def resource(item: dict[str, Any]) -> Resource:
        sequences = {key: tuple(value) for key, value in item.items() if isinstance(value, list)}
        return Resource(**{**item, **sequences, "dependencies": frozenset(item["dependencies"])})

    return Recording(**{**content, "resources": [resource(item) for item in content["resources"]]})
