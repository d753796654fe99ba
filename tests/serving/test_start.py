"""What cannot be served is said at start: which file, which key, and what would be right."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.serving.metrics import wait_for
from tests.serving.server import REPOSITORY, START_SECONDS, Server, engine_document


@pytest.fixture(scope="module")
def modules() -> Iterator[Callable[[str], ModuleType]]:
    """The model's own modules, imported as Triton's stub does."""
    import importlib

    folder = str(REPOSITORY / "llm" / "1")
    sys.path.insert(0, folder)
    yield importlib.import_module
    sys.path.remove(folder)


def problem(modules: Callable[[str], ModuleType], directory: Path, content: str | dict[str, Any]) -> str:
    """The message with which engine_config refuses this engine.json."""
    config = modules("engine_config")
    file = directory / "engine.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(config.ConfigError) as caught:
        config.load(file)
    return str(caught.value)


def without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


def test_a_good_document_is_read(modules: Callable[[str], ModuleType], tmp_path: Path) -> None:
    file = tmp_path / "engine.json"
    file.write_text(json.dumps(engine_document(tmp_path)))
    config = modules("engine_config").load(file)
    assert config.frontends == 2
    assert config.limits.max_queued_requests == 64


def test_engine_json_missing(modules: Callable[[str], ModuleType], tmp_path: Path) -> None:
    config = modules("engine_config")
    with pytest.raises(config.ConfigError, match=r"nowhere\.json: no such file"):
        config.load(tmp_path / "nowhere.json")


def test_engine_json_is_not_json(modules: Callable[[str], ModuleType], tmp_path: Path) -> None:
    assert "engine.json:2:1: not JSON" in problem(modules, tmp_path, '{"schema": 1,\n')


def test_every_problem_at_once_with_its_path(modules: Callable[[str], ModuleType], tmp_path: Path) -> None:
    document = engine_document(tmp_path, frontends=0, schema=2, servedModel="x", limits={"maxQueued": 1})
    del document["servedModelName"]
    message = problem(modules, tmp_path, document)
    assert "servedModelName: missing" in message
    assert "servedModel: no such key (did you mean servedModelName?)" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "schema: 2 is not 1"),
        ({"frontends": 0}, "frontends: must be at least 1"),
        ({"frontends": "two"}, "frontends: 'two' is not an integer"),
        ({"limits": {"maxQueuedRequest": 1}}, "limits.maxQueuedRequest: no such key (did you mean maxQueuedRequests?)"),
        ({"limits": {"maxQueuedTokens": -1}}, "limits.maxQueuedTokens: -1 is negative"),
        ({"health": {"stallSeconds": 0}}, "health.stallSeconds: must be more than 0"),
        ({"engine": {"max_num_seqs": None}}, "engine.max_num_seqs: must be said"),
        ({"engine": {"model": "x"}}, "engine.model: is set by this model repository"),
    ],
)
def test_wrong_values(modules: Callable[[str], ModuleType], tmp_path: Path, change: dict[str, Any], words: str) -> None:
    assert words in problem(modules, tmp_path, engine_document(tmp_path, **change))


def test_an_argument_that_vllm_does_not_have(modules: Callable[[str], ModuleType], tmp_path: Path) -> None:
    file = tmp_path / "engine.json"
    file.write_text(json.dumps(engine_document(tmp_path, engine={"max_num_seq": 4})))
    config, internals = modules("engine_config"), modules("vllm_internals")
    with pytest.raises(config.ConfigError, match=r"engine\.max_num_seq: no such key \(did you mean max_num_seqs\?\)"):
        internals.engine_args(config.load(file), 0)


def test_gpus(modules: Callable[[str], ModuleType], tmp_path: Path) -> None:
    file = tmp_path / "engine.json"
    file.write_text(json.dumps(engine_document(tmp_path, engine={"tensor_parallel_size": 4})))
    config, internals = modules("engine_config"), modules("vllm_internals")
    loaded = config.load(file)
    with pytest.raises(config.ConfigError, match="no GPU is visible"):
        internals.require_devices(loaded, 0)
    with pytest.raises(config.ConfigError, match="needs 4 GPUs, but 2 are visible"):
        internals.require_devices(loaded, 2)
    internals.require_devices(loaded, 4)


def test_a_vllm_that_does_not_fit_is_named(
    modules: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    internals = modules("vllm_internals")
    internals.probe()

    def from_another_release(vllm_config: object) -> None: ...

    monkeypatch.setattr(
        internals, "_EXPECTED", [("AsyncLLM.from_vllm_config", from_another_release, ("client_addresses",))]
    )
    with pytest.raises(internals.IncompatibleVllmError, match="from_vllm_config has no parameter 'client_addresses'"):
        internals.probe()


class TestModelFiles:
    def check(self, modules: Callable[[str], ModuleType], directory: Path) -> str:
        config = modules("engine_config")
        with pytest.raises(config.ConfigError) as caught:
            config.check_model_files(str(directory))
        return str(caught.value)

    def test_directory_missing(self, modules: Callable[[str], ModuleType], tmp_path: Path) -> None:
        assert "is not a directory" in self.check(modules, tmp_path / "none")

    def test_config_missing(self, modules: Callable[[str], ModuleType], tmp_path: Path) -> None:
        assert "config.json is missing" in self.check(modules, tmp_path)

    def test_half_a_shard(self, modules: Callable[[str], ModuleType], tmp_path: Path, model: Path) -> None:
        copy = Path(shutil.copytree(model, tmp_path / "half"))
        weights = copy / "model.safetensors"
        size = weights.stat().st_size
        with weights.open("r+b") as file:
            file.truncate(size // 2)
        message = self.check(modules, copy)
        assert f"model.safetensors is cut short: {size // 2} of {size} bytes" in message

    def test_a_shard_of_the_index_is_missing(
        self, modules: Callable[[str], ModuleType], tmp_path: Path, model: Path
    ) -> None:
        copy = Path(shutil.copytree(model, tmp_path / "sharded"))
        (copy / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}})
        )
        assert "model-00002-of-00002.safetensors is missing" in self.check(modules, copy)

    def test_a_whole_model(self, modules: Callable[[str], ModuleType], model: Path) -> None:
        modules("engine_config").check_model_files(str(model))


def ends_with(directory: Path, document: dict[str, Any], change: Callable[[Path], None] = lambda _: None) -> str:
    """Starts a server that cannot serve; returns its log once it has ended by itself.

    `change` is made to the model repository before.
    """
    server = Server(directory, document)
    change(directory / "repository")
    try:
        server.start(wait=False)
        assert server.process
        assert server.process.wait(START_SECONDS) != 0
        wait_for(lambda: server.processes() == [])  # an engine that was up already is stopped in order
        return server.tail(400)
    finally:
        server.stop()


def test_tritonserver_ends_with_the_file_that_is_missing(tmp_path: Path) -> None:
    assert f"{tmp_path}/nothing is not a directory" in ends_with(tmp_path, engine_document(tmp_path / "nothing"))


def test_tritonserver_ends_when_the_engine_does_not_start(model: Path, tmp_path: Path) -> None:
    log = ends_with(tmp_path, engine_document(model, frontends=1, engine={"max_model_len": 100_000}))
    assert "the engine did not start" in log
    assert "max_model_len" in log


def test_a_second_version_would_claim_the_same_gpu(model: Path, tmp_path: Path) -> None:
    """One version of one engine per pod, whichever of the two comes first."""

    def add_version(repository: Path) -> None:
        shutil.copytree(repository / "llm" / "1", repository / "llm" / "2")
        config = repository / "llm" / "config.pbtxt"
        config.write_text(config.read_text().replace("latest { num_versions: 1 }", "all {}"))

    log = ends_with(tmp_path, engine_document(model, frontends=1), add_version)
    assert re.search(
        r"version (1 of this model already owns the GPU; version 2|2 of this model already owns the GPU; version 1) "
        r"must be served by another pod \(keep version_policy at one version\)",
        log,
    )


def test_self_test_of_the_image(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "engine.json"
    file.write_text(json.dumps(engine_document(model)))
    program = REPOSITORY / "llm" / "1" / "self_test.py"
    done = subprocess.run(
        [sys.executable, str(program)],
        env={"EKS_LLM_ENGINE_CONFIG": str(file), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "fits" in done.stdout
