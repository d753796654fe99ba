"""The commands of `./dev` that run a stack on this machine; __main__.py starts them.

Each command is a function here; its work is elsewhere. What goes wrong is said in a line or two on stderr:
`PlatformError`, `ToolError` and `InstallError` carry them.
"""

import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from . import view
from .load.command import load
from .page import server as page
from .platform import Platform
from .process import ENDING, PlatformError
from .serving_env import InstallError
from .tools import ToolError

INSIST_SECONDS = 1.0

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Runs a stack on this machine: real Kubernetes, KEDA, Prometheus, Triton and vLLM, without GPUs or images.",
)


def say(line: str) -> None:
    """Progress goes to stdout, at once."""
    print(line, flush=True)


@app.command()
def up(
    stack: Annotated[str, typer.Argument(help="Stack to bring up. One for AWS is left to `pulumi up`.")] = "local",
) -> None:
    """Start the platform and deploy a stack on it, or update the stack of one that is up."""
    from . import up as bring_up  # Pulumi's SDKs take a second, which the other commands do not need
    from .stack import Stack

    found = Stack.find(stack)
    if found.is_local:
        signal.signal(signal.SIGALRM, _again)
        sys.unraisablehook = _unraisable
        bring_up.up(Platform(), found, say)
    else:
        bring_up.elsewhere(found)


@app.command()
def status(
    *,
    web: Annotated[
        bool, typer.Option("--web", help="A page that draws it live, at an address of this machine.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Of the page. 0: any.")] = page.DEFAULT_PORT,
) -> None:
    """Show processes, nodes, pods, and how the services scale."""
    if web:
        page.serve(Platform(), port, say)
    else:
        view.show(Platform(), Console(highlight=False))


@app.command()
def logs(
    name: Annotated[str | None, typer.Argument(help="A process, a pod, or a service. Default: all.")] = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, metavar="N", help="Only the last lines of each.")] = None,
) -> None:
    """Show what processes and pods write."""
    from . import logs as log

    home = Platform().home
    several = len(log.chosen(home, name)) > 1
    with suppress(BrokenPipeError):  # the reader, such as `head`, has enough
        for source, line in log.lines(lambda: log.chosen(home, name), follow=follow, tail=tail):
            print(f"{source}: {line}" if several else line, flush=follow)


@app.command()
def down() -> None:
    """End everything that `up` started. Logs stay until the next `up`."""
    Platform().down(say)


app.command()(load)


def main() -> None:
    """Entry point. Exit status 1 after an error, 130 after Ctrl-C, SIGTERM, or the end of the terminal."""
    for number in ENDING:
        signal.signal(number, _interrupt)
    try:
        app(prog_name="./dev")
    except (PlatformError, ToolError, InstallError, OSError) as error:  # OSError: the disk is full, among others
        print(error, file=sys.stderr)
        sys.exit(1)
    except Interrupted:
        sys.exit(130)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


class Interrupted(BaseException):
    """Not KeyboardInterrupt, which typer would report in its own way, nor SystemExit, which a stack's program that is
    being read would seem to have raised.
    """


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    print("\ninterrupted", file=sys.stderr, flush=True)
    if signal.getsignal(signal.SIGALRM) is _again:
        signal.setitimer(signal.ITIMER_REAL, INSIST_SECONDS)
    raise Interrupted


def _unraisable(what: "sys.UnraisableHookArgs") -> None:
    """Says what Python drops, but for our own."""
    if not isinstance(what.exc_value, Interrupted):
        sys.__unraisablehook__(what)


def _again(_signal: int, _frame: FrameType | None) -> None:
    """An exception in a destructor is dropped by Python, so it is raised again until the cleaning up has begun."""
    signal.setitimer(signal.ITIMER_REAL, INSIST_SECONDS)
    raise Interrupted
