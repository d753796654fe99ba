"""Starts a real tritonserver on this checkout's model repository, as the pod does, and ends it as the kubelet does."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embedded.serving_env import ROOT, ensure
from tests.serving import sessions

REPOSITORY = ROOT / "model_repository"
EXAMPLE = ROOT / "examples" / "ensemble"
START_SECONDS = 600


def engine_document(model: Path, **changes: Any) -> dict[str, Any]:
    """An engine.json for the tiny model on a CPU; `changes` replace whole sections, `engine` is merged."""
    engine = {
        "max_model_len": 1024,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "dtype": "float32",  # the bf16 attention kernel dies by SIGILL on some virtual machines that advertise AMX
        "enforce_eager": True,
        "enable_prefix_caching": True,
        "structured_outputs_config": {"backend": "xgrammar"},
        **changes.pop("engine", {}),
    }
    return {
        "schema": 1,
        "model": str(model),
        "servedModelName": "tiny",
        "frontends": 2,
        "engine": engine,
        "loraAdapters": {},
        "limits": {
            "maxQueuedRequests": 64,
            "maxQueuedTokens": 100_000,
            "requestTimeoutSeconds": 60,
            "maxAnswerTokens": 0,
        },
        "drain": {"exitTimeoutSeconds": 30},
        "health": {"stallSeconds": 120},
        "metrics": {"port": free_port()},
        **changes,
    }


class Server:
    """A running tritonserver with its ports, its log and its run directory."""

    def __init__(self, directory: Path, document: dict[str, Any], flags: tuple[str, ...] = ()) -> None:
        self.directory, self.document = directory, document
        self.http, self.grpc, self.triton_metrics = free_port(), free_port(), free_port()
        self.metrics_port = document["metrics"]["port"]
        self.log = directory / "server.log"
        self.run_directory = Path("/dev/shm") / f"eks-llm-test-{self.http}"
        self._environment = ensure()
        self._flags = flags
        self._shared_memory = f"{self.run_directory.name}-region"
        self.process: subprocess.Popen[bytes] | None = None
        self._write_repository()

    def _write_repository(self) -> None:
        repository = self.directory / "repository"
        for source in (REPOSITORY, EXAMPLE):
            ignored = shutil.ignore_patterns("__pycache__", "*.txt", "*.md")
            shutil.copytree(source, repository, ignore=ignored, dirs_exist_ok=True)
        config = repository / "llm" / "config.pbtxt"
        text, replaced = re.subn(r"count: \d+", f"count: {self.document['frontends']}", config.read_text())
        assert replaced == 1
        config.write_text(text)
        (self.directory / "engine.json").write_text(json.dumps(self.document, indent=2))

    def start(self, wait: bool = True) -> "Server":
        parts = self._environment
        command = [
            str(parts.tritonserver),
            f"--model-repository={self.directory / 'repository'}",
            f"--backend-directory={parts.backends}",
            f"--http-port={self.http}",
            f"--grpc-port={self.grpc}",
            f"--metrics-port={self.triton_metrics}",
            f"--exit-timeout-secs={self.document['drain']['exitTimeoutSeconds']}",
            *(f"--{kind}-address=127.0.0.1" for kind in ("http", "grpc", "metrics")),
            f"--backend-config=python,shm-region-prefix-name={self._shared_memory}",
            *self._flags,
        ]
        environment = {
            **os.environ,
            **parts.variables(),
            "EKS_LLM_ENGINE_CONFIG": str(self.directory / "engine.json"),
            "EKS_LLM_RUN_DIR": str(self.run_directory),
        }
        environment.pop("PYTHONPATH", None)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not self.ready():
            assert self.process
            assert self.process.poll() is None, f"tritonserver ended:\n{self.tail()}"
            assert time.monotonic() < until, f"not ready within {START_SECONDS} s:\n{self.tail()}"
            time.sleep(0.2)

    def ready(self) -> bool:
        return _status(f"http://127.0.0.1:{self.http}/v2/health/ready") == 200

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def scrape(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
            return answer.read().decode()

    def health(self, kind: str) -> int:
        """Status of /health/live or /health/ready. Raises OSError where nobody answers."""
        status = _status(f"http://127.0.0.1:{self.metrics_port}/health/{kind}")
        if not status:
            raise OSError("nobody answers")
        return status

    def scrape_triton(self) -> str:
        """Triton's own port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.triton_metrics}/metrics", timeout=5) as answer:
            return answer.read().decode()

    def pre_stop(self) -> None:
        """The last act of the pod's preStop hook; the kubelet sends SIGTERM right after it."""
        (self.run_directory / "draining").touch()

    def terminate(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """At once: how a server ends in good order is for the tests of that."""
        if self.process:
            sessions.end(self.process.pid)
            self.process.wait()
        shutil.rmtree(self.run_directory, ignore_errors=True)
        for left in self.run_directory.parent.glob(f"{self._shared_memory}*"):  # Triton's own, where it was killed
            left.unlink(missing_ok=True)

    def processes(self, name: str = "") -> list[int]:
        """Processes of this server, by part of their command line."""
        return sessions.members(self.process.pid, name) if self.process else []


@contextlib.contextmanager
def running(directory: Path, document: dict[str, Any], flags: tuple[str, ...] = ()) -> Iterator[Server]:
    server = Server(directory, document, flags)
    try:
        yield server.start()
    finally:
        server.stop()


def free_port() -> int:
    """Of a range from which Linux takes none for clients (`ip_local_port_range`), so it stays free until it is used."""
    while True:
        port = random.randrange(10_000, 17_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
