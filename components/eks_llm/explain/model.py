"""What is seen of a service (`Seen`), and what follows from it (`Explanation`), as plain values."""

import re
from dataclasses import dataclass

from ..simulate.hpa import Rules, Spec


@dataclass(frozen=True)
class Signal:
    """A trigger of the ScaledObject and its value now."""

    name: str
    target: float
    """Per replica, or of the whole for metrics of type `Value`."""
    value: float | None
    """None: KEDA gets an error."""
    problem: str = ""
    """Why there is no value, or what else is odd about it."""
    failures: int = 0
    """Errors in a row that KEDA counts."""
    note: str = ""
    """What a schedule is doing."""
    activation: float = 0.0


@dataclass(frozen=True)
class Pod:
    """A pod that is not ready."""

    name: str
    state: str
    """In words: `unschedulable`, `starting`, a container's reason such as `CrashLoopBackOff`."""
    seconds: float
    """Age."""
    reason: str = ""
    """What the scheduler or the kubelet says."""
    autoscaler: str = ""
    """What cluster-autoscaler says."""

    @property
    def lacks(self) -> list[str]:
        """Resources that no node has enough of."""
        return sorted({name.rstrip(".,") for name in re.findall(r"Insufficient (\S+)", self.reason)})


@dataclass(frozen=True)
class Pool:
    """The GPUs that the service's pods may run on."""

    name: str
    nodes: int
    gpus: int
    requested: int | None
    """By all pods there; None: not readable."""
    most_free: int | None
    """Free on one node."""


@dataclass(frozen=True)
class Seen:
    """A service as the cluster and Prometheus show it. Times are seconds since the epoch."""

    service: str
    namespace: str
    now: float
    replicas: int
    ready: int
    least: int
    """minReplicaCount."""
    spec: Spec | None
    """The HPA's; None: there is none. Its targets stand in the order of `signals`."""
    signals: tuple[Signal, ...]
    recommendations: tuple[tuple[float, int], ...] = ()
    """What the HPA must have recommended, by time, from the history of the signals."""
    sizes: tuple[tuple[float, int], ...] = ()
    """Replicas since a time, as the HPA's events tell."""
    said: dict[str, str] | None = None
    """Reasons of the HPA's conditions by type."""
    paused: str = ""
    """How; empty: not paused."""
    fallback: int | None = None
    """Replicas that the fallback stands for, while it is active."""
    fallback_after: int | None = None
    """Failures after which it would be."""
    problem: str = ""
    """Why KEDA has not made an HPA, or is not ready."""
    pods: tuple[Pod, ...] = ()
    pool: Pool | None = None
    gpus_per_pod: int = 0
    notes: tuple[str, ...] = ()
    """What could not be read."""


@dataclass(frozen=True)
class SignalAnswer:
    """A signal against its target."""

    signal: Signal
    ratio: float | None
    """Value over target, per replica that there is."""
    asks: int | None
    """Replicas that it alone asks for."""
    tolerated: bool
    """It is off its target by so little that an HPA lets things be."""


@dataclass(frozen=True)
class Direction:
    """A stabilisation window and the policies of one direction."""

    rules: Rules
    holds_until: float | None
    """When the window lets go of what it holds now; None: it holds nothing."""
    changed: int
    """Replicas added or ended within the longest period."""
    free_at: float | None
    """When the policies allow the next step; None: they allow one now."""


@dataclass(frozen=True)
class Explanation:
    """Why a service has the replicas it has."""

    seen: Seen
    kind: str
    """One word for programs, e.g. `steady`, `held`, `at-max`."""
    verdict: str
    """One sentence."""
    answers: tuple[SignalAnswer, ...]
    recommended: int | None = None
    stabilised: int | None = None
    wanted: int | None = None
    up: Direction | None = None
    down: Direction | None = None
