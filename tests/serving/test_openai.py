"""The second runtime: `vllm serve` from the same engine.json, with the flags that the component makes of it."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.metrics import types, wait_for
from tests.serving.server import ROOT, engine_document, free_port
from tests.serving.test_metrics import CONTRACT

KEY = "tiny-key"
FLAGS = """
import json, sys
from eks_llm.serving.openai import server
print(json.dumps(server(json.load(sys.stdin), True).args))
"""


@pytest.fixture(scope="module")
def openai(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    python = ROOT / ".venv" / "bin" / "python"  # the component needs Pulumi, which is not in this environment
    document = engine_document(model)
    command = [str(python), "-c", FLAGS]
    made = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    port = free_port()
    args = [_here(argument, port) for argument in json.loads(made.stdout)]
    log = tmp_path_factory.mktemp("openai") / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", *args],
            env={**os.environ, "VLLM_API_KEY": KEY, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
            stdout=stream,
            stderr=stream,
            process_group=0,
        )
    try:
        wait_for(lambda: process.poll() is not None or _get(port, "/health")[0] == 200, 300, 0.5)
        assert process.poll() is None, log.read_text()[-3000:]
        yield port, process
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _here(argument: str, port: int) -> str:
    if argument.startswith("--port="):
        return f"--port={port}"
    return "--host=127.0.0.1" if argument.startswith("--host=") else argument


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""


def complete(port: int, key: str = KEY, **changes: Any) -> tuple[int, Any]:
    document = {"model": "tiny", "prompt": "The quick brown fox", "max_tokens": 8, "temperature": 0, **changes}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(document).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, None


def test_answers_like_the_other_runtime(openai: tuple[int, Any], reference: Any) -> None:
    status, answer = complete(openai[0])
    assert status == 200
    assert answer["choices"][0]["text"] == reference.greedy("The quick brown fox", 8)[0]


def test_the_key_is_asked_for(openai: tuple[int, Any]) -> None:
    assert complete(openai[0], key="another")[0] == 401
    assert _get(openai[0], "/health")[0] == 200, "probes have no key"


def test_the_same_metric_names(openai: tuple[int, Any]) -> None:
    complete(openai[0])
    found = types(_get(openai[0], "/metrics")[1])
    assert {name: found.get(name) for name in CONTRACT} == CONTRACT
