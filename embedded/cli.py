"""The commands of `./dev` that run a stack on this machine.

    python -m embedded.cli up | status | logs | down

Each command is a function here; its work is elsewhere. What goes wrong is said in a line or two on stderr:
`PlatformError`, `ToolError` and `InstallError` carry them.
"""

import signal
import sys
from types import FrameType

import typer

from .load.command import load
from .platform import Platform
from .process import PlatformError
from .serving_env import InstallError
from .tools import ToolError

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
def status() -> None:
    """Show what runs."""
    for name, pid in Platform().status().items():
        say(f"{name:26} {f'pid {pid}' if pid else 'not running'}")


@app.command()
def down() -> None:
    """End everything that `up` started. Logs stay until the next `up`."""
    Platform().down(say)


app.command()(load)


def main() -> None:
    """Entry point. Exit status 1 after an error, 130 after Ctrl-C, SIGTERM, or the end of the terminal."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        app(prog_name="./dev")
    except (PlatformError, ToolError, InstallError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Not KeyboardInterrupt, which typer would catch and report in its own way."""
    print("\ninterrupted", file=sys.stderr, flush=True)
    sys.exit(130)


if __name__ == "__main__":
    main()
