"""The PrometheusRule of a service: its recorded series and its alerts. Thresholds follow from its settings."""

from collections.abc import Mapping
from typing import Any

from . import slo
from .alerts import of_service
from .recordings import recordings
from .rules import RUNBOOKS, group, prometheus_rule
from .watched import WatchedService


def service_rules(of: WatchedService, metadata: Mapping[str, Any], runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """The object with this `metadata`. `runbooks`: the web address of docs/runbooks/."""
    name, labels = f"{of.namespace}.{of.name}", {"namespace": of.namespace, "service": of.name}
    targets = slo.targets(of)
    fast = [rule for target in targets for rule in slo.recordings(of, target, slo.FAST_WINDOWS)]
    groups = [group(f"{name}.recording", (rule.rule() for rule in [*recordings(of), *fast]))]
    if targets:
        slow = (rule.rule() for target in targets for rule in slo.recordings(of, target, slo.SLOW_WINDOWS))
        groups.append(group(f"{name}.slo", slow, slo.SLOW_WINDOWS_INTERVAL))
    groups.append(group(name, (alert.rule(labels, runbooks) for alert in of_service(of))))
    return prometheus_rule(metadata, *groups)
