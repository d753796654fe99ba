"""Finds a Pulumi project, reads a stack's configuration as the CLI would, and runs the program in this process."""

import os
import re
import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pulumi

from ..core.problems import InvalidArgs, nearest, shown
from ..core.secrets import SECRET
from ..core.strict_yaml import YamlError, plain, read
from ..sizing.own_prices import OwnPrices
from ..sizing.own_prices import read as read_prices
from . import names
from .recorder import Recording, record


class PlanError(Exception):
    """A plan that cannot be made: every problem, as a text of its own."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class AbsentError(PlanError):
    """There is no such project or stack."""


@dataclass(frozen=True)
class Project:
    """A directory with a Pulumi.yaml."""

    root: Path
    name: str
    main: str
    stack_dir: Path
    defaults: dict[str, Any]
    """Configuration that Pulumi.yaml gives to every stack, by full key."""

    @property
    def program(self) -> Path:
        """What the engine runs: a file, or a directory with a `__main__.py`."""
        return self.root / self.main

    @property
    def working_dir(self) -> Path:
        """Where the engine runs it."""
        return self.program.parent if self.program.is_file() else self.program

    def stacks(self) -> list[str]:
        """Names of the stacks that have a file."""
        files = [file for file in self.stack_dir.glob("Pulumi.*.y*ml") if file.is_file()]
        names = [re.fullmatch(r"Pulumi\.(.+)\.ya?ml", file.name) for file in files]
        return sorted(match[1] for match in names if match)

    def stack_file(self, stack: str) -> Path:
        """The file of a stack, given as `prod` or as the CLI's full `organization/project/prod`."""
        for suffix in (".yaml", ".yml"):
            file = self.stack_dir / f"Pulumi.{stack.rsplit('/', 1)[-1]}{suffix}"
            if file.is_file():
                return file
            if file.exists():
                raise PlanError(f"no stack {stack!r}: {file} is a directory, where a stack has a file")
        raise AbsentError(
            f"no stack {stack!r}: Pulumi.{stack}.yaml does not exist in {self.stack_dir}{nearest(stack, self.stacks())}"
        )


# Files --------------------------------------------------------------------------------------------------------------


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; empty for an empty file. Raises `PlanError`: file, line and key of each problem."""
    try:
        content = read(file.read_text(encoding="utf-8"))
    except YamlError as error:
        raise PlanError(*(_in_file(file, problem) for problem in error.problems)) from None
    except UnicodeDecodeError as error:
        raise PlanError(f"{file.name}: not a text file in UTF-8 ({error.reason})") from None
    except OSError as error:
        raise PlanError(f"{file}: {error.strerror}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise PlanError(f"{file.name}: holds {type(content).__name__} where a mapping of keys is expected")
    return cast(dict[str, Any], content)


def _in_file(file: Path, problem: str) -> str:
    """A problem of the reader, `line 3: …`, in the form `Pulumi.dev.yaml:3: …`."""
    line = re.match(r"line (\d+): ", problem)
    return f"{file.name}:{line[1]}: {problem[line.end() :]}" if line else f"{file.name}: {problem}"


def find_project(start: Path) -> Project:
    """The project at or above `start`."""
    start = start.resolve()
    for directory in (start, *start.parents):
        for name in ("Pulumi.yaml", "Pulumi.yml"):
            if (directory / name).is_file():
                return _project(directory / name)
    raise AbsentError(f"no Pulumi.yaml in {start} or above: name the project's directory with --cwd")


def _project(file: Path) -> Project:
    content = read_yaml(file)
    runtime, name = content.get("runtime"), content.get("name")
    language = runtime.get("name") if isinstance(runtime, dict) else runtime
    problems: list[str] = []
    if name is None:
        problems.append("name: required, but missing")
    elif not isinstance(name, str) or not name:
        problems.append(f"name: {shown(name, python=False)} is not text; write it in quotes")
    if language != "python":
        problems.append(f"runtime: {shown(language)}; only python programs can be planned")
    problems += [
        f"{key}: {shown(content[key], python=False)} is not a path below the project; write text"
        for key in ("main", "stackConfigDir")
        if not isinstance(content.get(key, ""), str)
    ]
    declared = content.get("config") or {}
    if isinstance(declared, str):  # until 2022 the folder of the stack files stood here, and the CLI still takes it
        content, declared = {**content, "stackConfigDir": declared}, {}
    elif isinstance(declared, dict):
        problems += [
            f"config.{key}: not a key; write namespace and name, as {name}:name"
            for key in cast(dict[str, Any], declared)
            if _full_key(str(name), key) is None
        ]
    else:
        problems.append(f"config: {shown(declared)} is not a mapping of keys; write keys such as aws:region below it")
    if problems:
        raise PlanError(*(f"{file.name}: {problem}" for problem in problems))
    project = Project(
        root=file.parent,
        name=cast(str, name),
        main=str(content.get("main") or "."),
        stack_dir=file.parent / str(content.get("stackConfigDir") or "."),
        defaults=dict(_defaults(cast(str, name), cast(dict[str, Any], declared))),
    )
    entry = project.program / "__main__.py" if project.program.is_dir() else project.program
    if not entry.is_file():
        raise PlanError(f"{file.name}: main: {project.main!r}: {entry} does not exist")
    return project


def _defaults(project: str, declared: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values in Pulumi.yaml's `config:`; keys without a namespace are the project's."""
    for key, value in declared.items():
        full = _full_key(project, key) or key
        if not isinstance(value, dict):
            yield full, value
        elif "value" in value or "default" in value:
            yield full, value.get("value", value.get("default"))


def read_config(project: Project, file: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """The configuration in a stack file: values, keys that hold secrets, and what to warn of.

    Secrets stay encrypted: each `secure:` value reads `[secret]`.
    """
    content = read_yaml(file)
    values = content.get("config") or {}
    if not isinstance(values, dict):
        raise PlanError(f"{file.name}: config: {shown(values)} is not a mapping of keys")
    config, secrets, bad = dict(project.defaults), list[str](), list[str]()
    for written, value in cast(dict[str, Any], values).items():
        key = _full_key(project.name, written)
        if key is None:
            bad.append(f"{file.name}: config.{written}: not a key; write namespace and name, as {project.name}:name")
        elif key in config and key not in project.defaults:
            bad.append(f"{file.name}: config.{written}: stands here twice, also as {key}; remove one")
        else:
            config[key] = "" if value is None else _without_ciphertext(value)
            if config[key] != value and value is not None:
                secrets.append(key)
    if bad:
        raise PlanError(*bad)
    warnings = (
        [f"{file.name}: environment: values of Pulumi ESC are not known here; this plan is without them"]
        if content.get("environment")
        else []
    )
    return config, secrets, warnings


def _full_key(project: str, key: str) -> str | None:
    """A configuration key as the CLI has it: `demo:size`, for `size` and for the old `demo:config:size` too."""
    parts = key.split(":")
    if len(parts) == 1 and isinstance(plain(key), str) and key:
        return f"{project}:{key}"
    if len(parts) == 3 and parts[1] == "config" and parts[0] and parts[2]:
        return f"{parts[0]}:{parts[2]}"
    return key if len(parts) == 2 else None


def _without_ciphertext(value: Any) -> Any:
    if isinstance(value, dict):
        if list(value) == ["secure"] and isinstance(value["secure"], str):
            return SECRET
        return {key: _without_ciphertext(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_ciphertext(item) for item in value]
    return value


def own_prices(project: Project) -> OwnPrices | None:
    """The prices that the project's file replaces."""
    try:
        return read_prices(project.root)
    except ValueError as error:
        raise PlanError(str(error)) from None


def configurations(project: Project) -> dict[str, dict[str, Any]]:
    """The configuration of every stack of the project whose file can be read, by stack."""
    found: dict[str, dict[str, Any]] = {}
    for stack in project.stacks():
        with suppress(PlanError):
            found[stack] = read_config(project, project.stack_file(stack))[0]
    return found


# The run ------------------------------------------------------------------------------------------------------------


@contextmanager
def _as_the_engine_runs_it(project: Project) -> Iterator[None]:
    """Working directory, `sys.path` and `sys.argv` of a program under the engine; prints go to stderr."""
    before = os.getcwd(), list(sys.path), list(sys.argv), set(sys.modules)
    os.chdir(project.working_dir)
    sys.argv[:] = [str(project.program)]
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.chdir(before[0])
        sys.path[:], sys.argv[:] = before[1], before[2]
        for name in set(sys.modules) - before[3]:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if Path(file).parent.is_relative_to(project.working_dir):
                del sys.modules[name]  # the next project may have a `settings` of its own


def run(project: Project, stack: str, debug: bool = False) -> Recording:
    """Runs the project's program for a stack. Raises `PlanError`; with `debug`, what the program raises."""
    file = project.stack_file(stack)
    config, secrets, warnings = read_config(project, file)
    stack = stack.rsplit("/", 1)[-1]
    try:
        with _as_the_engine_runs_it(project):
            recording = record(
                lambda: runpy.run_path(str(project.program), run_name="__main__"),
                project=project.name,
                stack=stack,
                config=config,
                secret_keys=secrets,
                root=str(project.root),
            )
    except InvalidArgs as error:
        raise PlanError(*error.messages) from error
    except pulumi.RunError as error:
        raise PlanError(str(error)) from error
    except SystemExit as error:
        raise PlanError(f"the program ended itself: {error.code}") from error
    except Exception as error:
        if debug:
            raise
        raise PlanError(_one_line(error, project)) from error
    if recording.errors:
        raise PlanError(*recording.errors)
    if problems := [*names.problems(recording), *names.across(stack, configurations(project))]:
        raise PlanError(*problems)
    recording.warnings[:0] = warnings
    return recording


def _one_line(error: Exception, project: Project) -> str:
    """An error that the program did not expect: where in the user's own code, what, and how to see more."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if Path(frame.filename).is_relative_to(project.root) and "site-packages" not in frame.filename
    ]
    frame = (own or list(frames))[-1]
    filename, line = frame.filename, frame.lineno
    if isinstance(error, SyntaxError) and error.filename:
        filename, line = error.filename, error.lineno
    if Path(filename).is_relative_to(project.root):
        filename = str(Path(filename).relative_to(project.root))
    message = str(error).splitlines()[0] if str(error) else "no message"
    return f"{filename}:{line}: {type(error).__name__}: {message} (--debug shows the traceback)"
