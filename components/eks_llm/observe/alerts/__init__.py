"""Alerts, one record each: what it compares, what fires it, what it means. docs/runbooks/ has a page of its name.

What kube-prometheus-stack already alarms on is not repeated: Prometheus, Alertmanager, its operator, system nodes,
volumes. An operator that is missing altogether makes no metric, so its absence counts only where it is installed.
"""

import datetime
from collections.abc import Mapping

from ..rules import Alert
from ..watched import WatchedService
from . import (
    autoscaler,
    capacity_blocks,
    demand,
    engine,
    gpu_nodes,
    gpus,
    latency,
    node_autoscaler,
    operators,
    pods,
    replicas,
)


def of_service(of: WatchedService) -> list[Alert]:
    """The alerts of a service."""
    parts = (demand, latency, engine, autoscaler, replicas, pods)
    return [alert for part in parts for alert in part.alerts(of)]


def of_platform(block_ends: Mapping[str, datetime.datetime]) -> list[Alert]:
    """The alerts of the platform. `block_ends`: pools and when their capacity block ends."""
    parts = (gpus, gpu_nodes, node_autoscaler, operators)
    return [*(alert for part in parts for alert in part.alerts()), *capacity_blocks.alerts(block_ends)]
