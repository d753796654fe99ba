"""The whole platform on one machine: all of its processes, in order, and their state folder.

Everything it starts and writes is below `.local/platform/` of this checkout, or below the folder that `EKS_LLM_HOME`
names. `up` leaves the platform running and returns; when it fails or is interrupted, it leaves nothing. One command at
a time: a lock says so.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import images, ports
from .api import Api, Manifest
from .controlplane import PARTS, ControlPlane
from .keda import PARTS as KEDA_PARTS
from .keda import Keda
from .kube_state_metrics import PROCESS as KUBE_STATE_METRICS
from .kube_state_metrics import KubeStateMetrics
from .nodes import Nodes, add
from .pace import AS_ON_EKS, Pace
from .process import PlatformError, pid_of, recorded, stop, uninterrupted
from .prometheus import PARTS as PROMETHEUS_PARTS
from .prometheus import Prometheus
from .runner import PROCESS as RUNNER
from .runner import PodRunner
from .services import PROCESS as PROXY
from .services import ServiceProxy

HOME = Path(os.environ.get("EKS_LLM_HOME") or Path(__file__).parents[1] / ".local" / "platform").absolute()
ALL = (*PARTS, "kwok", *PROMETHEUS_PARTS, *KEDA_PARTS, KUBE_STATE_METRICS, RUNNER, PROXY)
"""Names of all processes of a complete platform."""
DEPLOYMENT = "deployment"
"""Name of the process that deploys a stack, for as long as that takes."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Shape:
    """What the cluster consists of."""

    local_nodes: list[Manifest]
    """Nodes whose pods run as processes: `nodes.gpu_node(…, fake=False)`."""
    fake_nodes: list[Manifest]
    """Nodes whose pods only seem to run: `nodes.gpu_node(…)`."""
    images: dict[str, images.Stand]
    """What stands in for images: `images.stands(…)`."""


@dataclass(frozen=True)
class Platform:
    """A platform with its state folder."""

    home: Path = HOME
    pace: Pace = AS_ON_EKS
    """Of what `up` starts."""

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    def up(self, shape: Shape, base_port: int = ports.DEFAULT_BASE, progress: Progress = lambda _: None) -> None:
        """Starts what is not running. Raises `PlatformError` or `ToolError`, and then leaves nothing."""
        with self.locked():
            self.start(shape, base_port, progress)

    def down(self, progress: Progress = lambda _: None) -> None:
        """Ends all processes and removes their state. Logs stay until the next `up`."""
        with self.locked():
            begin = time.monotonic()
            self.clear()
            progress(f"platform down in {time.monotonic() - begin:.1f} s")

    def start(self, shape: Shape, base_port: int, progress: Progress) -> bool:
        """As `up`, for callers that hold the lock. False if it was up already."""
        begin = time.monotonic()
        # A deployment that was killed half-way leaves objects that Pulumi does not know, so that is no platform to use.
        if self.is_up() and DEPLOYMENT not in recorded(self.home):
            progress("the platform is up already")
            return False
        if recorded(self.home):
            progress("an earlier run was killed: ending what it left, and starting afresh")
        self.clear(logs=True)
        try:
            self._start(shape, base_port, progress)
        except BaseException:  # Ctrl-C too
            progress("stopping what was started")
            self.clear()
            raise
        progress(f"platform up in {time.monotonic() - begin:.1f} s")
        return True

    def is_up(self) -> bool:
        return all(pid_of(self.home, name) for name in ALL)

    def status(self) -> dict[str, int | None]:
        """The pid of every process; None for one that does not run."""
        return {name: pid_of(self.home, name) for name in ALL}

    def _start(self, shape: Shape, base_port: int, progress: Progress) -> None:
        plane = ControlPlane(self.home, ports.allot(base_port), pace=self.pace)
        plane.start(progress)
        api = Api(plane.kubeconfig)
        Nodes(plane).start(progress)
        images.save(self.home / "images.json", shape.images)
        PodRunner(plane).start(shape.local_nodes)
        ServiceProxy(plane).start(progress)
        for node in shape.fake_nodes:
            add(api, node)
        progress(f"nodes ready: {len(shape.local_nodes)} local, {len(shape.fake_nodes)} fake")
        Prometheus(plane).start(progress)
        Keda(plane).start(progress)
        KubeStateMetrics(plane).start(progress)

    def clear(self, logs: bool = False) -> None:
        """Ends every recorded process, those with clients first, and removes all state; with `logs`, these too.

        Another Ctrl-C meanwhile changes nothing. For callers that hold the lock.
        """
        with uninterrupted():
            names = recorded(self.home)
            last = [name for name in ("kube-apiserver", "etcd") if name in names]
            stop(self.home, [name for name in names if name not in last])
            for name in last:
                stop(self.home, [name])
            for entry in self.home.glob("*"):
                if entry.name == "lock" or (entry.name == "logs" and not logs):
                    continue
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One command at a time. The kernel frees the lock when its holder ends, however it ends."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise PlatformError(
                    f"another command is starting or stopping the platform (pid {file.read().strip() or 'unknown'}); "
                    "wait for it, or end it"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield
