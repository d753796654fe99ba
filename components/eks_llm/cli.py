"""The command line: `eks-llm plan STACK`, in this repository or in any that imports the components."""

import gc
import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from .version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Plans an LLM platform on EKS without cloud, Pulumi CLI or credentials.",
)


class Format(Enum):
    """How a plan is shown."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


@app.command()
def plan(
    stack: Annotated[str, typer.Argument(help="Stack to plan, such as dev: reads Pulumi.dev.yaml.")],
    format_: Annotated[
        Format, typer.Option("--format", help="text for people, markdown for a pull request, json for programs.")
    ] = Format.TEXT,
    manifests: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every Kubernetes object to DIR as YAML.")
    ] = None,
    cwd: Annotated[Path, typer.Option(metavar="DIR", help="Where to look for Pulumi.yaml, upwards.")] = Path(),
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a program that fails.")] = False,
) -> None:
    """Show what `pulumi up` would build. Exit status 1 with every problem if the stack cannot be built."""
    # Imported here: `--help` and `version` need none of it, and the SDKs take half a second.
    from .plan import manifests as kubernetes
    from .plan import program, render, report

    target = manifests.absolute() if manifests else None
    try:
        project = program.find_project(cwd)
        recording = program.run(project, stack, debug)
        result = report.build(recording, project.name, stack)
        if target:
            files = kubernetes.manifests(recording)
            kubernetes.write(files, target)
            typer.echo(f"{len(files)} Kubernetes objects written to {manifests}", err=True)
    except program.PlanError as error:
        _fail(error.problems)
    except OSError as error:
        _fail([f"{error.filename}: {error.strerror}"])
    if format_ is Format.JSON:
        typer.echo(render.as_json(result), nl=False)
    elif format_ is Format.MARKDOWN:
        typer.echo(render.markdown(result), nl=False)
    else:
        render.text(result, _console())


@app.command()
def version() -> None:
    """Show the version of the package."""
    typer.echo(__version__)


def _console(**options: Any) -> Any:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, **options)


def _fail(problems: Iterable[str]) -> NoReturn:
    console = _console(stderr=True)
    for problem in problems:
        console.print("error ", style="bold red", end="", soft_wrap=True)
        console.print(problem, soft_wrap=True)
    raise typer.Exit(1)


def main() -> None:
    """Entry point of `eks-llm`."""
    gc.disable()  # the process lives for seconds; looking for garbage among the SDKs' modules is a fifth of that
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue] a terminal without Unicode
    try:
        app()
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    main()
