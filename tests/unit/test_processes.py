"""Processes that outlive the command that started them."""

import platform
import socket
import sys
from pathlib import Path

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
