"""What a policy will do badly to a given service, known without any traffic, with the arithmetic."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..sizing.replica import Capacity
from ..sizing.replica import capacity as replica_capacity
from .hpa import TOLERANCE, PolicyType, SelectPolicy
from .keda import Autoscaler
from .simulate import Service


def capacity(service: Service) -> Capacity:
    """What one replica of the service carries within its SLO."""
    return replica_capacity(service.replica, service.slo.ttft, service.slo.tpot)


def advice(manifest: Mapping[str, Any], scaler: Autoscaler, service: Service) -> Iterator[str]:
    """Sentences about a policy; none for one that suits the service."""
    start = service.pod_start
    if scaler.down and scaler.down.window < start and scaler.down.select is not SelectPolicy.DISABLED:
        yield (
            f"scale-down window {scaler.down.window:g} s is shorter than a pod's start of {start:g} s: what ends "
            f"because demand was low for {scaler.down.window:g} s is missed for {start:g} s when it returns"
        )
    yield from _runaway(scaler, start)
    for trigger in manifest["spec"]["triggers"]:
        yield from _trigger(trigger, service)


def _runaway(scaler: Autoscaler, start: float) -> Iterator[str]:
    for policy in scaler.up.policies if scaler.up else ():
        waves = int(start // policy.period)
        if policy.type is PolicyType.PERCENT and waves > 1:
            endless = waves * math.log1p(policy.value / 100) > 100  # beyond all maxima, and in the end all floats
            grown = scaler.max if endless else min(scaler.max, scaler.hpa.spec.min * (1 + policy.value / 100) ** waves)
            if grown >= min(scaler.max, scaler.hpa.spec.min * 4):
                yield (
                    f"scale-up of {policy.value} % per {policy.period} s takes {waves} steps while the first pod "
                    f"starts ({start:g} s): {scaler.hpa.spec.min} replicas may become {grown:.0f} before any helps"
                )


def _trigger(trigger: Mapping[str, Any], service: Service) -> Iterator[str]:
    if trigger["type"] != "prometheus":
        return
    metadata, name = trigger["metadata"], trigger.get("name", "trigger")
    threshold, query = float(metadata["threshold"]), "".join(metadata["query"].split())
    if metadata.get("ignoreNullValues", "true") == "true":
        yield f'{name}: without ignoreNullValues "false" a lost scrape counts as 0, and scales down'
    if trigger.get("metricType", "AverageValue") == "Value":
        yield f"{name}: Value multiplies by ready pods, so while pods start it asks for fewer than before"
    if "kv_cache_usage_perc" in query and query.startswith(("max(", "avg(")) and "metricType" not in trigger:
        yield (
            f"{name}: a {query[:3]} of at most 1 against an average target of {threshold:g} asks for "
            f"ceil(1 / {threshold:g}) = {math.ceil(1 / threshold)} replicas at most, however full the pods are"
        )
    most = service.replica.slots + (2 * service.replica.slots if service.max_queued is None else service.max_queued)
    if "num_requests_running" in query and "num_requests_waiting" in query and threshold * (1 + TOLERANCE) > most:
        yield (
            f"{name}: {threshold:g} per replica is never reached: a pod runs {service.replica.slots} requests and lets "
            f"{most - service.replica.slots:g} wait"
        )
