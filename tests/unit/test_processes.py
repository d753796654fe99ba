"""Processes that outlive the command that started them."""

import platform
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from embedded.ports import is_free
from embedded.process import Process, pid_of, recorded, stop

SLOW = """
import ctypes, os, signal, socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def last():
    time.sleep(1)
    os._exit(0)
def end(*_):
    threading.Thread(target=last).start()
    ctypes.CDLL(None).syscall(int(sys.argv[2]), 0)  # exit(2): of this thread alone
signal.signal(signal.SIGTERM, end)
while True:
    time.sleep(1)
"""
EXIT = {"x86_64": 60, "aarch64": 93}
"""Numbers of the system call."""


@pytest.mark.skipif(platform.machine() not in EXIT, reason="the system call's number is not known")
def test_a_stopped_process_has_freed_its_ports_also_if_its_threads_outlive_it(tmp_path: Path) -> None:
    """kube-apiserver's do, for milliseconds, while its first thread is a zombie already."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", SLOW, str(port), str(EXIT[platform.machine()])]
    Process("slow", command, tmp_path, lambda: not is_free(port)).start()
    assert pid_of(tmp_path, "slow")
    stop(tmp_path, ["slow"])
    assert is_free(port)
    assert recorded(tmp_path) == []


def test_ctrl_c_while_a_process_starts_does_not_lose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its start and its record: `./dev up` then left Pulumi's engine behind."""
    popen: Any = subprocess.Popen

    def interrupted(*args: Any, **options: Any) -> Any:
        started = popen(*args, **options)
        signal.raise_signal(signal.SIGINT)
        return started

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        Process("sleeper", ["sleep", "60"], tmp_path, lambda: True).launch()
    assert signal.getsignal(signal.SIGINT) is before
    assert pid_of(tmp_path, "sleeper")
    stop(tmp_path, ["sleeper"])
    assert pid_of(tmp_path, "sleeper") is None
