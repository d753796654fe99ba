"""Fixtures of the serving level: servers that tests share, the last of which may end it, and a maker of servers for
others. A start takes half a minute of processor time.

The tests run in the serving environment's own Python, which has vLLM and tritonclient. Started by another one, pytest
makes that environment (the first time) and runs there.
"""

import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embedded import serving_env

SHARED = ("server", "crowded", "queueing", "openai")
"""Fixtures of servers that several tests use."""
IN_ENVIRONMENT = importlib.util.find_spec("vllm") is not None and importlib.util.find_spec("tritonclient") is not None

if TYPE_CHECKING or IN_ENVIRONMENT:  # elsewhere only the hooks below are needed
    from embedded import tiny_model
    from tests.serving import openai_server
    from tests.serving.reference import Reference
    from tests.serving.server import Server, engine_document, running


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if IN_ENVIRONMENT:
        return None
    python = serving_env.ensure(lambda line: print(line, flush=True)).python
    environment = {**os.environ, "PYTHONPATH": str(serving_env.ROOT)}
    return subprocess.call([str(python), "-m", "pytest", *config.invocation_params.args], env=environment)


def pytest_ignore_collect() -> bool | None:
    """Where these tests were not asked for by name, the hook above came too late."""
    if not IN_ENVIRONMENT:
        raise pytest.UsageError("tests/serving runs in an environment of its own: ask for it by name")
    return None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ends_server: ends a server that others share, so it is its last test")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests by the server that they share, and in the end the one that ends it."""

    def place(item: pytest.Item) -> tuple[int, bool]:
        shared = [index for index, name in enumerate(SHARED) if name in getattr(item, "fixturenames", ())]
        return max(shared, default=len(SHARED)), item.get_closest_marker("ends_server") is not None

    items.sort(key=place)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.make(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def reference(model: Path) -> "Reference":
    """The same model in another implementation: what the right answers are."""
    return Reference(model)


@pytest.fixture(scope="session")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Server"]:
    """Two front ends on one engine."""
    with running(tmp_path_factory.mktemp("server"), engine_document(model)) as started:
        yield started


@pytest.fixture(scope="session")
def openai(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["openai_server.OpenAIServer"]:
    """`vllm serve` with two API servers on one engine."""
    with openai_server.running(tmp_path_factory.mktemp("openai"), engine_document(model)) as started:
        yield started


@pytest.fixture(scope="session")
def queueing(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Server"]:
    """One front end on an engine that runs one request at a time, by priority, with a short queue."""
    engine = {"max_num_seqs": 1, "scheduling_policy": "priority"}
    limits = {"maxQueuedRequests": 64, "maxQueuedTokens": 300, "requestTimeoutSeconds": 60}
    document = engine_document(model, frontends=1, engine=engine, limits=limits)
    with running(tmp_path_factory.mktemp("queueing"), document) as started:
        yield started


@pytest.fixture(scope="session")
def crowded(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Server"]:
    """Two front ends on an engine that runs four requests at a time, eight more may wait; with the adapter `poet`.

    On a CPU, vLLM takes index -1 of the adapter slots for "none", which in PyTorch is the last slot
    (docs/decisions/0009): `max_loras` 2 leaves that one empty.
    """
    folder = tmp_path_factory.mktemp("crowded")
    adapter = tiny_model.make_adapter(folder / "lora" / "poet", model)
    limits = {"maxQueuedRequests": 8, "maxQueuedTokens": 100_000, "requestTimeoutSeconds": 60}
    engine = {"max_num_seqs": 4, "max_loras": 2}
    document = engine_document(model, loraAdapters={"poet": str(adapter)}, engine=engine, limits=limits)
    with running(folder / "server", document) as started:
        yield started


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator["Callable[..., Server]"]:
    """Starts a server of the test's own, with changes to engine.json."""
    with ExitStack() as stack:
        yield lambda **changes: stack.enter_context(running(tmp_path, engine_document(model, **changes)))
