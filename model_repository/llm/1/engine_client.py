"""A front end's side of the engine process: start it (the first front end does), wait for it, hear of its end."""

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pod_state import RunDirectory
from takedown import take_down

logger = logging.getLogger("eks_llm.engine_client")
CONNECT_SECONDS = 120.0
"""For the first front end to start the engine process; it listens before it loads anything."""


class EngineFailedError(RuntimeError):
    """The engine did not start; the message has its reason."""


def start_engine_process(directory: RunDirectory, version: str) -> None:
    """Starts the engine process in a process group of its own, so that signals to Triton's group do not reach it."""
    environment = {
        **os.environ,
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_RPC_BASE_PATH": str(directory.root),
        "EKS_LLM_RUN_DIR": str(directory.root),
    }
    environment.pop("PROMETHEUS_MULTIPROC_DIR", None)  # front ends publish; the engine process collects
    python = sys.executable or shutil.which("python3") or "python3"
    program = Path(__file__).with_name("engine_process.py")
    subprocess.Popen(  # noqa: S603
        [python, str(program), str(os.getppid()), version],
        env=environment,
        process_group=0,
        stdin=subprocess.DEVNULL,
    )


class EngineConnection:
    """The line to the engine process."""

    def __init__(self, directory: RunDirectory, index: int, version: str) -> None:
        self._server_pid = os.getppid()
        self._socket = _connect(directory.control_socket)
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._leaving = False
        self._send({"hello": index, "version": version})

    def wait_ready(self) -> dict[str, str]:
        """Blocks while the model loads; returns this front end's addresses.

        Raises:
            EngineFailedError: with the reason.
        """
        message = self._receive()
        if message is None or "ready" not in message:
            raise EngineFailedError(str((message or {}).get("failed") or "the engine process ended; see its log above"))
        self._engine_group = int(message["group"])
        return message["ready"]

    def serving(self, on_death: Callable[[str], None]) -> None:
        """Says that this front end serves; from now on `on_death` is called (on a thread) if the engine is lost."""
        self._send({"serving": True})

        def listen() -> None:
            message = self._receive()
            if self._leaving:
                return
            on_death(str((message or {}).get("dead") or "the engine process died"))
            if message is None:  # nobody else stops the engine itself, which holds the GPU
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._engine_group, signal.SIGKILL)
            take_down(self._server_pid)  # the engine process does the same, if it lives

        threading.Thread(target=listen, daemon=True, name="engine-connection").start()

    def leave(self) -> None:
        """Says goodbye: the end of this front end is orderly."""
        self._leaving = True
        with contextlib.suppress(OSError):
            self._send({"bye": True})
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _receive(self) -> dict[str, Any] | None:
        try:
            line = self._lines.readline()
        except OSError:
            return None
        return json.loads(line) if line else None


def _connect(path: Path) -> socket.socket:
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            if time.monotonic() > until:
                raise EngineFailedError(f"no engine process at {path} within {CONNECT_SECONDS:.0f} s") from None
            time.sleep(0.1)
        else:
            return connection
