"""How a service scales: a KEDA ScaledObject on the engine's own demand, within the pool's GPUs.

Signals are *sums* over pods with a target per pod (`AverageValue`), so desired = ceil(sum / target), and the largest
wins: requests that run or wait, KV-cache use, and, where a front door counts them, requests that arrive. A ratio as
`Value` would multiply by ready pods only, and so misjudge a service whose pods take minutes to start; durations that
Triton reports cover dispatch alone. docs/autoscaling.md shows what each rule is worth.
"""

import datetime
import math
from collections.abc import Iterator
from typing import Any, NotRequired, TypedDict
from zoneinfo import ZoneInfo

import pulumi
from pydantic import Field, ValidationInfo, field_validator, model_validator

from ..core.cron import Schedule, time_zones
from ..core.faults import Fault
from ..core.model import Model
from ..core.problems import nearest
from ..core.promql import one_element_problem
from ..core.quantities import Duration
from ..observe.metrics import demand, kv_percent
from .workload import Workload

# Arguments ----------------------------------------------------------------------------------------------------------


class ReplicaCapacityArgs(TypedDict):
    requests_per_second: float
    """Requests per second that one replica answers within its SLO."""
    in_flight: int
    """Requests in flight at that rate."""


class FrontDoorArgs(TypedDict):
    query: str
    """PromQL for requests per second that reach the front door, refused ones included, as one element without labels,
    e.g. `sum(rate(envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="llama"}[1m]))`."""
    requests_per_replica: NotRequired[float]
    """Requests per second that one replica is meant to get. Default: 80 % of `capacity.requests_per_second`."""


class FloorArgs(TypedDict):
    start: str
    """Begin, a cron expression `minute hour day month weekday`, e.g. `30 7 * * 1-5`. Take off a pod's start."""
    end: str
    """End, likewise."""
    timezone: str
    """Time zone of both, e.g. `Europe/Berlin`."""
    replicas: int
    """Fewest replicas in between, to the 10 % within which an HPA lets things be."""


class ScalingArgs(TypedDict):
    min: NotRequired[int]
    """Fewest replicas. 0 only with `front_door`: the other signals come from running pods, so nothing would wake the
    service. Default 1."""
    max: NotRequired[int]
    """Most replicas. Their GPUs must fit into the pool at its largest. Default: `min`, which switches scaling off."""
    capacity: NotRequired[ReplicaCapacityArgs]
    """What one replica carries within its SLO, as measured or as `eks-llm simulate` estimates it. Gives the defaults of
    `in_flight_per_replica` and `front_door.requests_per_replica`. Default: not known."""
    in_flight_per_replica: NotRequired[int]
    """Requests, running or waiting, that one replica is meant to carry; at most the engine's `max_num_seqs`. Default:
    70 % of `capacity.in_flight`; else, with an `slo`, 70 % of what keeps it by estimate; else three quarters of
    `max_num_seqs`. A plan shows the arithmetic."""
    kv_cache_target: NotRequired[float]
    """Share of KV-cache blocks in use that one replica is meant to reach, between 0 and 1. Default 0.8."""
    front_door: NotRequired[FrontDoorArgs]
    """Requests counted in front of the service: sees demand that full pods refuse, and wakes a service at 0. Default:
    the pods' own signals alone."""
    floors: NotRequired[list[FloorArgs]]
    """Higher minimums on a schedule: business hours, or the time of a Capacity Block, whose pool should see the last of
    them end before it. Default: none."""
    scale_up_pods: NotRequired[int]
    """Replicas added per start time of a pod, at most: a backlog grows while pods load, and must not ask for the
    whole pool. Default: 2, or as many as there are (with `front_door` twice as many)."""
    scale_down_window: NotRequired[str]
    """How long demand must have been low before a replica ends, e.g. `10m`. At least the start time of a pod. Default
    10m; with `front_door`, whose signal does not swing, a fifth more than a pod's start."""


LEAST_RATE, MOST_RATE = 0.001, 1e6
"""Requests per second of a replica: KEDA counts in thousandths, and no server answers a million."""


class ReplicaCapacity(Model):
    requests_per_second: float = Field(ge=LEAST_RATE, le=MOST_RATE)
    in_flight: int = Field(ge=1)


class FrontDoor(Model):
    query: str
    requests_per_replica: float | None = Field(default=None, ge=LEAST_RATE, le=MOST_RATE)

    @field_validator("query")
    @classmethod
    def _one_element(cls, value: str) -> str:
        if problem := one_element_problem(value):
            raise ValueError(problem)
        return value


class Floor(Model):
    start: str
    end: str
    timezone: str
    replicas: int = Field(ge=1)

    @field_validator("start", "end")
    @classmethod
    def _five_fields(cls, value: str) -> str:
        Schedule.parse(value)
        return value

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        if value not in time_zones():
            hint = nearest(value, sorted(time_zones()))
            text = "not a time zone of the IANA database, such as Europe/Berlin or UTC"
            raise ValueError(f"{text}{hint if hint.startswith(';') else ''}")
        return value

    @field_validator("end")
    @classmethod
    def _ends(cls, value: str, info: ValidationInfo) -> str:
        if value == info.data.get("start"):
            raise ValueError("the same as start, which KEDA refuses")
        return value

    def holds(self, moment: datetime.datetime) -> bool:
        """Whether it is in force at a moment (with a time zone)."""
        opens, closes = Schedule.parse(self.start), Schedule.parse(self.end)
        return closes.closes_before_opening(opens, moment.astimezone(ZoneInfo(self.timezone)))


class Scaling(Model):
    min: int = Field(default=1, ge=0)
    max: int = 0
    capacity: ReplicaCapacity | None = Field(default=None, validate_default=False)
    in_flight_per_replica: int | None = Field(default=None, ge=1)
    kv_cache_target: float = Field(default=0.8, gt=0, lt=1)
    front_door: FrontDoor | None = Field(default=None, validate_default=False)
    floors: list[Floor] = []
    scale_up_pods: int | None = Field(default=None, ge=1)
    scale_down_window: Duration | None = None

    @model_validator(mode="before")
    @classmethod
    def _max_is_min_by_default(cls, values: Any) -> Any:
        return {"max": values.get("min", 1), **values} if isinstance(values, dict) else values

    @field_validator("max")
    @classmethod
    def _ordered(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("min", value)  # absent if min itself is wrong
        if value < least:
            raise ValueError(f"less than min {least}")
        return value

    @field_validator("floors")
    @classmethod
    def _within(cls, value: list[Floor], info: ValidationInfo) -> list[Floor]:
        for floor in value:
            if floor.replicas > (most := info.data.get("max", floor.replicas)):
                raise ValueError(f"{floor.replicas} replicas are more than max {most}")
        return value

    @field_validator("scale_down_window")
    @classmethod
    def _possible(cls, value: Duration | None) -> Duration | None:
        if value is not None and value > LONGEST_WINDOW:
            raise ValueError(f"an HPA looks back {LONGEST_WINDOW // 60}m at most")
        return value

    @model_validator(mode="after")
    def _complete(self) -> "Scaling":
        if self.min == 0 and not self.front_door:
            raise Fault(
                "min",
                "0: at least 1 without {key.front_door}: the metrics that scale a service come from its pods, so 0 "
                "would never wake up",
            )
        if self.max == 0:
            raise Fault("max", "0: at least 1")
        if self.front_door and not self.requests_per_replica:
            text = "required without capacity, the rate that a replica can answer"
            raise Fault("front_door.requests_per_replica", text)
        return self

    @property
    def requests_per_replica(self) -> float:
        """Requests per second that scaling aims at by the front door; 0: not known."""
        if self.front_door and self.front_door.requests_per_replica:
            return self.front_door.requests_per_replica
        return round(self.capacity.requests_per_second * RATE_SHARE, 3) if self.capacity else 0.0

    def in_flight(self, max_num_seqs: int) -> int:
        """Requests per replica that scaling aims at, for an engine that runs so many."""
        if self.in_flight_per_replica:
            return self.in_flight_per_replica
        if self.capacity:
            return max(1, int(self.capacity.in_flight * IN_FLIGHT_SHARE))
        return max(1, max_num_seqs * 3 // 4)


# Builders -----------------------------------------------------------------------------------------------------------

POLL_SECONDS = 15
BLIND_SECONDS = 60
"""How long a signal may be missing before the fallback replaces it."""
SCALE_UP_WINDOW = 30
SCALE_DOWN_WINDOW = 600
SCALE_DOWN_PERIOD = 120
STEADY_WINDOW_STARTS, STEADY_LEAST_WINDOW, STEADY_PERIOD = 1.2, 120, 60
"""The scale-down with a front door, whose signal does not swing as a queue fills and empties: window in starts of a pod
and in seconds, and seconds per pod."""
TOLERANCE = 0.1
"""How far above or below its target a signal may be without consequence: kube-controller-manager's default."""
LONGEST_PERIOD, LONGEST_WINDOW = 1800, 3600
"""Limits of the HPA's behaviour, seconds. Source: Kubernetes autoscaling/v2."""
RATE_SHARE = 0.8
"""Of a replica's capacity in requests per second. An HPA tolerates 10 % above, and a pod's start lies ahead."""
IN_FLIGHT_SHARE = 0.7
"""Of a replica's capacity in requests in flight, which rise faster than the rate: 70 % of them are 88 % of the rate of
Qwen3-32B on two H100. docs/autoscaling.md compares shares."""


def scaled_object(
    work: Workload, scaling: Scaling, in_flight: int, prometheus_url: pulumi.Input[str]
) -> dict[str, Any]:
    """The ScaledObject. Pulumi waits until KEDA calls it ready (from KEDA 2.20.2 on that condition is stable)."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": work.metadata(annotations={"pulumi.com/waitFor": "condition=Ready"}),
        "spec": spec(
            work.namespace,
            work.name,
            scaling,
            in_flight,
            pod_start=work.start.for_scaling,
            prometheus_url=prometheus_url,
        ),
    }


def spec(
    namespace: str,
    name: str,
    scaling: Scaling,
    in_flight: int,
    *,
    pod_start: float,
    prometheus_url: pulumi.Input[str],
) -> dict[str, Any]:
    """The policy in KEDA's terms. `eks-llm simulate` runs exactly this."""
    kv_target = round(scaling.kv_cache_target * 100, 3)
    triggers = [
        _trigger("demand", demand(namespace, name), f"{in_flight}", prometheus_url),
        _trigger("kv-cache", kv_percent(namespace, name), f"{kv_target:g}", prometheus_url),
    ]
    if scaling.front_door:
        triggers.append(
            _trigger("front-door", scaling.front_door.query, f"{scaling.requests_per_replica:g}", prometheus_url)
        )
    triggers += [_floor(f"floor-{number}", floor) for number, floor in enumerate(scaling.floors, 1)]
    # KEDA counts a failure per poll and per query of the HPA, which asks every 15 s too.
    failures = round(BLIND_SECONDS * (1 / POLL_SECONDS + 1 / 15))
    behaviour = behavior(scaling, pod_start)
    zero = {"cooldownPeriod": behaviour["scaleDown"]["stabilizationWindowSeconds"]} if scaling.min == 0 else {}
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicaCount": scaling.min,
        "maxReplicaCount": scaling.max,
        "pollingInterval": POLL_SECONDS,
        **zero,
        # Blind, it keeps what runs and never scales down.
        "fallback": {
            "failureThreshold": failures,
            "replicas": max(1, scaling.min),
            "behavior": "currentReplicasIfHigher",
        },
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behaviour}},
        "triggers": triggers,
    }


def behavior(scaling: Scaling, pod_start: float) -> dict[str, Any]:
    """Up in waves, each as long as a pod takes to start; down one by one, after the last wave has had its effect."""
    wave = round(min(LONGEST_PERIOD, max(SCALE_UP_WINDOW, pod_start)))
    steps: list[tuple[str, int]] = [("Pods", scaling.scale_up_pods or 2)]
    if not scaling.scale_up_pods:
        steps.append(("Percent", 200 if scaling.front_door else 100))
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": SCALE_UP_WINDOW,
            "policies": [{"type": kind, "value": value, "periodSeconds": wave} for kind, value in steps],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": round(scale_down_window(scaling, pod_start)),
            "policies": [
                {
                    "type": "Pods",
                    "value": 1,
                    "periodSeconds": STEADY_PERIOD if scaling.front_door else SCALE_DOWN_PERIOD,
                }
            ],
        },
    }


def in_words(behavior: dict[str, Any]) -> tuple[str, str]:
    """How fast an HPA of this behaviour adds and ends replicas."""

    def steps(side: dict[str, Any], sign: str) -> str:
        each = [f"{sign}{step['value']}{' %' if step['type'] == 'Percent' else ''}" for step in side["policies"]]
        return f"{' or '.join(each)} per {side['policies'][0]['periodSeconds']} s"

    up, down = behavior["scaleUp"], behavior["scaleDown"]
    return (
        f"{steps(up, '+')} after {up['stabilizationWindowSeconds']} s",
        f"{steps(down, '-')} after {down['stabilizationWindowSeconds']} s",
    )


def scale_down_window(scaling: Scaling, pod_start: float) -> float:
    """Seconds."""
    if scaling.scale_down_window is not None:
        return float(scaling.scale_down_window)
    if scaling.front_door:
        return min(LONGEST_WINDOW, max(STEADY_LEAST_WINDOW, STEADY_WINDOW_STARTS * pod_start))
    return min(LONGEST_WINDOW, max(SCALE_DOWN_WINDOW, pod_start))


def warnings(
    scaling: Scaling, pod_start: float, in_flight: int, most_in_flight: float = math.inf
) -> Iterator[tuple[str, str]]:
    """What will work, but badly or never: the key, and the arithmetic.

    `pod_start`: seconds, a new node's included where one may be needed. `in_flight`: the target per replica;
    `most_in_flight`: what a replica can hold, running and waiting.
    """
    window = scale_down_window(scaling, pod_start)
    if window < pod_start:
        reason = (
            f": a replica would end because demand was low for {window:g} s, and be missing for {pod_start:g} s when "
            "demand returns"
        )
        if window == LONGEST_WINDOW:
            reason = f", and an HPA looks back {LONGEST_WINDOW} s at most{reason}"
        yield (
            "scaleDownWindow",
            f"{window:g} s is shorter than the {pod_start:g} s that a pod takes to start{reason}",
        )
    if pod_start > LONGEST_PERIOD and scaling.max > scaling.min:
        yield (
            "scaleUpPods",
            f"counted per {LONGEST_PERIOD} s, the longest period of an HPA, though a pod takes {pod_start:g} s to "
            "start: more may be asked for before the first of them helps",
        )
    if scaling.min == 0:
        yield (
            "min",
            f"0: the first request after a pause waits about {POLL_SECONDS + pod_start:g} s ({POLL_SECONDS} s until "
            f"KEDA looks, {pod_start:g} s until a pod is ready), so the front door must hold requests that long",
        )
    yield from _never_met(scaling, in_flight, most_in_flight)
    for number, floor in enumerate(scaling.floors):
        if floor.replicas <= scaling.min:
            yield (
                f"floors[{number}].replicas",
                f"{floor.replicas} is not above min {scaling.min}, so it changes nothing",
            )


def _never_met(scaling: Scaling, in_flight: int, most_in_flight: float) -> Iterator[tuple[str, str]]:
    """Thresholds that replicas cannot pass, so that no other one is ever asked for."""
    if scaling.max == scaling.min:
        return
    ratio = 1 / scaling.kv_cache_target
    if ratio <= 1 + TOLERANCE:
        yield (
            "kvCacheTarget",
            f"{scaling.kv_cache_target:g} is never passed: full caches are 1 / {scaling.kv_cache_target:g} = "
            f"{ratio:.2f} of it, and an HPA lets {1 + TOLERANCE:g} be; use 0.9 or less",
        )
    if in_flight * (1 + TOLERANCE) >= most_in_flight:
        yield (
            "inFlightPerReplica",
            f"{in_flight} is never passed: by estimate a replica holds {most_in_flight:g} requests at most, running "
            f"and waiting, and an HPA lets {1 + TOLERANCE:g} x {in_flight} = {in_flight * (1 + TOLERANCE):g} be",
        )
    capacity = scaling.capacity
    if scaling.front_door and capacity and scaling.requests_per_replica > capacity.requests_per_second:
        yield (
            "frontDoor.requestsPerReplica",
            f"{scaling.requests_per_replica:g} is more than the {capacity.requests_per_second:g} requests/s that a "
            f"replica answers (capacity): it is full before another is asked for; "
            f"{capacity.requests_per_second * RATE_SHARE:.3g} would be {RATE_SHARE:.0%}",
        )


def block_warnings(scaling: Scaling, stops: datetime.datetime, drain: float) -> Iterator[tuple[str, str]]:
    """What still wants replicas on a Capacity Block when its nodes go away at `stops`: the key, and when to end it.

    `drain`: seconds that a pod takes to end.
    """
    last = stops - datetime.timedelta(seconds=drain)
    if scaling.min > 0:
        yield (
            "min",
            f"{scaling.min} is still asked for at {_moment(stops)}, when EKS takes the Capacity Block's nodes away: "
            "those replicas end then, and wait in vain for others; use min 0 with a frontDoor and a floor that ends "
            "before, or remove the service in time",
        )
    for number, floor in enumerate(scaling.floors):
        if floor.holds(stops) or floor.holds(last):
            end = last.astimezone(ZoneInfo(floor.timezone))
            yield (
                f"floors[{number}].end",
                f"{floor.replicas} replicas are still held at {_moment(stops)}, when EKS takes the Capacity Block's "
                f"nodes away, and a pod takes {drain:g} s to end: end it by {end:%Y-%m-%d %H:%M} {floor.timezone}, "
                f"e.g. '{end.minute} {end.hour} {end.day} {end.month} *'",
            )


def _moment(time: datetime.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M %Z}".strip()


def _trigger(name: str, query: str, threshold: str, prometheus_url: pulumi.Input[str]) -> dict[str, Any]:
    return {
        "type": "prometheus",
        "name": name,
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": prometheus_url,
            "query": query,
            "threshold": threshold,
            # An empty answer is an error, not a zero: a lost scrape must not scale the service down.
            "ignoreNullValues": "false",
        },
    }


def _floor(name: str, floor: Floor) -> dict[str, Any]:
    return {
        "type": "cron",
        "name": name,
        "metricType": "AverageValue",
        "metadata": {
            "timezone": floor.timezone,
            "start": floor.start,
            "end": floor.end,
            "desiredReplicas": f"{floor.replicas}",
        },
    }
