"""`./dev up` that is interrupted or refused. What it does otherwise is in test_local_stack.py."""

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.ports import USERS
from tests.cluster.dev import ROOT, Dev, developing, pids, processes, said

pytestmark = pytest.mark.cluster


@pytest.fixture
def dev(everything: None, tmp_path: Path, model: Path) -> Iterator[Dev]:
    with developing(tmp_path, model) as dev:
        yield dev


@pytest.mark.parametrize("moment", ["kube-scheduler ready", "keda-operator ready", "deploying", "Waiting for app"])
def test_ctrl_c_leaves_nothing(dev: Dev, moment: str) -> None:
    up = dev.start("up")
    said(up, moment)
    left = pids(dev.home)
    up.send_signal(signal.SIGINT)
    begin = time.monotonic()
    rest, _ = up.communicate(timeout=120)
    print(f"{rest}\nended in {time.monotonic() - begin:.1f} s")
    assert up.returncode == 130
    assert "interrupted\n" in rest
    assert "Traceback" not in rest
    dev.nothing_left(left)


@pytest.mark.parametrize("seconds", [0, 0.1, 0.3, 0.6])
def test_ctrl_c_while_python_imports_says_nothing(dev: Dev, seconds: float) -> None:
    """From the first compiled library on, which our own code imports; before, Python itself starts."""
    up = dev.start("up")
    while "site-packages" not in Path(f"/proc/{up.pid}/maps").read_text():
        assert up.poll() is None
        time.sleep(0.001)
    time.sleep(seconds)
    up.send_signal(signal.SIGINT)
    rest, _ = up.communicate(timeout=120)
    assert up.returncode in {-signal.SIGINT, 130}
    assert "Traceback" not in rest
    assert pids(dev.home) == []


def test_ctrl_c_while_the_model_is_made_leaves_nothing(dev: Dev) -> None:
    shutil.rmtree(dev.home.parent / "buckets")
    up = dev.start("up")
    said(up, "making the tiny model")
    time.sleep(1)
    up.send_signal(signal.SIGTERM)
    up.communicate(timeout=120)
    assert up.returncode == 130
    dev.nothing_left([])
    assert not [line for line in processes() if str(dev.home.parent) in line]


def test_a_second_command_is_refused_while_one_runs(dev: Dev) -> None:
    first = dev.start("up")
    said(first, "etcd ready")
    for command in ("up", "down"):
        refused = dev.run(command, status=1)
        assert f"another command is starting or stopping the platform (pid {first.pid})" in refused
    first.send_signal(signal.SIGHUP)
    first.communicate(timeout=120)
    assert first.returncode == 130
    dev.nothing_left([])


def test_a_taken_port_is_named(dev: Dev) -> None:
    port = dev.base + USERS.index("prometheus")
    with socket.create_server(("127.0.0.1", port)):
        refused = dev.run("up", status=1)
    assert f"port {port} (for prometheus) is taken by another program" in refused
    assert f"EKS_LLM_PORTS={dev.base + 1000}" in refused
    dev.nothing_left([])


def test_a_full_disk_is_said_before_anything_starts(dev: Dev) -> None:
    """A file system of 64 MB for the state folder, in a mount namespace of the command's own."""
    dev.home.mkdir()
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    small = 'mount -t tmpfs -o size=64m tmpfs "$0" && exec "$@"'
    refused = dev.run("up", status=1, prefix=("unshare", *user, "--mount", "sh", "-c", small, str(dev.home)))
    assert f"the disk of {dev.home} has 0.1 GB free, and 3 GB are needed" in refused
    assert "EKS_LLM_HOME" in refused
    dev.nothing_left([])


def test_a_machine_without_go_is_told_what_to_install(dev: Dev) -> None:
    path = [folder for folder in dev.environment["PATH"].split(os.pathsep) if not Path(folder, "go").exists()]
    refused = dev.run("up", status=1, PATH=os.pathsep.join(path))
    assert "Go is missing" in refused
    assert "install Go 1.21 or newer (https://go.dev/dl/)" in refused
    dev.nothing_left([])


def test_an_unknown_stack_is_refused(dev: Dev) -> None:
    assert "no stack 'locall'" in dev.run("up", "locall", status=1)


def test_a_stack_for_aws_is_left_to_pulumi(dev: Dev, tmp_path: Path) -> None:
    path = [folder for folder in dev.environment["PATH"].split(os.pathsep) if not Path(folder, "pulumi").exists()]
    refused = dev.run("up", "dev", status=1, PATH=os.pathsep.join(path))
    assert "`pulumi up` deploys it, and Pulumi's CLI is not on PATH (https://www.pulumi.com/docs/install/)" in refused
    (tmp_path / "bin").mkdir()
    pulumi = tmp_path / "bin" / "pulumi"
    pulumi.write_text('#!/bin/sh\necho "runs pulumi $* in $PWD, logged in to $PULUMI_BACKEND_URL"\n')
    pulumi.chmod(0o755)
    started = dev.run("up", "dev", PATH=os.pathsep.join([str(pulumi.parent), *path]))
    assert f"runs pulumi up --stack dev in {ROOT}, logged in to https://api.pulumi.example" in started


def test_commands_without_a_platform_say_how_to_start_one(dev: Dev) -> None:
    assert "nothing runs; `./dev up` starts the platform" in dev.run("status", status=1)
    assert "there are no logs; `./dev up` starts the platform" in dev.run("logs", status=1)
    assert "platform down" in dev.run("down")
