"""`Keda`: scales services on Prometheus queries."""

from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_kubernetes.helm.v3 import Release

from ..core.component import Component
from ..core.customize import Customize
from ..core.model import Model, component_inputs
from ..sizing.needs import Context, Needs, answers
from . import _helm
from ._helm import PodSecurity, chart_needs, namespace, release

NAMESPACE = "keda"
MINIMUM_VERSION = "2.20.2"
"""Oldest version that works here. Before, a ScaledObject's Ready condition flips on short gaps of its HPA, and Pulumi
waits for Ready; and a negative value of an external metric was passed on instead of read as 0. Source: KEDA's
changelog."""

# Arguments ----------------------------------------------------------------------------------------------------------


class KedaArgs(TypedDict):
    service_monitors: NotRequired[bool]
    """Let Prometheus scrape KEDA. Default true; needs the CRD ServiceMonitor, which `Monitoring` installs."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


class KedaSettings(Model):
    service_monitors: bool = True


class _Keda(KedaSettings):
    customize: Customize = {}


# Builders -----------------------------------------------------------------------------------------------------------


def keda_values(service_monitors: bool = True) -> dict[str, Any]:
    """Values of the chart `keda`."""
    parts = ("operator", "metricServer", "webhooks")
    return {
        # Helm would delete these CRDs when it uninstalls the chart, and with them every ScaledObject: replacing the
        # release would take the autoscaler from every service, and hang on finalizers that only the operator removes.
        # A full destroy loses nothing by keeping them: services go before KEDA, and the CRDs go with the cluster.
        "crds": {"install": True, "additionalAnnotations": {"helm.sh/resource-policy": "keep"}},
        # A second operator stands by for the first. While no metrics server answers, no HPA moves.
        "operator": {"replicaCount": 2},
        "metricsServer": {"replicaCount": 2},
        # Ignore: a webhook that is down must not block an update, nor the removal of a finalizer during destroy.
        "webhooks": {"replicaCount": 2, "failurePolicy": "Ignore"},
        "podDisruptionBudget": {part: {"maxUnavailable": 1} for part in parts},
        "prometheus": {part: {"enabled": True, "serviceMonitor": {"enabled": service_monitors}} for part in parts},
        # The chart pulls at every start, so that KEDA could not restart while the registry is down.
        "image": {"pullPolicy": "IfNotPresent"},
    }


# Needs --------------------------------------------------------------------------------------------------------------


def needs(_name: str, settings: KedaSettings, _context: Context) -> Needs:
    return chart_needs("keda", keda_values(settings.service_monitors))


# Component ----------------------------------------------------------------------------------------------------------


@answers(KedaSettings, needs)
class Keda(Component):
    """KEDA, in a namespace that admits only restricted pods. ScaledObjects depend on `release`."""

    CHILDREN = {"namespace": _helm.NAMESPACE, "release": _helm.RELEASE}

    release: Release
    """The Helm release. What uses KEDA's custom resources depends on it, so that it goes first."""

    def __init__(self, name: str, args: KedaArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = Keda.checked(_Keda, args, name)
        super().__init__("eks-llm:index:Keda", name, component_inputs(model, KedaSettings), opts, model.customize)
        values = keda_values(model.service_monitors)
        self.namespace = own = namespace(f"{name}-namespace", NAMESPACE, PodSecurity.RESTRICTED, self)
        self.release = release(f"{name}-release", "keda", own.metadata.name, values, parent=self)
        self.register_outputs({})
