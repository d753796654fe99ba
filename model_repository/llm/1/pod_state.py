"""What the processes of one pod share: a directory in memory, one slot of numbers per front end, the drain marker.

A slot is written by its owner alone, so there are no locks; readers add up all slots and may be one update behind.
"""

import contextlib
import fcntl
import mmap
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from engine_config import ConfigError

DEFAULT_DIRECTORY = "/dev/shm/eks-llm"  # noqa: S108 - a memory volume of the pod, which Triton needs anyway
_FIELDS = (
    "in_flight",
    "queued_tokens",
    "progress",
    "heartbeat",
    "step_at",
    "running",
    "waiting",
    "deferred",
    "kv_usage",
)
_SLOT = 128  # bytes: cache lines of its own, so that writers do not disturb each other


@dataclass(frozen=True)
class RunDirectory:
    """Paths under EKS_LLM_RUN_DIR."""

    root: Path

    @classmethod
    def of_environment(cls) -> "RunDirectory":
        return cls(Path(os.environ.get("EKS_LLM_RUN_DIR", DEFAULT_DIRECTORY)))

    @property
    def control_socket(self) -> Path:
        return self.root / "engine.sock"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def metrics(self) -> Path:
        """prometheus_client's files, one set per front end; the engine process adds them up."""
        return self.root / "metrics"

    @property
    def drain_marker(self) -> Path:
        """The pod's preStop hook makes this file right before SIGTERM: new requests are refused from then on."""
        return self.root / "draining"

    def claim(self, version: str) -> None:
        """Takes the pod for a version of the model and empties the directory.

        A memory volume outlives the container: a stale marker would refuse every request.

        Raises:
            ConfigError: another version of the model runs in this server already.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        owner = self.root / "owner"
        with open(self.root / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Triton loads versions at the same time
            with contextlib.suppress(OSError):
                server, other = owner.read_text().split()
                if server == str(os.getppid()) and other != version:
                    raise ConfigError(other_version(other, version))
                _remove_orphans(self.root.parent)
            shutil.rmtree(self.metrics, ignore_errors=True)
            for file in self.root.iterdir():  # vLLM's sockets are here too
                if file.name != "lock":
                    file.unlink()
            self.metrics.mkdir()
            owner.write_text(f"{os.getppid()} {version}")


def other_version(owner: str, version: str) -> str:
    """Why a version of the model is refused."""
    return (
        f"version {owner} of this model already owns the GPU; version {version} must be served by another pod (keep "
        "version_policy at one version)"
    )


def _remove_orphans(memory: Path) -> None:
    """Removes shared memory that a container before this one left: vLLM's and Triton's, where no process maps it."""
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped += maps.read_text()
    for pattern in ("psm_*", "triton_python_backend_shm_region_*"):
        for file in memory.glob(pattern):
            if file.name not in mapped:
                file.unlink(missing_ok=True)


@dataclass(frozen=True)
class Totals:
    """The pod's numbers, over all front ends."""

    in_flight: int
    queued_tokens: int
    progress: float
    """When the engine last answered any front end (monotonic seconds)."""
    oldest_heartbeat: float
    running: int
    """Requests in the engine's last step. This and the following are from whichever front end heard of the latest step:
    the engine tells each step to one front end only, and they handle them at their own pace."""
    waiting: int
    """Requests that wait for room in the engine."""
    deferred: int
    """Requests that the engine has put aside, e.g. until a grammar is compiled."""
    kv_usage: float
    """Share of the KV cache in use, 0 to 1."""

    @property
    def step_age(self) -> float:
        """Seconds since the engine last answered anybody, while requests are in flight; 0 where none is."""
        return max(0.0, time.monotonic() - self.progress) if self.in_flight else 0.0


def pod_gauges(totals: Totals) -> dict[str, tuple[str, float]]:
    """Metrics of the pod that vLLM does not have, by name: what they say, and their value.

    vLLM's own gauges come from the engine, so they stand still with it; these are counted in front of it.
    """
    return {
        "eks_llm_engine_step_age_seconds": (
            "Since the engine last answered while requests are in flight; 0 where none is",
            totals.step_age,
        ),
        "eks_llm_requests_in_flight": ("Requests taken and not yet answered", float(totals.in_flight)),
    }


class PodState:
    """The shared numbers. `index` is the slot that this process writes; the engine process writes none."""

    def __init__(self, directory: RunDirectory, frontends: int, index: int | None = None) -> None:
        size = frontends * _SLOT
        with open(directory.state, "a+b") as file:
            file.truncate(size)
            self._values = memoryview(mmap.mmap(file.fileno(), size)).cast("d")
        self._frontends = frontends
        self._base = None if index is None else index * _SLOT // 8

    def set(self, field: str, value: float) -> None:
        if self._base is None:
            raise RuntimeError("the engine process writes no slot")
        self._values[self._base + _FIELDS.index(field)] = value

    def totals(self) -> Totals:
        slots = [
            dict(zip(_FIELDS, self._values[start : start + len(_FIELDS)], strict=True))
            for start in range(0, self._frontends * _SLOT // 8, _SLOT // 8)
        ]
        latest = max(slots, key=lambda slot: slot["step_at"])
        return Totals(
            in_flight=int(sum(slot["in_flight"] for slot in slots)),
            queued_tokens=int(sum(slot["queued_tokens"] for slot in slots)),
            progress=max(slot["progress"] for slot in slots),
            oldest_heartbeat=min(slot["heartbeat"] or time.monotonic() for slot in slots),
            running=int(latest["running"]),
            waiting=int(latest["waiting"]),
            deferred=int(latest["deferred"]),
            kv_usage=latest["kv_usage"],
        )
