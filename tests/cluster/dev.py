"""`./dev` as people run it, with a state folder and ports of a test's own, beside somebody's real cluster."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from embedded.platform import Platform
from embedded.ports import free_base
from embedded.process import pid_of, recorded
from tests.cluster.test_platform import nothing_left

ROOT = Path(__file__).parents[2]
FIRST_TOKEN = re.compile(r"tiny at (http://127\.96\.\d+\.\d+:8000): the first token came (\d+\.\d) s after the start")


@dataclass
class RealCluster:
    """Somebody's real cluster, in the variables and the home folder that every Kubernetes tool reads."""

    home: Path
    connections: list[object] = field(default_factory=list[object])
    before: dict[Path, bytes] = field(default_factory=dict[Path, bytes])
    """Its files at first."""

    @property
    def environment(self) -> dict[str, str]:
        kubeconfig = str(self.home / ".kube" / "config")
        return {"HOME": str(self.home), "KUBECONFIG": kubeconfig, "PULUMI_BACKEND_URL": "https://api.pulumi.example"}

    def files(self) -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in self.home.rglob("*") if file.is_file()}

    def untouched(self) -> None:
        assert self.connections == []
        after = self.files()
        assert {file: text for file, text in after.items() if file in self.before} == self.before
        added = after.keys() - self.before.keys()
        assert not [file for file in added if ".pulumi" in str(file) or ".kube" in str(file)]


@contextmanager
def real_cluster(home: Path) -> Iterator[RealCluster]:
    """Its API server counts who connects. Its kubeconfig and Pulumi's login may not be written either."""
    cluster = RealCluster(home)
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
    cluster.before = cluster.files()
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
    real: RealCluster
    """What it must not touch."""
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
        nothing_left(self.home, self.base, pids)
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


@contextmanager
def developing(folder: Path, model: Path) -> Iterator[Dev]:
    """A `Dev` below `folder`, with the tiny model's weights in its bucket. It is down in the end."""
    home, base = folder / "platform", free_base()
    shutil.copytree(model, folder / "buckets" / "models" / "tiny" / "2026-11-29")
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL") if key in os.environ}
    # What else is looked for below the real home folder.
    kept["PYENV_ROOT"] = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    kept |= {key: subprocess.check_output(["go", "env", key], text=True).strip() for key in ("GOMODCACHE", "GOCACHE")}
    own = {"EKS_LLM_HOME": str(home), "EKS_LLM_PORTS": str(base), "PYTHONPATH": str(ROOT)}
    with real_cluster(folder / "home") as cluster:
        dev = Dev(home, base, {**kept, **cluster.environment, **own}, cluster)
        try:
            yield dev
        finally:
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
