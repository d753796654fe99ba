"""The arithmetic of a HorizontalPodAutoscaler over External metrics, step by step as kube-controller-manager does it.

Source: Kubernetes v1.36.3, pkg/controller/podautoscaler/horizontal.go and replica_calculator.go; defaults from
pkg/apis/autoscaling/v2/defaults.go. Times are seconds on any clock that only goes forward.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

SYNC_SECONDS = 15
"""`--horizontal-pod-autoscaler-sync-period`."""
TOLERANCE = 0.1
"""`--horizontal-pod-autoscaler-tolerance`."""
SCALE_DOWN_WINDOW = 300
"""`--horizontal-pod-autoscaler-downscale-stabilization`, where a behaviour names no window."""


class MetricType(Enum):
    """How a value becomes replicas."""

    AVERAGE_VALUE = "AverageValue"
    """value / target."""
    VALUE = "Value"
    """value / target x ready pods."""


class PolicyType(Enum):
    """What a scaling policy counts in."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(Enum):
    """Which of several policies decides."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True)
class Policy:
    """At most `value` pods, or percent of the replicas at the start of the period, per `period` seconds."""

    type: PolicyType
    value: int
    period: int


@dataclass(frozen=True)
class Rules:
    """One direction of a behaviour."""

    window: float
    """Stabilisation window, seconds."""
    policies: tuple[Policy, ...]
    select: SelectPolicy = SelectPolicy.MAX
    tolerance: float = TOLERANCE


DEFAULT_UP = Rules(0, (Policy(PolicyType.PODS, 4, 15), Policy(PolicyType.PERCENT, 100, 15)))
DEFAULT_DOWN = Rules(SCALE_DOWN_WINDOW, (Policy(PolicyType.PERCENT, 100, 15),))


@dataclass(frozen=True)
class Spec:
    """The HPA. `up` and `down` None: it has no behaviour, and the older, fixed rules apply."""

    min: int
    max: int
    targets: tuple[tuple[float, MetricType], ...]
    """Target of each metric, and its type."""
    up: Rules | None = None
    down: Rules | None = None


@dataclass(frozen=True)
class Decision:
    """Replicas after each step of a turn."""

    recommended: int | None
    """By the metrics; None: they are in error, and nothing changes."""
    stabilised: int
    """By the windows."""
    wanted: int
    """By the policies, the minimum and the maximum."""


@dataclass
class Hpa:
    """A controller's view of one HPA: what it recommended and did. A controller that restarts forgets all of it."""

    spec: Spec
    recommendations: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """Unstabilised recommendations by time."""
    ups: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    downs: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """Replicas added and removed by time."""

    def sync(self, now: float, current: int, ready: int, values: Sequence[float | None]) -> int:
        """Replicas wanted at `now`, given `current` in the spec, `ready` pods and the metrics; None: in error."""
        if not self.recommendations:
            self.recommendations.append((now, current))
        wanted = self._wanted(now, current, ready, values)
        if wanted > current:
            self.ups.append((now, wanted - current))
        elif wanted < current:
            self.downs.append((now, current - wanted))
        return wanted

    def _wanted(self, now: float, current: int, ready: int, values: Sequence[float | None]) -> int:
        if current == 0:  # scaling is off until someone else, here KEDA, starts a replica
            return 0
        if current > self.spec.max:
            return self.spec.max
        if current < self.spec.min:
            return self.spec.min
        return self.decide(now, current, ready, values).wanted

    def decide(self, now: float, current: int, ready: int, values: Sequence[float | None]) -> Decision:
        """One turn step by step, for 1 to `max` current replicas."""
        recommended = self.recommend(current, ready, values)
        if recommended is None:
            return Decision(None, current, current)
        if self.spec.up is None or self.spec.down is None:
            wanted = self._legacy(now, current, recommended)
            return Decision(recommended, wanted, wanted)
        rules = (self.spec.up, self.spec.down)
        stabilised = self._stabilised(now, current, recommended, rules)
        return Decision(recommended, stabilised, self._limited(now, current, stabilised, rules))

    def recommend(self, current: int, ready: int, values: Sequence[float | None]) -> int | None:
        """The largest proposal of all metrics. None: no metric works, or one does not and the rest would scale down."""
        proposals = [
            self.propose(value, target, kind, current, ready)
            for value, (target, kind) in zip(values, self.spec.targets, strict=True)
            if value is not None
        ]
        if not proposals or (len(proposals) < len(values) and max(proposals) < current):
            return None
        return max(proposals)

    def propose(self, value: float, target: float, kind: MetricType, current: int, ready: int) -> int:
        """What one metric alone asks for."""
        # Quantities are compared in thousandths, as the controller does.
        value, target = round(value * 1000), round(target * 1000)
        if kind is MetricType.AVERAGE_VALUE:
            return current if self._tolerated(value / (target * current)) else math.ceil(value / target)
        return current if self._tolerated(value / target) else math.ceil(value / target * ready)

    def _tolerated(self, ratio: float) -> bool:
        down = self.spec.down.tolerance if self.spec.down else TOLERANCE
        up = self.spec.up.tolerance if self.spec.up else TOLERANCE
        return 1 - down <= ratio <= 1 + up

    def _stabilised(self, now: float, current: int, recommended: int, rules: tuple[Rules, Rules]) -> int:
        """Up to the least, and down to the most, that was recommended within the window of that direction."""
        up, down = rules
        least = min([recommended, *self._since(now - up.window)])
        most = max([recommended, *self._since(now - down.window)])
        self._remember(now, recommended, max(up.window, down.window))
        return min(max(current, least), most)

    def _since(self, start: float) -> list[int]:
        return [value for time, value in self.recommendations if time > start]

    def _remember(self, now: float, recommended: int, longest: float) -> None:
        self.recommendations = [item for item in self.recommendations if item[0] > now - longest]
        self.recommendations.append((now, recommended))

    def _limited(self, now: float, current: int, wanted: int, rules: tuple[Rules, Rules]) -> int:
        up, down = rules
        if wanted > current:
            limit = max(current, self._limit(now, current, up, 1))
            return min(wanted, limit, self.spec.max)
        if wanted < current:
            limit = min(current, self._limit(now, current, down, -1))
            return max(wanted, limit, self.spec.min)
        return wanted

    def _limit(self, now: float, current: int, rules: Rules, sign: int) -> int:
        """The farthest that the policies of one direction (`sign` 1: up, -1: down) let the replicas go."""
        if rules.select is SelectPolicy.DISABLED:
            return current
        proposed: list[int] = []
        for policy in rules.policies:
            start = current - _changed(self.ups, now, policy.period) + _changed(self.downs, now, policy.period)
            if policy.type is PolicyType.PODS:
                proposed.append(start + sign * policy.value)
            else:
                replicas = start * (1 + sign * policy.value / 100)
                # Up is rounded up, so that a small percentage still moves; down is cut off.
                proposed.append(math.ceil(replicas) if sign > 0 else int(replicas))
        far = max if sign > 0 else min
        near = min if sign > 0 else max
        return (near if rules.select is SelectPolicy.MIN else far)(proposed)

    def _legacy(self, now: float, current: int, recommended: int) -> int:
        """Without a behaviour: at most double or 4, and down to the most of the last five minutes."""
        stabilised = max([recommended, *self._since(now - SCALE_DOWN_WINDOW)])
        self._remember(now, recommended, SCALE_DOWN_WINDOW)
        most = min(self.spec.max, max(2 * current, 4))
        return min(max(stabilised, self.spec.min), most)


def _changed(events: list[tuple[float, int]], now: float, period: float) -> int:
    return sum(change for time, change in events if time > now - period)
