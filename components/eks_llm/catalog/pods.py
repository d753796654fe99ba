"""Pods of charts and add-ons on nodes without GPU, with the requests that they have by default."""

from enum import Enum

from ._load import Fact, load


class PodKind(Enum):
    """What makes the pods."""

    DEPLOYMENT = "deployment"
    DAEMON_SET = "daemonSet"
    """One on every node."""


class Requests(Fact):
    """What a pod's containers request together; 0: they request nothing."""

    cpu_m: int = 0
    """Millicores."""
    memory_mib: int = 0


class PodFacts(Requests):
    """Pods of one Deployment, StatefulSet or DaemonSet."""

    name: str
    kind: PodKind = PodKind.DEPLOYMENT
    default: int = 1
    """Replicas, where the chart's values say nothing."""
    replicas: str | None = None
    """Path of the number of replicas in the chart's values."""
    resources: str | None = None
    """Path of the main container's `resources` in the chart's values."""
    besides: Requests = Requests()
    """Requests of containers that the values do not reach."""


class _File(Fact):
    sources: list[str]
    date: str
    charts: dict[str, list[PodFacts]]
    addons: dict[str, list[PodFacts]]


_file = load("pods.yaml", _File)

CHART_PODS: dict[str, list[PodFacts]] = _file.charts
"""By chart."""
ADDON_PODS: dict[str, list[PodFacts]] = _file.addons
"""By EKS add-on."""
