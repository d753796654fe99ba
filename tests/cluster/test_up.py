"""`./dev up`, `status`, `logs` and `down` as people run them, with a state folder and ports of the tests' own."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from embedded import process, serving_env, weights
from embedded.api import Api
from embedded.platform import ALL, Platform
from embedded.ports import USERS, free_base
from embedded.process import pid_of, recorded
from tests.cluster.test_controlplane import listening

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
FIRST_TOKEN = re.compile(r"tiny at (http://127\.96\.\d+\.\d+:8000): the first token came (\d+\.\d) s after the start")


@dataclass
class RealCluster:
    """Somebody's real cluster, in the variables and the home folder that every Kubernetes tool reads."""

    home: Path
    connections: list[object] = field(default_factory=list[object])

    @property
    def environment(self) -> dict[str, str]:
        kubeconfig = str(self.home / ".kube" / "config")
        return {"HOME": str(self.home), "KUBECONFIG": kubeconfig, "PULUMI_BACKEND_URL": "https://api.pulumi.example"}


@pytest.fixture
def real_cluster(tmp_path: Path) -> Iterator[RealCluster]:
    """Its API server counts who connects. Its kubeconfig and Pulumi's login may not be written either."""
    cluster = RealCluster(tmp_path / "home")
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_count, args=(server, cluster.connections), daemon=True).start()
    port = server.getsockname()[1]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "production",
        "contexts": [{"name": "production", "context": {"cluster": "production", "user": "me"}}],
        "clusters": [{"name": "production", "cluster": {"server": f"https://127.0.0.1:{port}"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    (cluster.home / ".kube").mkdir(parents=True)
    (cluster.home / ".pulumi").mkdir()
    (cluster.home / ".kube" / "config").write_text(json.dumps(config))
    (cluster.home / ".pulumi" / "credentials.json").write_text('{"current": "https://api.pulumi.example"}')
    yield cluster
    server.close()


def _count(server: socket.socket, connections: list[object]) -> None:
    while True:
        try:
            connections.append(server.accept()[1])
        except OSError:
            return


@dataclass
class Dev:
    """`./dev` with a state folder and ports of the test's own."""

    home: Path
    base: int
    environment: dict[str, str]
    started: list["subprocess.Popen[str]"] = field(default_factory=list["subprocess.Popen[str]"])

    def start(self, *arguments: str, prefix: tuple[str, ...] = (), **more: str) -> "subprocess.Popen[str]":
        # What ./dev runs once its packages are there, so that a Ctrl-C meets this process.
        started = subprocess.Popen(
            [*prefix, sys.executable, "-m", "embedded", *arguments],
            cwd=ROOT,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(started)
        return started

    def run(self, *arguments: str, status: int = 0, prefix: tuple[str, ...] = (), **more: str) -> str:
        """What it prints."""
        started = self.start(*arguments, prefix=prefix, **more)
        said, _ = started.communicate(timeout=900)
        print(said)
        assert started.returncode == status, said
        assert "Traceback" not in said
        return said

    def nothing_left(self, pids: list[int]) -> None:
        assert recorded(self.home) == []
        assert not [pid for pid in pids if process.start_time(pid)]
        assert not listening() & set(range(self.base, self.base + len(USERS)))
        assert {entry.name for entry in self.home.iterdir()} <= {"lock", "logs"}
        assert not [line for line in processes() if str(self.home) in line]


def processes() -> list[str]:
    """Command lines of all processes."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended
            continue
    return lines


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("buckets") / "tiny"
    weights.make_tiny(serving_env.ensure(), folder)
    return folder


@pytest.fixture
def dev(tmp_path: Path, real_cluster: RealCluster, model: Path) -> Iterator[Dev]:
    home, base = tmp_path / "platform", free_base()
    shutil.copytree(model, tmp_path / "buckets" / "models" / "tiny" / "2026-11-29")
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL") if key in os.environ}
    # What else is looked for below the real home folder.
    kept["PYENV_ROOT"] = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    kept |= {key: subprocess.check_output(["go", "env", key], text=True).strip() for key in ("GOMODCACHE", "GOCACHE")}
    own = {"EKS_LLM_HOME": str(home), "EKS_LLM_PORTS": str(base), "PYTHONPATH": str(ROOT)}
    dev = Dev(home, base, {**kept, **real_cluster.environment, **own})
    yield dev
    for left in dev.started:  # none, unless the test failed
        left.kill()
        left.wait()
    Platform(home).down()


def pids(home: Path) -> list[int]:
    return [pid for name in recorded(home) if (pid := pid_of(home, name))]


def said(running: "subprocess.Popen[str]", text: str) -> str:
    """Waits until a command prints `text`; returns all that it has printed."""
    lines = ""
    for line in running.stdout or ():
        print(line, end="")
        lines += line
        if text in line:
            return lines
    raise AssertionError(f"it ended, and did not say {text!r}:\n{lines}")


def test_up_streams_a_token_and_down_leaves_nothing(dev: Dev, real_cluster: RealCluster) -> None:
    before = {file: file.read_bytes() for file in real_cluster.home.rglob("*") if file.is_file()}
    first = FIRST_TOKEN.search(dev.run("up"))
    assert first
    print(f"first token after {first[2]} s, at a load of {os.getloadavg()[0]:.0f}")
    left = pids(dev.home)
    assert len(left) == len(ALL)

    again = dev.run("up")
    assert "the platform is up already" in again
    assert re.search(r"^no change, \d+ as before", again, re.MULTILINE)
    assert FIRST_TOKEN.search(again)
    assert pids(dev.home) == left

    (pod,) = Api(dev.home / "kubeconfig").list("v1", "Pod", "inference")
    status = dev.run("status", COLUMNS="160")
    assert f"{len(ALL)} of {len(ALL)} run" in status
    assert re.search(rf"inference/{pod['metadata']['name']} +yes +0 +Running +local-local-0", status)
    assert re.search(rf"inference/tiny +1 ready, 1 desired, 1 to 3 +demand 0 of 4 +{re.escape(first[1])}", status)
    assert "kv-cache" in status
    assert "Started container server" in dev.run("logs", "pod-runner")
    assert "Started HTTPService at 0.0.0.0:8000" in dev.run("logs", "tiny")
    assert "no logs of 'pod-runer'; did you mean 'pod-runner'" in dev.run("logs", "pod-runer", status=1)

    begin = time.monotonic()
    dev.run("down")
    took = time.monotonic() - begin
    print(f"down in {took:.1f} s")
    assert took <= 15
    dev.nothing_left(left)

    assert real_cluster.connections == []
    after = {file: file.read_bytes() for file in real_cluster.home.rglob("*") if file.is_file()}
    assert {file: text for file, text in after.items() if file in before} == before
    assert not [file for file in after.keys() - before.keys() if ".pulumi" in str(file) or ".kube" in str(file)]


def test_up_after_a_killed_one_starts_afresh(dev: Dev) -> None:
    killed = dev.start("up")
    said(killed, "Waiting for app")
    killed.kill()
    killed.wait()
    left = pids(dev.home)
    assert pid_of(dev.home, "deployment") in left  # it goes on by itself, until the next command ends it
    again = dev.run("up")
    assert "an earlier run was killed: ending what it left, and starting afresh" in again
    assert FIRST_TOKEN.search(again)
    assert not [pid for pid in left if process.start_time(pid)]

    left = pids(dev.home)
    for name in ("etcd", "pod-runner"):
        os.kill(pid_of(dev.home, name) or 0, signal.SIGKILL)
    assert "not running" in dev.run("status", status=1)
    dev.run("down")
    dev.nothing_left(left)


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


@pytest.mark.parametrize("seconds", [0.1, 0.3, 0.6])
def test_ctrl_c_while_python_imports_says_nothing(dev: Dev, seconds: float) -> None:
    up = dev.start("up")
    time.sleep(seconds)
    up.send_signal(signal.SIGINT)
    rest, _ = up.communicate(timeout=120)
    assert up.returncode in {-signal.SIGINT, 130}
    assert "Traceback" not in rest
    dev.nothing_left([])


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


def test_ctrl_c_of_an_update_leaves_what_was_up(dev: Dev) -> None:
    dev.run("up")
    left = pids(dev.home)
    update = dev.start("up")
    said(update, "deploying")
    time.sleep(1)
    update.send_signal(signal.SIGINT)
    rest, _ = update.communicate(timeout=120)
    assert update.returncode == 130
    assert "ending the update; what was up stays up" in rest
    assert pids(dev.home) == left
    assert "no change" in dev.run("up")


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
