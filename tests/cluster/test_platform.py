"""The whole platform: up, down, and everything that may go wrong in between."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from embedded import process, view
from embedded.api import Api
from embedded.nodes import gpu_node
from embedded.platform import ALL, Platform, Shape
from embedded.ports import free_base
from embedded.process import PlatformError, pid_of, recorded
from tests.cluster.test_controlplane import listening

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SHAPE = Shape(
    local_nodes=[gpu_node("a100", "p4d.24xlarge", "us-west-2b", 0, fake=False)],
    fake_nodes=[gpu_node("a100", "p4d.24xlarge", "us-west-2b", 0)],
    images={},
)


def nothing_left(home: Path, base: int, pids: list[int]) -> None:
    assert recorded(home) == []
    assert not [pid for pid in pids if process.start_time(pid)]
    assert not listening() & set(range(base, base + 20))
    assert {entry.name for entry in home.iterdir()} <= {"lock", "logs"}


def test_up_a_killed_run_and_down(everything: None, tmp_path: Path) -> None:
    platform, said, base = Platform(tmp_path), [], free_base()
    platform.up(SHAPE, base, said.append)
    print("\n".join(said))
    assert all(platform.status().values())
    pids = [pid for name in ALL if (pid := pid_of(tmp_path, name))]

    platform.up(SHAPE, base, said.append)
    assert said[-1] == "the platform is up already"
    assert [pid_of(tmp_path, name) for name in ALL] == pids

    killed = [pid_of(tmp_path, name) or 0 for name in ("etcd", "pod-runner")]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    Api(platform.kubeconfig).wait("the end of what was killed", lambda: all(map(process.gone, killed)))
    console = Console(record=True, width=300)
    with pytest.raises(PlatformError, match="etcd does not run, so the rest is unknown"):
        view.show(platform, console)
    assert re.search(r"not running +etcd pod-runner", console.export_text())

    said.clear()
    platform.up(SHAPE, base, said.append)
    assert said[0] == "an earlier run was killed: ending what it left, and starting afresh"
    assert platform.is_up()
    assert not [pid for pid in pids if process.start_time(pid)]
    pids = [pid for name in ALL if (pid := pid_of(tmp_path, name))]

    begin = time.monotonic()
    platform.down(said.append)
    print(f"down in {time.monotonic() - begin:.1f} s")
    nothing_left(tmp_path, base, pids)


@pytest.mark.parametrize("moment", ["", "etcd ready", "prometheus ready"])
def test_ctrl_c_leaves_nothing(everything: None, tmp_path: Path, moment: str) -> None:
    """At other moments: test_up.py."""
    base = free_base()
    program = f"""
import pathlib, sys
from embedded.platform import Platform
from tests.cluster.test_platform import SHAPE
print("begins")
Platform(pathlib.Path({str(tmp_path)!r})).up(SHAPE, {base}, print)
"""
    command = [sys.executable, "-u", "-c", program]
    up = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert up.stdout
    for line in up.stdout:
        if line.startswith(moment or "begins"):
            break
    pids = [pid for name in recorded(tmp_path) if (pid := pid_of(tmp_path, name))]
    up.send_signal(signal.SIGINT)
    said, errors = up.communicate(timeout=process.PATIENCE)
    assert "platform up in" not in said
    assert "KeyboardInterrupt" in errors
    nothing_left(tmp_path, base, pids)


def test_a_second_command_meanwhile_is_refused(tmp_path: Path) -> None:
    platform, inside, over = Platform(tmp_path), threading.Event(), threading.Event()

    def hold() -> None:
        with platform.locked():
            inside.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    try:
        with pytest.raises(PlatformError, match=rf"another command .* \(pid {os.getpid()}\)"):
            platform.down()
    finally:
        over.set()
        holder.join()
