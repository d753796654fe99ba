"""Starts a real `vllm serve` with the flags, middleware and preStop hook that the component makes, as the pod does."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.serving import sessions
from tests.serving.metrics import wait_for
from tests.serving.server import ROOT, START_SECONDS, free_port

KEY, NEXT_KEY = "tiny-key", "next-tiny-key"
DESCRIBE = """
import json, sys
from eks_llm.serving import openai
server = openai.server(json.load(sys.stdin), "map", "engine", True)
print(json.dumps({"args": server.args, "last_act": server.last_act, "files": openai.middleware()}))
"""


class OpenAIServer:
    """A running `vllm serve`, its log and its run directory."""

    def __init__(self, directory: Path, document: dict[str, Any]) -> None:
        python = ROOT / ".venv" / "bin" / "python"  # the component needs Pulumi, which is not in this environment
        command = [str(python), "-c", DESCRIBE]
        made = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        described = json.loads(made.stdout)
        self.port, self.log = free_port(), directory / "vllm.log"
        self.run_directory = Path("/dev/shm") / f"eks-llm-test-{self.port}"
        self._last_act = described["last_act"].replace("/dev/shm/eks-llm/", f"{self.run_directory}/")
        self._args = [self._here(argument) for argument in described["args"]]
        self._engine_json = directory / "engine.json"
        self._engine_json.write_text(json.dumps(document))
        self._python_path = directory / "python"
        self._python_path.mkdir()
        for name, text in described["files"].items():
            (self._python_path / name).write_text(text)
        self.process: subprocess.Popen[bytes] | None = None

    def _here(self, argument: str) -> str:
        if argument.startswith("--port="):
            return f"--port={self.port}"
        return "--host=127.0.0.1" if argument.startswith("--host=") else argument

    def start(self) -> "OpenAIServer":
        environment = {
            **os.environ,
            "EKS_LLM_API_KEYS": f"{KEY} {NEXT_KEY}",
            "EKS_LLM_ENGINE_CONFIG": str(self._engine_json),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
            "EKS_LLM_RUN_DIR": str(self.run_directory),
            "PYTHONPATH": str(self._python_path),
        }
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", *self._args]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        process = self.process
        wait_for(lambda: process.poll() is not None or self.get("/health")[0] == 200, START_SECONDS, 0.5)
        assert process.poll() is None, self.log.read_text()[-3000:]
        return self

    def pre_stop(self) -> int:
        """The end of the pod's preStop hook, after its sleep. Blocks as the kubelet does; returns its exit status."""
        return subprocess.run(["/bin/sh", "-c", self._last_act], check=False).returncode

    def stop(self) -> None:
        """At once: how a server ends in good order is for the tests of that."""
        if self.process:
            sessions.end(self.process.pid)
            self.process.wait()
        shutil.rmtree(self.run_directory, ignore_errors=True)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def request(self, key: str = KEY, **changes: Any) -> urllib.request.Request:
        document = {"model": "tiny", "prompt": "The quick brown fox", "max_tokens": 8, "temperature": 0, **changes}
        return urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(document).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
        )

    def complete(self, key: str = KEY, **changes: Any) -> tuple[int, Any]:
        """Status and JSON of a completion."""
        try:
            with urllib.request.urlopen(self.request(key, **changes), timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def stream(self, **changes: Any) -> list[dict[str, Any]]:
        """Events of a streamed completion with usage. Raises where it ends without `[DONE]`."""
        asked = self.request(stream=True, stream_options={"include_usage": True}, **changes)
        with urllib.request.urlopen(asked, timeout=120) as answer:
            lines = [line.removeprefix("data: ") for line in answer.read().decode().splitlines() if line]
        assert lines[-1] == "[DONE]", lines[-1]
        return [json.loads(line) for line in lines[:-1]]


@contextlib.contextmanager
def running(directory: Path, document: dict[str, Any]) -> Iterator[OpenAIServer]:
    server = OpenAIServer(directory, document)
    try:
        yield server.start()
    finally:
        server.stop()
