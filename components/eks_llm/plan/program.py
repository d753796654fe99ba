"""Finds a Pulumi project, reads a stack's configuration as the CLI would, and runs the program in this process."""

import json
import os
import re
import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pulumi
import yaml

from ..core.problems import InvalidArgs, nearest
from ..core.strict_yaml import StrictLoader
from ..sizing.own_prices import OwnPrices
from ..sizing.own_prices import read as read_prices
from .recorder import SECRET, Recording, record


class PlanError(Exception):
    """A plan that cannot be made: every problem, as a text of its own."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


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
        raise PlanError(
            f"no stack {stack!r}: Pulumi.{stack}.yaml does not exist in {self.stack_dir}{nearest(stack, self.stacks())}"
        )


# Files --------------------------------------------------------------------------------------------------------------


TOO_DEEP = "lists or mappings are nested hundreds of levels deep, which no configuration needs"


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; empty for an empty file. Raises `PlanError` with file and line."""
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=StrictLoader)  # noqa: S506 a safe loader
        json.dumps(content)  # finds what has no end: an alias that contains itself
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file.name}:{mark.line + 1}" if mark else file.name
        raise PlanError(f"{where}: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PlanError(f"{file.name}: not a text file in UTF-8 ({str(error).splitlines()[0]})") from None
    except RecursionError:
        raise PlanError(f"{file.name}: {TOO_DEEP}") from None
    except (ValueError, TypeError):
        raise PlanError(f"{file.name}: an alias (*name) contains itself, or a key is not text") from None
    except OSError as error:
        raise PlanError(f"{file}: {error.strerror}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise PlanError(f"{file.name}: holds {type(content).__name__} where a mapping of keys is expected")
    return cast(dict[str, Any], content)


def find_project(start: Path) -> Project:
    """The project at or above `start`."""
    start = start.resolve()
    for directory in (start, *start.parents):
        for name in ("Pulumi.yaml", "Pulumi.yml"):
            if (directory / name).is_file():
                return _project(directory / name)
    raise PlanError(f"no Pulumi.yaml in {start} or above: name the project's directory with --cwd")


def _project(file: Path) -> Project:
    content = read_yaml(file)
    runtime = content.get("runtime")
    language = runtime.get("name") if isinstance(runtime, dict) else runtime
    problems = [] if content.get("name") else [f"{file.name}: name: required, but missing"]
    if language != "python":
        problems.append(f"{file.name}: runtime: {language!r}; only python programs can be planned")
    if problems:
        raise PlanError(*problems)
    name = str(content["name"])
    project = Project(
        root=file.parent,
        name=name,
        main=str(content.get("main") or "."),
        stack_dir=file.parent / str(content.get("stackConfigDir") or "."),
        defaults=dict(_defaults(name, content.get("config") or {})),
    )
    entry = project.program / "__main__.py" if project.program.is_dir() else project.program
    if not entry.is_file():
        raise PlanError(f"{file.name}: main: {project.main!r}: {entry} does not exist")
    return project


def _defaults(project: str, declared: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values in Pulumi.yaml's `config:`; keys without a namespace are the project's."""
    for key, value in declared.items():
        full = key if ":" in key else f"{project}:{key}"
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
        raise PlanError(f"{file.name}: config: {values!r} is not a mapping of keys")
    bad = [
        f"{file.name}: config.{key}: a key has a namespace, such as {project.name}:{key}"
        for key in values
        if ":" not in str(key)
    ]
    if bad:
        raise PlanError(*bad)
    config = dict(project.defaults)
    secrets: list[str] = []
    for key, value in cast(dict[str, Any], values).items():
        try:
            config[key] = _without_ciphertext(value)
        except RecursionError:
            raise PlanError(f"{file.name}: config.{key}: {TOO_DEEP}") from None
        if config[key] != value:
            secrets.append(key)
    warnings = (
        [f"{file.name}: environment: values of Pulumi ESC are not known here; this plan is without them"]
        if content.get("environment")
        else []
    )
    return config, secrets, warnings


def _without_ciphertext(value: Any) -> Any:
    if isinstance(value, dict):
        if list(value) == ["secure"]:
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
