"""`eks-llm plan`: what `pulumi up` would build, needs and costs."""

from collections.abc import Sequence
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from .output import complain, console, fail


class Format(Enum):
    """How a plan is shown."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


def plan(
    stack: Annotated[str, typer.Argument(help="Stack to plan, such as dev: reads Pulumi.dev.yaml.")],
    *,
    format_: Annotated[
        Format,
        typer.Option("--format", help="text for people, markdown for a pull request, html as one page, json to read."),
    ] = Format.TEXT,
    against: Annotated[
        str | None, typer.Option(metavar="GIT_REF", help="Also show what changes since a revision: origin/main.")
    ] = None,
    manifests: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every Kubernetes object to DIR as YAML.")
    ] = None,
    cwd: Annotated[Path, typer.Option(metavar="DIR", help="Where to look for Pulumi.yaml, upwards.")] = Path(),
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a program that fails.")] = False,
) -> None:
    """Show what `pulumi up` would build, need and cost. Exit status 1 with every problem if the stack cannot run."""
    # Imported here: `--help` and `version` need none of it, and the SDKs take half a second.
    from ..plan import against as revisions
    from ..plan import manifests as kubernetes
    from ..plan import program, render, report

    target = manifests.absolute() if manifests else None
    title = stack
    try:
        project = program.find_project(cwd)
        title = f"{project.name}/{stack}"
        with revisions.started(project, stack, against) if against is not None else nullcontext() as pending:
            recording = program.run(project, stack, debug)
            base = pending.result() if pending else None
        result = report.build(recording, project.name, stack, program.own_prices(project), base)
        if target:
            files = kubernetes.manifests(recording)
            kubernetes.write(files, target)
            typer.echo(f"{len(files)} Kubernetes objects written to {manifests}", err=True)
    except program.PlanError as error:
        _refuse(format_, title, error.problems)
    except OSError as error:
        _refuse(format_, title, [f"{error.filename}: {error.strerror}"])
    if format_ is Format.TEXT:
        render.text(result, console())
    elif format_ is Format.HTML:
        from ..plan import html

        typer.echo(html.page(result), nl=False)
    else:
        as_text = render.as_json if format_ is Format.JSON else render.markdown
        typer.echo(as_text(result), nl=False)
    if result.errors:
        complain(result.errors)
        raise typer.Exit(1)


def _refuse(format_: Format, title: str, problems: Sequence[str]) -> NoReturn:
    """Says the problems in the format that was asked for too, so that whoever reads it finds no empty file."""
    from ..plan import render

    if format_ is Format.MARKDOWN:
        typer.echo(render.refusal_markdown(title, problems), nl=False)
    elif format_ is Format.HTML:
        typer.echo(render.refusal_html(title, problems), nl=False)
    elif format_ is Format.JSON:
        typer.echo(render.refusal_json(problems), nl=False)
    fail(problems)
