"""A KEDA ScaledObject as the controller acts on it: triggers become metrics of an HPA, and KEDA itself owns 0 and 1.

Source: KEDA v2.20.2, pkg/scalers/{prometheus,cron}_scaler.go, pkg/scaling/executor/scale_scaledobjects.go,
pkg/fallback/fallback.go and controllers/keda/hpa.go.
"""

import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..core import cron
from .hpa import DEFAULT_DOWN, DEFAULT_UP, Hpa, MetricType, Policy, PolicyType, Rules, SelectPolicy, Spec
from .promql import Compiled, QueryError, Store, compile_query, evaluate
from .scaled_object import checked, without_nulls

POLL_SECONDS, COOLDOWN_SECONDS, MAX_REPLICAS = 30, 300, 100
"""KEDA's defaults of pollingInterval, cooldownPeriod and maxReplicaCount."""


class PolicyError(ValueError):
    """A ScaledObject that cannot be simulated; the message names the key."""


@dataclass
class Trigger:
    """One trigger. `read` gives its value, None for an error."""

    name: str
    read: Callable[[Store, float], float | None]
    target: float
    type: MetricType = MetricType.AVERAGE_VALUE
    activation: float = 0.0
    failures: int = 0
    asked: float = -math.inf
    value: float | None = None
    """The answer at the time `asked`: KEDA and the HPA often ask at the same moment."""


@dataclass(frozen=True)
class Fallback:
    """What replaces a signal that has failed more often than `failures` times."""

    failures: int
    replicas: int
    behavior: str = "static"

    def replicas_for(self, current: int) -> int:
        if self.behavior == "currentReplicas":
            return current
        if self.behavior == "currentReplicasIfHigher":
            return max(current, self.replicas)
        if self.behavior == "currentReplicasIfLower":
            return min(current, self.replicas)
        return self.replicas


@dataclass
class Autoscaler:
    """KEDA and its HPA. `poll` and `sync` are called at their intervals and return the replicas wanted."""

    triggers: list[Trigger]
    min: int
    max: int
    up: Rules | None = None
    down: Rules | None = None
    polling: float = POLL_SECONDS
    cooldown: float = COOLDOWN_SECONDS
    fallback: Fallback | None = None
    hpa: Hpa = field(init=False)
    last_active: float = field(default=-math.inf, init=False)

    def __post_init__(self) -> None:
        targets = tuple((trigger.target, trigger.type) for trigger in self.triggers)
        self.hpa = Hpa(Spec(max(1, self.min), self.max, targets, self.up, self.down))

    def sync(self, now: float, store: Store, current: int, ready: int) -> int:
        """The HPA's turn, every 15 s."""
        if current == 0:
            return 0
        values = [self._value(trigger, now, store, current, ready) for trigger in self.triggers]
        return self.hpa.sync(now, current, ready, values)

    def poll(self, now: float, store: Store, current: int) -> int:
        """KEDA's own turn, every `polling` seconds: it wakes a service at zero, and puts an idle one to sleep."""
        values = [self._read(trigger, now, store) for trigger in self.triggers]
        active = any(
            value is not None and value > trigger.activation
            for value, trigger in zip(values, self.triggers, strict=True)
        )
        failed = any(value is None for value in values)
        if active:
            self.last_active = now
            return max(1, self.min) if current == 0 else current
        if failed and (self.fallback is None or self.fallback.replicas != 0):
            return current
        if self.min == 0 and current > 0 and now - self.last_active > self.cooldown:
            return 0
        return current

    def _read(self, trigger: Trigger, now: float, store: Store) -> float | None:
        if trigger.asked != now:
            trigger.asked, trigger.value = now, trigger.read(store, now)
        trigger.failures = trigger.failures + 1 if trigger.value is None else 0
        return trigger.value

    def _value(self, trigger: Trigger, now: float, store: Store, current: int, ready: int) -> float | None:
        value = self._read(trigger, now, store)
        if value is not None or self.fallback is None or trigger.failures <= self.fallback.failures:
            return value
        replicas = self.fallback.replicas_for(current)
        if trigger.type is MetricType.VALUE:
            return trigger.target * replicas / ready if ready else None
        return trigger.target * replicas


# ScaledObjects ------------------------------------------------------------------------------------------------------


def autoscaler(manifest: Mapping[str, Any], start: datetime.datetime) -> Autoscaler:
    """The autoscaler of a ScaledObject. `start` is what second 0 of the trace is on the clock, for cron triggers.

    Raises `PolicyError` for what cannot be simulated.
    """
    if manifest.get("kind") != "ScaledObject":
        raise PolicyError(f"kind: {manifest.get('kind')!r} is not ScaledObject")
    manifest = without_nulls(dict(manifest))
    if found := checked(manifest):
        raise PolicyError("\n".join(map(str, found)))
    spec: Mapping[str, Any] = manifest.get("spec") or {}
    advanced = spec.get("advanced") or {}
    if advanced.get("scalingModifiers"):
        raise PolicyError("spec.advanced.scalingModifiers: formulas are not simulated")
    if spec.get("idleReplicaCount") is not None:
        raise PolicyError("spec.idleReplicaCount: not simulated; use minReplicaCount 0")
    triggers = [
        _trigger(f"spec.triggers[{index}]", trigger, start) for index, trigger in enumerate(spec.get("triggers") or [])
    ]
    if not triggers:
        raise PolicyError("spec.triggers: none, so nothing would scale")
    least, most = spec.get("minReplicaCount", 0), spec.get("maxReplicaCount", MAX_REPLICAS)
    if not 0 <= least <= most or most < 1:
        raise PolicyError(f"spec.maxReplicaCount: {most} with minReplicaCount {least}")
    behavior = (advanced.get("horizontalPodAutoscalerConfig") or {}).get("behavior")
    up, down = (None, None) if behavior is None else _rules(behavior)
    fallback = spec.get("fallback")
    return Autoscaler(
        triggers,
        least,
        most,
        up,
        down,
        polling=spec.get("pollingInterval", POLL_SECONDS),
        cooldown=spec.get("cooldownPeriod", COOLDOWN_SECONDS),
        fallback=fallback
        and Fallback(fallback["failureThreshold"], fallback["replicas"], fallback.get("behavior", "static")),
    )


def _rules(behavior: Mapping[str, Any]) -> tuple[Rules, Rules]:
    up, down = (
        _direction(f"spec.advanced.horizontalPodAutoscalerConfig.behavior.{key}", behavior.get(key) or {}, default)
        for key, default in (("scaleUp", DEFAULT_UP), ("scaleDown", DEFAULT_DOWN))
    )
    return up, down


def _direction(path: str, given: Mapping[str, Any], default: Rules) -> Rules:
    window = given.get("stabilizationWindowSeconds", default.window)
    if not 0 <= window <= 3600:
        raise PolicyError(f"{path}.stabilizationWindowSeconds: {window} is not within 0 and 3600")
    policies = default.policies
    if given.get("policies") is not None:
        policies = tuple(
            Policy(PolicyType(item["type"]), item["value"], item["periodSeconds"]) for item in given["policies"]
        )
    for policy in policies:
        if not 0 < policy.period <= 1800:
            raise PolicyError(f"{path}.policies: periodSeconds {policy.period} is not within 1 and 1800")
    return Rules(
        window,
        policies,
        SelectPolicy(given.get("selectPolicy", "Max")),
        float(given.get("tolerance", default.tolerance)),
    )


def _trigger(path: str, trigger: Mapping[str, Any], start: datetime.datetime) -> Trigger:
    metadata: Mapping[str, str] = trigger.get("metadata") or {}
    name = trigger.get("name") or path
    if trigger.get("type") == "cron":
        return _cron(path, name, metadata, start)
    if trigger.get("type") != "prometheus":
        raise PolicyError(f"{path}.type: {trigger.get('type')!r} is not simulated; prometheus and cron are")
    kind = MetricType(trigger.get("metricType", "AverageValue"))
    try:
        query = compile_query(metadata["query"])
    except KeyError:
        raise PolicyError(f"{path}.metadata.query: missing") from None
    except QueryError as error:
        raise PolicyError(f"{path}.metadata.query: {error}") from None
    try:
        target = float(metadata["threshold"])
        activation = float(metadata.get("activationThreshold", 0))
    except (KeyError, ValueError):
        raise PolicyError(f"{path}.metadata.threshold: {metadata.get('threshold')!r} is not a number") from None
    if target <= 0:
        raise PolicyError(f"{path}.metadata.threshold: {target:g} is not above 0")
    return Trigger(name, _query(query, metadata.get("ignoreNullValues", "true") == "true"), target, kind, activation)


def _query(query: Compiled, ignore_nulls: bool) -> Callable[[Store, float], float | None]:
    # KEDA asks for the state at the last full second, so that what was scraped since is not seen.
    return lambda store, now: evaluate(query, store, math.floor(now), ignore_nulls)


def _cron(path: str, name: str, metadata: Mapping[str, str], start: datetime.datetime) -> Trigger:
    try:
        zone = ZoneInfo(metadata["timezone"])
        opens, closes = cron.Schedule.parse(metadata["start"]), cron.Schedule.parse(metadata["end"])
        replicas = int(metadata["desiredReplicas"])
    except (KeyError, ValueError, ZoneInfoNotFoundError) as error:
        raise PolicyError(f"{path}.metadata: {error}") from None

    def read(_: Store, now: float) -> float:
        moment = (start + datetime.timedelta(seconds=now)).astimezone(zone)
        return float(replicas) if closes.closes_before_opening(opens, moment) else 0.0

    return Trigger(name, read, 1.0)
