"""Prometheus rules as every part of the platform writes them: alerts that all look alike, and the object they live in.

Each alert says how bad it is (`severity`), what is wrong (`summary`), what that means (`description`), and where to
read on (`runbook_url`). docs/runbooks/ has a page of its name, whose head is generated from the alert.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .thresholds import Threshold

RUNBOOKS = "https://github.com/<owner>/eks-llm/blob/main/docs/runbooks"
"""Where the pages of docs/runbooks/ are read, unless a setting says otherwise."""


class Severity(Enum):
    """Who should hear of an alert."""

    CRITICAL = "critical"
    """Somebody now: requests fail or soon will."""
    WARNING = "warning"
    """Somebody today."""
    INFO = "info"
    """Nobody by itself; it explains others, or money."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alerting rule, and what people read about it."""

    name: str = field(kw_only=False)
    expr: str = field(kw_only=False)
    severity: Severity = field(kw_only=False)
    threshold: Threshold | None = None
    """The limit in `expr`, where a panel draws it too."""
    after: float = 0
    """Seconds that `expr` must hold."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    summary: str
    """One line, with `$value` and labels of the series in Prometheus' template language."""
    description: str
    """What it means for users, and the first thing to do."""
    fires: str
    """When it fires, in words, for tables; the same for every service."""
    meaning: str
    """First paragraph of its runbook: what was seen. The same for every service."""
    impact: str
    """Second paragraph of its runbook: what users notice, or lose."""

    def rule(self, labels: Mapping[str, str], runbooks: str) -> dict[str, Any]:
        """The rule with labels of its group, and the address below which runbooks are."""
        return {
            "alert": self.name,
            "expr": self.expr,
            **({"for": duration(self.after)} if self.after else {}),
            "labels": {"severity": self.severity.value, **labels, **self.labels},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{runbooks.rstrip('/')}/{self.name}.md",
            },
        }


@dataclass(frozen=True)
class Recording:
    """A recording rule, named level:metric:operations."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def rule(self) -> dict[str, Any]:
        return {"record": self.name, "expr": self.expr, **({"labels": dict(self.labels)} if self.labels else {})}


def duration(seconds: float) -> str:
    """A time span as Prometheus writes it, in the largest unit that fits: 5400 gives `90m`."""
    whole = round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def group(name: str, rules: Iterable[dict[str, Any]], interval: float | None = None) -> dict[str, Any]:
    """A group of rules that are evaluated in order; every `interval` seconds, or as often as Prometheus does others."""
    return {"name": name, **({"interval": duration(interval)} if interval else {}), "rules": list(rules)}


def prometheus_rule(metadata: Mapping[str, Any], *groups: dict[str, Any]) -> dict[str, Any]:
    """The PrometheusRule of the operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": dict(metadata),
        "spec": {"groups": list(groups)},
    }
