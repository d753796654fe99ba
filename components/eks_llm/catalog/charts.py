"""Helm charts of the operators, the images that follow the cluster's version, and AWS's load-balancer policy."""

from enum import Enum
from typing import Any

from ._load import Fact, load


class Crds(Enum):
    """What an upgrade of a chart does to its custom resource definitions."""

    TEMPLATES = "templates"
    """Ordinary objects of the chart: upgraded by Helm, and deleted on uninstall unless annotated to be kept."""
    CRDS_DIR = "crdsDir"
    """Installed once by Helm and never upgraded: something else must."""
    UPGRADE_HOOK = "upgradeHook"
    """As `crdsDir`, but a hook of the chart upgrades them."""
    NONE = "none"


class Chart(Fact):
    """A pinned Helm chart."""

    version: str
    app_version: str
    """Version of what the chart installs."""
    date: str
    """When the version appeared, ISO date."""
    repository: str
    source: str
    """Where the chart's files can be read."""
    crds: Crds
    crd_manifests: tuple[str, ...] = ()
    """The definitions of this version as files, for a chart that does not upgrade them."""


class _File(Fact):
    date: str
    charts: dict[str, Chart]
    cluster_autoscaler: dict[str, str]
    kubectl: str


class _Policy(Fact):
    source: str
    date: str
    statements: list[dict[str, Any]]


_file = load("charts.yaml", _File)

CHARTS: dict[str, Chart] = _file.charts
"""Pinned charts by name."""
CLUSTER_AUTOSCALER: dict[str, str] = _file.cluster_autoscaler
"""Image tag of cluster-autoscaler by Kubernetes minor, such as `1.35`."""
KUBECTL_IMAGE: str = _file.kubectl
LOAD_BALANCER_POLICY: list[dict[str, Any]] = load("load_balancer_policy.yaml", _Policy).statements
"""Statements of the IAM policy that the AWS load balancer controller needs."""
