"""The command line: `eks-llm plan STACK` and more, in this repository or in any that imports the components."""

import gc
import sys

import typer

from .commands import advise, explain, plan, prices, simulate
from .version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Plans an LLM platform on EKS without cloud, Pulumi CLI or credentials.",
)
app.command()(plan.plan)
app.command()(advise.advise)
app.command()(simulate.simulate)
app.command()(explain.explain)
app.add_typer(prices.app, name="prices")


@app.command()
def version() -> None:
    """Show the version of the package."""
    typer.echo(__version__)


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
