"""Reads a service from a cluster and its Prometheus into `Seen`."""

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from ..core.cron import Schedule
from ..core.placement import GPU_RESOURCE, POOL_LABEL
from ..core.problems import nearest
from ..simulate.hpa import TOLERANCE, Hpa, MetricType, Policy, PolicyType, Rules, SelectPolicy, Spec
from . import prometheus
from .cluster import ClusterError, Read
from .model import Pod, Pool, Seen, Signal
from .prometheus import Get, PrometheusError, Reading

Doc = Mapping[str, Any]
ANNOTATION = "autoscaling.keda.sh"
FORBIDDEN, NOT_FOUND = 403, 404


class NoServiceError(Exception):
    """There is no service of that name; one line."""


@dataclass(frozen=True)
class History:
    """What a signal was: as measured, or by a schedule at any time."""

    points: dict[int, float]
    schedule: Doc | None = None

    def at(self, time: int) -> float | None:
        return _floor("", self.schedule, time).value if self.schedule else self.points.get(time)


@dataclass
class Source:
    """Where to read."""

    read: Read
    prometheus: Callable[[str], Get | None]
    """Prometheus by the address that KEDA has for it; None where it cannot be reached from here."""
    notes: list[str] = field(default_factory=list[str])

    def optional(self, what: str, path: str, parameters: dict[str, str]) -> Doc | None:
        """A document that an answer can do without."""
        try:
            return self.read(path, parameters)
        except ClusterError as error:
            if error.status != FORBIDDEN:
                raise
            self.notes.append(f"{what} not shown: {error}")
            return None

    def existing(self, path: str) -> Doc | None:
        try:
            return self.read(path, {})
        except ClusterError as error:
            if error.status != NOT_FOUND:
                raise
            return None


def observe(source: Source, service: str, namespace: str, now: float) -> Seen:
    """Raises `NoServiceError`, `ClusterError`."""
    scaled = _scaled_object(source, service, namespace)
    metadata, spec, status = scaled["metadata"], scaled["spec"], scaled.get("status") or {}
    target = spec["scaleTargetRef"]["name"]
    deployment = source.existing(f"/apis/apps/v1/namespaces/{namespace}/deployments/{target}")
    if deployment is None:
        raise NoServiceError(f"the ScaledObject {service} in namespace {namespace} scales {target}, which is missing")
    hpa_name = status.get("hpaName") or f"keda-hpa-{service}"
    hpa = source.existing(f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{hpa_name}")
    conditions = {item["type"]: item for item in status.get("conditions") or []}
    replicas = int(deployment["spec"].get("replicas", 1))
    signals, histories = _signals(source, spec, status, now, _longest_window(hpa))
    hpa_spec = _hpa_spec(hpa, len(signals)) if hpa else None
    sizes = _sizes(source, namespace, hpa_name, replicas, now) if hpa else ()
    fallback = spec.get("fallback") or {}
    active = conditions.get("Fallback", {}).get("status") == "True"
    ready = conditions.get("Ready", {})
    template = deployment["spec"]["template"]["spec"]
    pool, pods = _pool(source, template), _pods(source, namespace, deployment, now)
    return Seen(
        service=service,
        namespace=namespace,
        now=now,
        replicas=replicas,
        ready=int((deployment.get("status") or {}).get("readyReplicas", 0)),
        least=int(spec.get("minReplicaCount", 0)),
        spec=hpa_spec,
        signals=signals,
        recommendations=_recommendations(hpa_spec, histories, sizes, replicas),
        sizes=sizes,
        said={c["type"]: c.get("reason", "") for c in (hpa or {}).get("status", {}).get("conditions") or []},
        paused=_paused(metadata.get("annotations") or {}),
        fallback=_fallback_replicas(fallback, replicas) if active and fallback else None,
        fallback_after=fallback.get("failureThreshold"),
        problem="" if ready.get("status") == "True" else ready.get("message", ""),
        pods=pods,
        pool=pool,
        gpus_per_pod=_gpus(template),
        notes=tuple(source.notes),
    )


def _scaled_object(source: Source, service: str, namespace: str) -> Doc:
    path = f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects"
    try:
        found = {item["metadata"]["name"]: item for item in source.read(path, {})["items"]}
    except ClusterError as error:
        if error.status == NOT_FOUND:
            raise NoServiceError("KEDA is not installed in this cluster, so nothing scales there") from None
        raise
    if service not in found:
        hint = nearest(service, list(found)) or "; no service there is scaled"
        raise NoServiceError(f"no service {service!r} in namespace {namespace}{hint}")
    return found[service]


def _paused(annotations: Mapping[str, str]) -> str:
    keys = [key for key in annotations if key.startswith(f"{ANNOTATION}/paused")]
    return ", ".join(f"{key}: {annotations[key]}" for key in sorted(keys) if annotations[key] != "false")


def _fallback_replicas(fallback: Doc, current: int) -> int:
    """KEDA 2.20, pkg/fallback/fallback.go."""
    stated = int(fallback.get("replicas", 0))
    behaviors = {
        "currentReplicas": current,
        "currentReplicasIfHigher": max(current, stated),
        "currentReplicasIfLower": min(current, stated),
    }
    return behaviors.get(fallback.get("behavior", "static"), stated)


# Signals ------------------------------------------------------------------------------------------------------------


def _signals(
    source: Source, spec: Doc, status: Doc, now: float, window: float
) -> tuple[tuple[Signal, ...], list[History]]:
    """The triggers with their values and histories."""
    signals: list[Signal] = []
    histories: list[History] = []
    for index, trigger in enumerate(spec["triggers"]):
        name, metadata = trigger.get("name") or f"trigger {index}", trigger["metadata"]
        health = (status.get("health") or {}).get(f"s{index}-{trigger['type']}") or {}
        failures = int(health.get("numberOfFailures") or 0)
        if trigger["type"] == "cron":
            signals.append(_floor(name, metadata, now))
            histories.append(History({}, metadata))
        elif trigger["type"] == "prometheus":
            reading, past = _queried(source, metadata, now, window)
            target, activation = float(metadata["threshold"]), float(metadata.get("activationThreshold", 0))
            signals.append(Signal(name, target, reading.value, reading.problem, failures, activation=activation))
            histories.append(History(past))
        else:
            problem = f"triggers of type {trigger['type']} are not read here"
            signals.append(Signal(name, 1.0, None, problem, failures))
            histories.append(History({}))
    return tuple(signals), histories


def _queried(source: Source, metadata: Doc, now: float, window: float) -> tuple[Reading, dict[int, float]]:
    ignore_nulls = metadata.get("ignoreNullValues", "true") == "true"
    try:
        get = source.prometheus(metadata["serverAddress"])
        if get is None:
            raise PrometheusError(f"no Prometheus at {metadata['serverAddress']} from here; name one by --prometheus")
        reading = prometheus.now(get, metadata["query"], ignore_nulls)
        return reading, prometheus.history(get, metadata["query"], now, window)
    except PrometheusError as error:
        if str(error) not in source.notes:
            source.notes.append(str(error))
        return Reading(None, "Prometheus not reached"), {}


def _floor(name: str, metadata: Doc, now: float) -> Signal:
    """KEDA asks for `desiredReplicas` between start and end, and otherwise for none."""
    replicas, zone = float(metadata["desiredReplicas"]), ZoneInfo(metadata["timezone"])
    opens, closes = Schedule.parse(metadata["start"]), Schedule.parse(metadata["end"])
    moment = datetime.datetime.fromtimestamp(now, zone)
    if closes.closes_before_opening(opens, moment):
        return Signal(name, 1.0, replicas, note=f"until {closes.next(moment):%a %H:%M} {metadata['timezone']}")
    return Signal(name, 1.0, 0.0, note=f"from {opens.next(moment):%a %H:%M} {metadata['timezone']}")


# HPA ----------------------------------------------------------------------------------------------------------------

SUFFIXES = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "": 1.0}


def quantity(text: str | int | float) -> float:
    """A Kubernetes quantity as a number."""
    match = re.fullmatch(r"(-?[0-9.]+)([mkMG]?)", str(text))
    if not match:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match[1]) * SUFFIXES[match[2]]


def _hpa_spec(hpa: Doc, signals: int) -> Spec | None:
    spec = hpa["spec"]
    # KEDA names a metric after the trigger's number: s0-prometheus.
    named = {metric["external"]["metric"]["name"]: metric["external"]["target"] for metric in spec.get("metrics") or []}
    numbered = {int(name[1:].partition("-")[0]): target for name, target in named.items()}
    if sorted(numbered) != list(range(signals)):  # KEDA has not brought it up to date yet
        return None
    targets = [numbered[number] for number in range(signals)]
    behavior = spec.get("behavior")
    return Spec(
        min=int(spec.get("minReplicas", 1)),
        max=int(spec["maxReplicas"]),
        targets=tuple(
            (quantity(target.get("averageValue") or target["value"]), MetricType(target["type"])) for target in targets
        ),
        up=_rules(behavior.get("scaleUp") or {}, 0) if behavior else None,
        down=_rules(behavior.get("scaleDown") or {}, 300) if behavior else None,
    )


def _rules(side: Doc, window: int) -> Rules:
    """The API server has filled in what was left out, but for the window of scale-down."""
    return Rules(
        float(side.get("stabilizationWindowSeconds") or (0 if "stabilizationWindowSeconds" in side else window)),
        tuple(Policy(PolicyType(p["type"]), int(p["value"]), int(p["periodSeconds"])) for p in side["policies"]),
        SelectPolicy(side.get("selectPolicy", "Max")),
        quantity(side["tolerance"]) if "tolerance" in side else TOLERANCE,
    )


def _longest_window(hpa: Doc | None) -> float:
    behavior = (hpa or {"spec": {}})["spec"].get("behavior") or {}
    windows = [side.get("stabilizationWindowSeconds") or 0 for side in behavior.values() if side]
    return float(max([300, *windows]))


def _sizes(source: Source, namespace: str, hpa: str, replicas: int, now: float) -> tuple[tuple[float, int], ...]:
    """Replicas by the time of each change; the first entry stands for what was before."""
    answer = source.optional(
        "changes of the past hour",
        f"/api/v1/namespaces/{namespace}/events",
        {"fieldSelector": f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={hpa}"},
    )
    events: list[tuple[float, int]] = []
    for event in (answer or {"items": []})["items"]:
        size = re.match(r"New size: (\d+)", event.get("message", ""))
        if event.get("reason") == "SuccessfulRescale" and size:
            events.append((_time(event.get("lastTimestamp") or event.get("eventTime")), int(size[1])))
    events.sort()
    if not events:
        return ((0.0, replicas),)
    # What was before the first event that is known is not: the same size, so that it counts as no change.
    return ((0.0, events[0][1]), *(event for event in events if event[0] <= now))


def _recommendations(
    spec: Spec | None, histories: Sequence[History], sizes: tuple[tuple[float, int], ...], replicas: int
) -> tuple[tuple[float, int], ...]:
    times = sorted({time for past in histories for time in past.points})
    if spec is None or not times:
        return ()
    hpa, found = Hpa(spec), []
    for time in times:
        then = [size for since, size in sizes if since <= time] or [replicas]
        if then[-1] == 0:
            continue
        recommended = hpa.recommend(then[-1], then[-1], [past.at(time) for past in histories])
        if recommended is not None:
            found.append((float(time), recommended))
    return tuple(found)


# Pods and nodes -----------------------------------------------------------------------------------------------------


def _pods(source: Source, namespace: str, deployment: Doc, now: float) -> tuple[Pod, ...]:
    labels = deployment["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    found = source.read(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector})["items"]
    waiting = [pod for pod in found if _condition(pod, "Ready").get("status") != "True"]
    told = _autoscaler_events(source, namespace) if any(_unschedulable(pod) for pod in waiting) else {}
    return tuple(
        Pod(
            name=pod["metadata"]["name"],
            state=_state(pod),
            seconds=now - _time(pod["metadata"]["creationTimestamp"]),
            reason=_condition(pod, "PodScheduled").get("message", "") if _unschedulable(pod) else "",
            autoscaler=told.get(pod["metadata"]["name"], ""),
        )
        for pod in sorted(waiting, key=lambda pod: pod["metadata"]["creationTimestamp"])
    )


def _condition(pod: Doc, kind: str) -> Doc:
    return next((c for c in pod["status"].get("conditions") or [] if c["type"] == kind), {})


def _unschedulable(pod: Doc) -> bool:
    return _condition(pod, "PodScheduled").get("reason") == "Unschedulable"


def _state(pod: Doc) -> str:
    if _unschedulable(pod):
        return "unschedulable"
    if pod["metadata"].get("deletionTimestamp"):
        return "ending"
    status = pod["status"]
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        reason = (container.get("state", {}).get("waiting") or {}).get("reason", "")
        if reason and reason not in ("PodInitializing", "ContainerCreating"):
            return reason
    return "starting"


def _autoscaler_events(source: Source, namespace: str) -> dict[str, str]:
    answer = source.optional(
        "what the node autoscaler says",
        f"/api/v1/namespaces/{namespace}/events",
        {"fieldSelector": "involvedObject.kind=Pod"},
    )
    events = [
        e for e in (answer or {"items": []})["items"] if e.get("reason") in ("TriggeredScaleUp", "NotTriggerScaleUp")
    ]
    events.sort(key=lambda event: event.get("lastTimestamp") or "")
    return {event["involvedObject"]["name"]: " ".join(event.get("message", "").split()) for event in events}


def _pool(source: Source, template: Doc) -> Pool | None:
    selector: Mapping[str, str] = template.get("nodeSelector") or {}
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    nodes = source.optional("GPUs of the pool", "/api/v1/nodes", {"labelSelector": labels})
    if nodes is None:
        return None
    gpus = {
        node["metadata"]["name"]: int(node["status"].get("allocatable", {}).get(GPU_RESOURCE, 0))
        for node in nodes["items"]
    }
    pods = source.optional(
        "GPUs in use", "/api/v1/pods", {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    )
    name = selector.get(POOL_LABEL, labels or "of all nodes")
    if pods is None:
        return Pool(name, len(gpus), sum(gpus.values()), None, None)
    used = dict.fromkeys(gpus, 0)
    for pod in pods["items"]:
        node = pod["spec"].get("nodeName")
        if node in used:
            used[node] += _gpus(pod["spec"])
    free = max((gpus[node] - used[node] for node in gpus), default=0)
    return Pool(name, len(gpus), sum(gpus.values()), sum(used.values()), free)


def _gpus(spec: Doc) -> int:
    """GPUs of a pod: they are limits of its containers, and requests follow."""
    return sum(
        int(container.get("resources", {}).get("limits", {}).get(GPU_RESOURCE, 0)) for container in spec["containers"]
    )


def _time(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
