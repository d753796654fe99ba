"""What the page shows of a service at one moment, as one JSON document."""

import math
import re
from datetime import datetime
from typing import Any

from eks_llm.observe import metrics

from ..api import Manifest
from ..telemetry import Points, Service, Telemetry, event_time, queries

POINTS = 180
"""Most points of a curve; more are narrower than a pixel on small screens."""
LEAST_STEP = 5.0
"""Seconds; half of a scrape interval."""
TOLERANCE = 0.1
"""Share by which an HPA lets a signal miss its target before it acts. Source: Kubernetes, `--horizontal-pod-autoscaler-
tolerance`."""
MOST_EVENTS = 40


def snapshot(
    telemetry: Telemetry,
    samples: dict[str, list[tuple[float, int, int]]],
    wanted: str | None,
    minutes: float,
    now: float,
) -> dict[str, Any]:
    """The document. `samples`: by service, (time, desired, ready) as they were read from the API server.

    Raises what the API server's client raises. Without Prometheus, curves are empty and `problems` says so.
    """
    now = round(now, 3)  # as Prometheus writes times
    services = telemetry.services()
    service = next((service for service in services if service.id == wanted), services[0] if services else None)
    document: dict[str, Any] = {
        "now": now,
        "minutes": minutes,
        "problems": [],
        "services": [service.id for service in services],
        "service": None,
    }
    if service is None:
        return document
    start, step = now - 60 * minutes, max(LEAST_STEP, 60 * minutes / POINTS)
    try:
        series = {name: telemetry.history(query, start, now, step) for name, query in queries(service).items()}
        earlier = {name: telemetry.history(query, start, now, step) for name, query in replica_queries(service).items()}
    except OSError as error:
        document["problems"].append(f"Prometheus does not answer ({error}), so there are no curves but the replicas'")
        series, earlier = {}, {}
    triggers = service.scaling.triggers if service.scaling else []
    series |= replicas(earlier, samples.get(service.id, []), start)
    return document | {
        "service": {
            "id": service.id,
            "name": service.name,
            "namespace": service.namespace,
            "runtime": "Triton + vLLM" if service.triton else "vLLM OpenAI server",
            "desired": service.desired,
            "ready": service.ready,
            "asked": asked(service, series),
            "scaling": None
            if service.scaling is None
            else {
                "least": service.scaling.least,
                "most": service.scaling.most,
                "thresholds": service.scaling.thresholds,
                "window": service.scaling.window,
            },
        },
        "step": step,
        "series": series,
        "events": [event(item, triggers) for item in telemetry.events(service)[:MOST_EVENTS]],
    }


def replica_queries(service: Service) -> dict[str, str]:
    """PromQL of replicas, as kube-state-metrics counts them."""
    deployment = f'namespace="{service.namespace}",deployment="{service.name}"'
    return {
        "desired": f"max({metrics.HPA_DESIRED}{{{metrics.hpa_selector(service.namespace, service.name)}}})",
        "ready": f"max({metrics.DEPLOYMENT_READY}{{{deployment}}})",
    }


def replicas(earlier: dict[str, Points], samples: list[tuple[float, int, int]], start: float) -> dict[str, Points]:
    """Curves of the replicas: samples of the API server, and before the first of them what Prometheus knows.

    Prometheus alone would show them up to half a minute late.
    """
    samples = [sample for sample in samples if sample[0] >= start]
    begin = samples[0][0] if samples else math.inf
    found: dict[str, Points] = {}
    for index, name in enumerate(("desired", "ready"), 1):
        before = [point for point in earlier.get(name, []) if point[0] < begin]
        found[name] = before + [(sample[0], float(sample[index])) for sample in samples]
    return found


def asked(service: Service, series: dict[str, Points]) -> int | None:
    """Replicas that the requests in flight ask for, within no bounds, as an HPA counts them; None: not known."""
    threshold = service.scaling.thresholds.get("demand") if service.scaling else None
    running, waiting = series.get("running"), series.get("waiting")
    if not threshold or not running or not waiting:
        return None
    demand = running[-1][1] + waiting[-1][1]
    if service.desired and abs(demand / (threshold * service.desired) - 1) <= TOLERANCE:
        return service.desired
    return math.ceil(demand / threshold)


def event(item: Manifest, triggers: list[str]) -> dict[str, Any]:
    """An event as the page shows it."""
    about = item["involvedObject"]
    return {
        "time": datetime.fromisoformat(event_time(item)).timestamp(),
        "warning": item.get("type") == "Warning",
        "reason": item.get("reason", ""),
        "object": f"{about.get('kind', '')} {about.get('name', '')}",
        "message": plain(item.get("message", ""), triggers),
        "count": item.get("count") or 1,
    }


def plain(message: str, triggers: list[str]) -> str:
    """The message with triggers by their names.

    An HPA writes `external metric s0-prometheus(&LabelSelector{…})` for the first trigger of a ScaledObject.
    """

    def name(match: re.Match[str]) -> str:
        index = int(match[1])
        return triggers[index] if index < len(triggers) else match[0]

    return re.sub(r"\bs(\d+)-[\w-]+\(&LabelSelector\{.*?\},\}\)", name, message)
