"""The parts of a ScaledObject that a simulation reads, by shape: `checked`. Other keys of a manifest are left alone.

Source: KEDA v2.20.2, apis/keda/v1alpha1/scaledobject_types.go; Kubernetes, autoscaling/v2 `HPAScalingRules`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError
from pydantic.alias_generators import to_camel

from ..core.problems import Problem, problems
from .hpa import MetricType, PolicyType, SelectPolicy

Count = Annotated[StrictInt, Field(ge=0, le=2**31 - 1)]
"""A count or seconds, as the API takes them (int32)."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", alias_generator=to_camel)


class _Policy(_Part):
    type: PolicyType
    value: Annotated[Count, Field(ge=1)]
    period_seconds: Count


class _Direction(_Part):
    stabilization_window_seconds: Count | None = None
    policies: list[_Policy] | None = None
    select_policy: SelectPolicy | None = None
    tolerance: StrictFloat | StrictInt | StrictStr | None = None


class _Behavior(_Part):
    scale_up: _Direction | None = None
    scale_down: _Direction | None = None


class _Hpa(_Part):
    behavior: _Behavior | None = None


class _Advanced(_Part):
    horizontal_pod_autoscaler_config: _Hpa | None = None


class _Fallback(_Part):
    failure_threshold: Count
    replicas: Count
    behavior: StrictStr | None = None


class _Trigger(_Part):
    type: StrictStr
    name: StrictStr | None = None
    metric_type: MetricType | None = None
    metadata: dict[str, StrictStr] = {}


class _Spec(_Part):
    min_replica_count: Count | None = None
    max_replica_count: Count | None = None
    polling_interval: Annotated[Count, Field(ge=1)] | None = None
    cooldown_period: Count | None = None
    fallback: _Fallback | None = None
    advanced: _Advanced | None = None
    triggers: list[_Trigger] = []


class _ScaledObject(_Part):
    spec: _Spec = _Spec()


def checked(manifest: Mapping[str, Any]) -> list[Problem]:
    """What of a manifest has not the shape that the API asks for."""
    try:
        _ScaledObject.model_validate(dict(manifest))
    except ValidationError as error:
        return list(problems(error, _ScaledObject))
    return []


def without_nulls(value: Any) -> Any:
    """A manifest as the API server keeps it: a key with null is absent."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
