"""Ends the server when it can serve no more, so that Kubernetes starts the container again.

Triton neither ends nor turns unready when an instance or the engine behind it dies (since 26.04 it asks `is_ready`).
"""

import os
import signal
import time

ANSWER_SECONDS = 1.0
"""Time for the front ends to end their streams with a reason before the server goes."""
GRACE_SECONDS = 10.0
"""Time for the server to stop by itself; idle keep-alive connections would hold it for its whole exit timeout."""


def take_down(server_pid: int) -> None:
    """SIGTERM (no new connections from now on), then SIGKILL where the server is still there."""
    time.sleep(ANSWER_SECONDS)
    for number, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, 1.0)):
        if not alive(server_pid):
            return
        os.kill(server_pid, number)
        until = time.monotonic() + patience
        while alive(server_pid) and time.monotonic() < until:
            time.sleep(0.1)


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False
