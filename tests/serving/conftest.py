"""Fixtures of the serving level: one server for all tests that do not harm it, and a maker of servers for those that do.

Runs in the serving environment's own Python, which has vLLM and tritonclient:
    $(python -m embedded.serving_env) -m pytest tests/serving
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

try:
    import tritonclient
    import vllm
except ImportError:
    raise pytest.UsageError(
        "tests/serving runs in the serving environment: $(python -m embedded.serving_env) -m pytest tests/serving"
    ) from None

from tests.serving import tiny_model
from tests.serving.reference import Reference
from tests.serving.server import Server, engine_document, running

__all__ = ["tritonclient", "vllm"]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.make(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def reference(model: Path) -> Reference:
    """The same model in another implementation: what the right answers are."""
    return Reference(model)


@pytest.fixture(scope="session")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two front ends on one engine."""
    with running(tmp_path_factory.mktemp("server"), engine_document(model)) as started:
        yield started


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server of the test's own, with changes to engine.json."""
    with ExitStack() as stack:
        yield lambda **changes: stack.enter_context(running(tmp_path, engine_document(model, **changes)))


@pytest.fixture(scope="session")
def anyio_backend() -> Any:
    return "asyncio"
