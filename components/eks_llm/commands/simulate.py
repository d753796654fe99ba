"""`eks-llm simulate`: what a scaling policy will do to given traffic."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .output import console, fail


def simulate(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="YAML file: traffic, service, slo, scaling.")],
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="A ScaledObject or a scaling section, instead of the scenario's. Repeatable."
        ),
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="A B", help="Two such files, side by side.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw traffic, replicas and misses over time.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything, series included, as JSON.")] = False,
) -> None:
    """Simulate a scaling policy: SLO attainment, GPU hours, cost and waiting, before anything is deployed."""
    try:  # imported here: numpy is an extra, and the other commands need none of it
        from ..simulate import plot as drawing
        from ..simulate import report
        from ..simulate.run import run
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        fail(["numpy is missing; install it with: pip install 'eks-llm[simulate]'"])

    try:
        found = run(scenario, [*(policy or []), *(compare or [])])
    except ValueError as error:
        fail(str(error).split("\n"))
    if plot:
        try:
            plot.write_text(drawing.svg(found.outcomes, found.service, scenario.stem), encoding="utf-8")
        except OSError as error:
            fail([f"{plot}: {error.strerror}"])
    if as_json:
        typer.echo(json.dumps(report.as_json(found.outcomes, found.capacity), indent=2))
    else:
        text = report.introduction(found.service, found.trace.requests, found.trace.seconds, found.capacity)
        console().print(text + "\n" + report.table(found.outcomes), end="", soft_wrap=True)
