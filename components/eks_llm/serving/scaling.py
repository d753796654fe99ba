"""How a service scales: a KEDA ScaledObject on the engine's own demand, within the pool's GPUs.

Two signals, each a *sum* over pods with a target per pod (`AverageValue`), so desired = ceil(sum / target):
requests that run or wait, and KV-cache use. The larger one wins. A ratio as `Value` would multiply by ready pods only,
and so misjudge a service whose pods take minutes to start; durations that Triton reports cover dispatch alone.
"""

from typing import Any, NotRequired, TypedDict

import pulumi
from pydantic import Field, ValidationInfo, field_validator, model_validator

from ..inputs import Model
from .metrics import demand, kv_percent
from .workload import Workload

# Arguments ----------------------------------------------------------------------------------------------------------


class ScalingArgs(TypedDict):
    min: NotRequired[int]
    """Fewest replicas, at least 1: the signal comes from running pods, so nothing would wake a service at 0. Default
    1."""
    max: NotRequired[int]
    """Most replicas. Their GPUs must fit into the pool at its largest. Default: `min`, which switches scaling off."""
    in_flight_per_replica: NotRequired[int]
    """Requests, running or waiting, that one replica is meant to carry; at most the engine's `max_num_seqs`. Default:
    three quarters of that."""
    kv_cache_target: NotRequired[float]
    """Share of KV-cache blocks in use that one replica is meant to reach, between 0 and 1. Default 0.8."""
    scale_up_pods: NotRequired[int]
    """Replicas added per start time of a pod, at most: a backlog grows while pods load, and must not ask for the
    whole pool. Default 2."""


class Scaling(Model):
    min: int = 1
    max: int = 0
    in_flight_per_replica: int | None = Field(default=None, ge=1)
    kv_cache_target: float = Field(default=0.8, gt=0, lt=1)
    scale_up_pods: int = Field(default=2, ge=1)

    @field_validator("min")
    @classmethod
    def _not_zero(cls, value: int) -> int:
        if value < 1:
            raise ValueError(
                "at least 1: the metrics that scale a service come from its pods, so 0 would never wake up"
            )
        return value

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


# Builders -----------------------------------------------------------------------------------------------------------

POLL_SECONDS = 15
BLIND_SECONDS = 60
"""How long a signal may be missing before the fallback replaces it."""
SCALE_UP_WINDOW = 30
LEAST_SCALE_DOWN_WINDOW = 600
SCALE_DOWN_PERIOD = 120
LONGEST_PERIOD, LONGEST_WINDOW = 1800, 3600
"""Limits of the HPA's behaviour, seconds. Source: Kubernetes autoscaling/v2."""


def scaled_object(
    work: Workload, scaling: Scaling, in_flight: int, prometheus_url: pulumi.Input[str]
) -> dict[str, Any]:
    """The ScaledObject. Pulumi waits until KEDA calls it ready (from KEDA 2.20.2 on that condition is stable)."""
    kv_target = round(scaling.kv_cache_target * 100, 3)
    # KEDA counts a failure per poll and per query of the HPA, which asks every 15 s too.
    failures = round(BLIND_SECONDS * (1 / POLL_SECONDS + 1 / 15))
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": work.metadata(annotations={"pulumi.com/waitFor": "condition=Ready"}),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": work.name},
            "minReplicaCount": scaling.min,
            "maxReplicaCount": scaling.max,
            "pollingInterval": POLL_SECONDS,
            # Blind, it keeps what runs and never scales down.
            "fallback": {
                "failureThreshold": failures,
                "replicas": scaling.min,
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior(scaling, work.start.expected)}},
            "triggers": [
                _trigger("demand", demand(work.namespace, work.name), f"{in_flight}", prometheus_url),
                _trigger("kv-cache", kv_percent(work.namespace, work.name), f"{kv_target:g}", prometheus_url),
            ],
        },
    }


def behavior(scaling: Scaling, pod_start: int) -> dict[str, Any]:
    """Up in waves, each as long as a pod takes to start; down one by one, after the last wave has had its effect."""
    wave = min(LONGEST_PERIOD, max(SCALE_UP_WINDOW, pod_start))
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": SCALE_UP_WINDOW,
            "policies": [{"type": "Pods", "value": scaling.scale_up_pods, "periodSeconds": wave}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": min(LONGEST_WINDOW, max(LEAST_SCALE_DOWN_WINDOW, pod_start)),
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": SCALE_DOWN_PERIOD}],
        },
    }


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
