"""Fixture of the rules level: promtool, which is all that these tests need beside Python."""

from pathlib import Path

import pytest

from embedded.tools import provide


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The pinned promtool. A missing one is built, which takes minutes once."""
    return provide("promtool")
