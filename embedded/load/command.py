"""The command `./dev load`."""

from typing import Annotated

import typer
from rich.console import Console

from eks_llm.core.quantities import Duration

from ..platform import Platform
from .run import Plan, run
from .shape import Ramp


def span(text: str) -> float:
    """Seconds of a time as stack files write it."""
    try:
        return float(Duration.parse(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time such as 90s or 3m") from None


def load(
    *,
    service: Annotated[str | None, typer.Option(metavar="NAME", help="Service to load. Default: the only one.")] = None,
    first: Annotated[int, typer.Option("--from", min=1, metavar="N", help="Connections at the start.")] = 1,
    last: Annotated[
        int, typer.Option("--to", min=1, max=2000, metavar="N", help="Connections at the end of the ramp.")
    ] = 120,
    ramp: Annotated[float, typer.Option(parser=span, metavar="TIME", help="How long they climb.")] = "60s",  # pyright: ignore
    duration: Annotated[float, typer.Option(parser=span, metavar="TIME", help="The whole load.")] = "5m",  # pyright: ignore
    rate: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="N",
            help="Requests a second at the ramp's end, in Poisson arrivals. 0: each connection sends on.",
        ),
    ] = 0.0,
    scale: Annotated[
        float, typer.Option(min=1, metavar="N", help="Divides the reference's 1,024 tokens in and 256 out.")
    ] = 8.0,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of prompts and arrivals.")] = 1,
    watch: Annotated[bool, typer.Option(help="Wait until the replicas have fallen again.")] = True,
) -> None:
    """Send streams to a service, and show what it does to the service. Ctrl-C ends it with the summary."""
    if last < first:
        raise typer.BadParameter(f"--to {last} is less than --from {first}")
    if ramp > duration or duration <= 0:
        raise typer.BadParameter(f"--ramp {ramp:g}s does not fit into --duration {duration:g}s")
    plan = Plan(Ramp(first, last, ramp, duration), rate, scale, seed)
    raise typer.Exit(run(Platform(), service, plan, Console(highlight=False), watch))
