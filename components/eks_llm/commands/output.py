"""What commands share: the console, and how they fail."""

from collections.abc import Iterable
from typing import Any, NoReturn

import typer


def console(**options: Any) -> Any:
    """A terminal that shows text as it is."""
    from rich.console import Console  # imported here: `--help` needs none of it

    return Console(highlight=False, markup=False, emoji=False, **options)


def complain(problems: Iterable[str]) -> None:
    """Prints problems to stderr; what a problem shows below its first line is indented."""
    out = console(stderr=True)
    for problem in problems:
        out.print("error ", style="bold red", end="", soft_wrap=True)
        out.print(problem.replace("\n", "\n      "), soft_wrap=True)


def fail(problems: Iterable[str]) -> NoReturn:
    """Prints problems to stderr and ends with status 1."""
    complain(problems)
    raise typer.Exit(1)
