"""Fixtures of the engine level: the pulumi CLI on PATH, stand-in providers, and stacks."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedded.tools import provide
from tests.engine.harness import Program, Stack
from tests.engine.standins import Running, running


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: installs packages or loads large schemas")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/engine/golden/ from the current tree")


@pytest.fixture(scope="session", autouse=True)
def pulumi_cli() -> Iterator[Path]:
    """The pinned CLI, first on PATH. A missing one is built, which takes minutes once."""
    with pytest.MonkeyPatch.context() as patch:
        binary = provide("pulumi")
        patch.setenv("PATH", str(binary.parent), prepend=os.pathsep)
        yield binary


@pytest.fixture
def standins() -> Iterator[Running]:
    with running() as both:
        yield both


@pytest.fixture
def small_stack(tmp_path: Path, standins: Running) -> Callable[[Program], Stack]:
    """A stack of a program of the test's own."""

    def make(program: Program) -> Stack:
        made = Stack("test", program, tmp_path, standins)
        made.configure({"aws:region": "us-west-2"})
        return made

    return make
