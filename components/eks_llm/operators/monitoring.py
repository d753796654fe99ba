"""`Monitoring`: Prometheus and Alertmanager on volumes that survive their pods, and Grafana, which keeps nothing."""

import math
import re
from dataclasses import replace
from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pulumi_kubernetes.helm.v3 import Release
from pydantic import AwareDatetime, Field, field_validator

from ..core.component import Child, Component
from ..core.customize import Customize
from ..core.model import In, Model, component_inputs
from ..core.names import Namespace
from ..core.quantities import Size
from ..observe import custom_resource_states
from ..observe.dashboards import sidecar
from ..observe.dashboards.autoscaling import AUTOSCALING
from ..observe.dashboards.cold_start import COLD_START
from ..observe.dashboards.gpus import GPUS
from ..observe.dashboards.grafana import dashboard
from ..observe.dashboards.nodes import NODES
from ..observe.dashboards.overview import OVERVIEW
from ..observe.platform_rules import platform_rules
from ..observe.rules import RUNBOOKS
from ..sizing.needs import Context, Needs, answers, total
from ..sizing.stack import Charge
from . import _helm
from ._helm import PodSecurity, chart_needs, namespace, release

NAMESPACE = "monitoring"
STORAGE_CLASS = "gp3-encrypted"
ALERTMANAGER_VOLUME = Size(2)
GRAFANA_SECRET = "grafana-admin"  # noqa: S105 the name of a Secret
DASHBOARDS = {
    "overview": OVERVIEW,
    "autoscaling": AUTOSCALING,
    "cold-start": COLD_START,
    "gpus": GPUS,
    "nodes": NODES,
}
"""What shows the whole platform; each service adds its own."""
PROMETHEUS_URL = f"http://kube-prometheus-stack-prometheus.{NAMESPACE}.svc:9090"
"""Follows from the release's name. Source: the chart's `_helpers.tpl`."""

# Arguments ----------------------------------------------------------------------------------------------------------


class MonitoringArgs(TypedDict):
    grafana_admin_password: pulumi.Input[str]
    """Password of Grafana's user `admin`. It goes into a Secret and never into the release's values, which Pulumi and
    Helm store in plain text. Grafana reads it when its pod starts, so a new one needs a restart: `kubectl --namespace
    monitoring rollout restart deployment kube-prometheus-stack-grafana`. What was made in Grafana by hand is lost then;
    dashboards belong into ConfigMaps."""
    retention_days: NotRequired[int]
    """Days that Prometheus keeps metrics, at least 1. Default 15. The oldest go sooner when the volume fills up."""
    volume: NotRequired[str]
    """Prometheus's EBS volume, e.g. `200GiB`, at least `10GiB`. Default `100GiB`. It may grow later, never shrink."""
    memory: NotRequired[str]
    """Memory of Prometheus, requested and limited, e.g. `8GiB`, at least `1GiB`. Default `4GiB`, good for about half a
    million series (some 8 KiB each, a rule of thumb)."""
    runbooks: NotRequired[str]
    """Web address below which alerts find their runbooks, as `<address>/<alert>.md`. Default: docs/runbooks/ of this
    repository, whose owner you fill in."""
    disabled_rules: NotRequired[list[str]]
    """Alerts of kube-prometheus-stack that are left out, by name. Default KubeCPUOvercommit and KubeMemoryOvercommit:
    they ask that the cluster can lose its largest node, and pods fill a GPU node, so they would fire for ever."""
    service_namespaces: NotRequired[list[str]]
    """Namespaces that kube-prometheus-stack's alerts on workloads and volumes leave out. Default `inference`: they fire
    after 15 minutes, while a pod may still wait for a node or load its model; a service's own alerts know how long that
    takes. All other namespaces stay watched."""
    capacity_blocks: NotRequired[dict[str, str]]
    """Pools and when their capacity block ends, e.g. `2026-12-14T11:30:00Z`, which becomes an alert ahead of it.
    Default: none."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


class MonitoringSettings(Model):
    """What a stack file says about monitoring."""

    retention_days: int = Field(default=15, ge=1, le=36500)  # Prometheus keeps nothing longer than a hundred years
    volume: Size = Size(100)
    memory: Size = Size(4)
    runbooks: str = RUNBOOKS
    disabled_rules: list[str] = ["KubeCPUOvercommit", "KubeMemoryOvercommit"]
    service_namespaces: list[Namespace] = ["inference"]

    @field_validator("volume")
    @classmethod
    def _room_for_blocks(cls, volume: Size) -> Size:
        if volume < 10:
            raise ValueError("less than 10GiB fills up within days, even on a small cluster")
        return volume

    @field_validator("memory")
    @classmethod
    def _room_for_series(cls, memory: Size) -> Size:
        if memory < 1:
            raise ValueError("below 1GiB Prometheus is killed: the cluster's own metrics need about that")
        return memory

    @field_validator("runbooks")
    @classmethod
    def _web_address(cls, address: str) -> str:
        if not re.match(r"https?://[^/\s]+", address):
            raise ValueError("not a web address such as https://wiki.example.com/runbooks")
        return address


class _Monitoring(MonitoringSettings):
    grafana_admin_password: In[str]
    capacity_blocks: dict[str, AwareDatetime] = {}
    customize: Customize = {}


# Builders -----------------------------------------------------------------------------------------------------------


def storage_class() -> dict[str, Any]:
    """An encrypted gp3 class: EKS has no default class, and the `gp2` class that it ships does not encrypt.

    The volume is made where the pod is scheduled, and goes with its claim: the claims go with the namespace.
    """
    return {
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "ebs.csi.aws.com",
        "parameters": {"type": "gp3", "encrypted": "true"},
        "volume_binding_mode": "WaitForFirstConsumer",
        "allow_volume_expansion": True,
        "reclaim_policy": "Delete",
    }


def volume_claim(size: Size) -> dict[str, Any]:
    """A claim of the operator's custom resources for a volume of `size`."""
    return {
        "volumeClaimTemplate": {
            "spec": {
                "storageClassName": STORAGE_CLASS,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": _quantity(size)}},
            }
        }
    }


def retention_size(volume: Size) -> str:
    """80 % of the volume: the write-ahead log and blocks that are being compacted come on top.

    Source: Prometheus documentation, "Storage": at most 80 to 85 % of the disk.
    """
    return f"{math.floor(volume * 0.8)}GiB"


def crd_values() -> dict[str, Any]:
    """Values of the chart `prometheus-operator-crds`.

    Helm would delete the CRDs when it uninstalls the chart, and with them every monitor and rule in the cluster.
    """
    return {"crds": {"annotations": {"helm.sh/resource-policy": "keep"}}}


def default_rules(settings: MonitoringSettings) -> dict[str, Any]:
    """Which of the chart's alerts stay: all but the disabled ones; those on workloads not for the services' namespaces.

    Source: the chart's values, `defaultRules`.
    """
    disabled = dict.fromkeys(settings.disabled_rules, True)
    if not settings.service_namespaces:
        return {"disabled": disabled}
    names = "|".join(settings.service_namespaces)
    return {"disabled": disabled, "appNamespacesOperator": "!~", "appNamespacesTarget": names}


def monitoring_values(settings: MonitoringSettings) -> dict[str, Any]:
    """Values of the chart `kube-prometheus-stack`."""
    memory = _quantity(settings.memory)
    # Select the monitors and rules of every namespace, not only those that carry this release's label.
    every = {
        f"{kind}SelectorNilUsesHelmValues": False
        for kind in ("serviceMonitor", "podMonitor", "rule", "probe", "scrapeConfig")
    }
    # EKS does not expose these components' metrics; kube-proxy serves its own on the loopback interface only.
    unreachable = ("kubeControllerManager", "kubeScheduler", "kubeEtcd", "kubeProxy")
    return {
        "crds": {"enabled": False},  # a release of their own, see Monitoring
        "defaultRules": default_rules(settings),
        **{component: {"enabled": False} for component in unreachable},
        "prometheus": {
            "prometheusSpec": {
                **every,
                "retention": f"{settings.retention_days}d",
                "retentionSize": retention_size(settings.volume),
                "storageSpec": volume_claim(settings.volume),
                "resources": {"requests": {"cpu": "500m", "memory": memory}, "limits": {"memory": memory}},
            }
        },
        "kube-state-metrics": custom_resource_states.chart_values(),
        # Silences and notification state.
        "alertmanager": {"alertmanagerSpec": {"storage": volume_claim(ALERTMANAGER_VOLUME)}},
        # Ignore: an operator that is down must not block changes of services, whose rules are tested before.
        "prometheusOperator": {"admissionWebhooks": {"failurePolicy": "Ignore"}},
        "grafana": {
            "admin": {"existingSecret": GRAFANA_SECRET, "userKey": "admin-user", "passwordKey": "admin-password"},
            "sidecar": {
                "dashboards": {
                    "folderAnnotation": sidecar.FOLDER_ANNOTATION,
                    # The annotation alone makes directories that Grafana does not read.
                    "provider": {"foldersFromFilesStructure": True},
                }
            },
        },
    }


def dashboards(runbooks: str) -> dict[str, dict[str, Any]]:
    """ConfigMaps of the dashboards of the whole platform, by name. `runbooks`: the web address of docs/runbooks/."""
    return {
        name: {
            "metadata": {
                "name": f"eks-llm-{name}",
                "namespace": NAMESPACE,
                "labels": sidecar.LABELS,
                "annotations": sidecar.ANNOTATIONS,
            },
            "data": sidecar.data(dashboard(board, runbooks)),
        }
        for name, board in DASHBOARDS.items()
    }


def _quantity(size: Size) -> str:
    """A size as a Kubernetes quantity, which has no fractions of units."""
    return f"{round(size * 1024)}Mi" if size % 1 else f"{int(size)}Gi"


# Needs --------------------------------------------------------------------------------------------------------------


def needs(_name: str, settings: MonitoringSettings, _context: Context) -> Needs:
    stack = chart_needs("kube-prometheus-stack", monitoring_values(settings))
    volumes = settings.volume + ALERTMANAGER_VOLUME
    return replace(
        total([chart_needs("prometheus-operator-crds", crd_values()), stack]),
        charges=(Charge("EBS volumes", "gp3_gb_month", volumes, volumes, volumes, "gp3"),),
    )


# Component ----------------------------------------------------------------------------------------------------------


@answers(MonitoringSettings, needs)
class Monitoring(Component):
    """kube-prometheus-stack in the namespace `monitoring`, which admits privileged pods for node-exporter.

    The CRDs are a release of their own. The stack's chart installs them once and never upgrades them; its upgrade job
    is a preview feature that needs hooks and two more images. The CRD chart of the same operator version holds them as
    ordinary objects, so Helm upgrades them, before the operator that needs them.
    """

    CHILDREN = {
        "namespace": _helm.NAMESPACE,
        "storage_class": Child(
            k8s.storage.v1.StorageClass, "storage", "class of the volumes", {"metadata.name": "claims name it"}
        ),
        "grafana_secret": Child(
            k8s.core.v1.Secret,
            "grafana-admin",
            "Grafana's password",
            {"metadata.name": "Grafana reads it by name", "string_data": "set grafana_admin_password"},
        ),
        "crds": replace(_helm.RELEASE, name="crds", what="the release of the Prometheus operator's CRDs"),
        "release": _helm.RELEASE,
        "alerts": Child(
            k8s.apiextensions.CustomResource,
            "alerts",
            "alerts of the platform",
            {"spec.groups": "add a rule of your own"},
        ),
        "dashboards": Child(
            k8s.core.v1.ConfigMap, "dashboard-*", "dashboards, by name", {"data": "add a ConfigMap of your own"}
        ),
    }

    release: Release
    """The Helm release. What makes monitors, rules or dashboards depends on it, so that it goes first."""
    prometheus_url: pulumi.Output[str]
    """Where pods of the cluster query Prometheus. Known at preview, and depends on the release."""

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = Monitoring.checked(_Monitoring, args, name)
        super().__init__(
            "eks-llm:index:Monitoring", name, component_inputs(model, MonitoringSettings), opts, model.customize
        )
        here = pulumi.ResourceOptions(parent=self)
        self.namespace = own = namespace(f"{name}-namespace", NAMESPACE, PodSecurity.PRIVILEGED, self)
        self.storage_class = storage = k8s.storage.v1.StorageClass(f"{name}-storage", **storage_class(), opts=here)
        self.grafana_secret = admin = k8s.core.v1.Secret(
            f"{name}-grafana-admin",
            metadata={"name": GRAFANA_SECRET, "namespace": own.metadata.name},
            string_data={"admin-user": "admin", "admin-password": pulumi.Output.secret(model.grafana_admin_password)},
            opts=here,
        )
        self.crds = crds = release(
            f"{name}-crds", "prometheus-operator-crds", own.metadata.name, crd_values(), parent=self
        )
        self.release = release(
            f"{name}-release",
            "kube-prometheus-stack",
            own.metadata.name,
            monitoring_values(model),
            parent=self,
            depends_on=[storage, admin, crds],
        )
        rule = platform_rules(NAMESPACE, capacity_blocks=model.capacity_blocks, runbooks=model.runbooks)
        self.alerts = k8s.apiextensions.CustomResource(
            f"{name}-alerts",
            api_version=rule["apiVersion"],
            kind=rule["kind"],
            metadata=rule["metadata"],
            spec=rule["spec"],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.release, crds]),
        )
        self.dashboards = {
            board: k8s.core.v1.ConfigMap(
                f"{name}-dashboard-{board}",
                **config_map,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[own]),
            )
            for board, config_map in dashboards(model.runbooks).items()
        }
        self.prometheus_url = self.release.name.apply(lambda _: PROMETHEUS_URL)
        self.register_outputs({"prometheusUrl": self.prometheus_url})
