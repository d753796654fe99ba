"""What every operator shares: a namespace with a Pod Security level, and a Helm release of a pinned chart."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi_kubernetes.helm.v3 import Release

from ..catalog.charts import CHARTS, Crds
from ..core.component import Child
from ..sizing import pods
from ..sizing.needs import Artifact, Needs

TIMEOUT_SECONDS = 600
"""How long a release may take until its pods are ready: an operator's image is pulled on a node that may be new."""


RELEASE = Child(
    Release,
    "release",
    "the Helm release: `values` are the chart's",
    {
        "name": "addresses and selectors are made of it",
        "namespace": "addresses and roles are made of it",
        "chart": "the values are written for it",
    },
)
NAMESPACE = Child(
    k8s.core.v1.Namespace,
    "namespace",
    "the operator's namespace",
    {
        "metadata.name": "addresses and roles are made of it",
        'metadata.labels."pod-security.kubernetes.io/enforce"': "the chart's pods need this level",
    },
)
"""Children that operators have."""


class PodSecurity(Enum):
    """Pod Security Standards of Kubernetes, by which a namespace refuses pods."""

    PRIVILEGED = "privileged"
    RESTRICTED = "restricted"


def chart_needs(chart_name: str, values: dict[str, Any]) -> Needs:
    """What a release of a pinned chart needs: the chart, and the pods that it runs with these values."""
    chart = CHARTS[chart_name]
    reference = Artifact("chart", f"{chart_name} {chart.version}", chart.repository)
    return Needs(artifacts=(reference,), pods=pods.of_chart(chart_name, values))


def namespace(name: str, namespace_name: str, level: PodSecurity, parent: pulumi.Resource) -> k8s.core.v1.Namespace:
    """A namespace of the operator's own. It goes after the release, and takes with it what the operator left there."""
    return k8s.core.v1.Namespace(
        name,
        metadata={"name": namespace_name, "labels": {"pod-security.kubernetes.io/enforce": level.value}},
        opts=pulumi.ResourceOptions(parent=parent),
    )


def release(
    name: str,
    chart_name: str,
    namespace_name: pulumi.Input[str],
    values: dict[str, Any],
    *,
    parent: pulumi.Resource,
    depends_on: Sequence[pulumi.Resource] = (),
) -> Release:
    """A release, named like its chart, of the version that the catalogue pins."""
    chart = CHARTS[chart_name]
    return Release(
        name,
        name=chart_name,
        chart=chart_name,
        version=chart.version,
        repository_opts={"repo": chart.repository},
        namespace=namespace_name,
        values=values,
        timeout=TIMEOUT_SECONDS,
        # A failed upgrade removes what it newly made, so that the next try does not find it in its way. Not `atomic`:
        # that would uninstall a failed first installation, and with it the pods whose logs say why.
        cleanup_on_fail=True,
        atomic=False,
        max_history=5,
        # Helm would install these definitions and never upgrade them; the component owns a step that does both.
        skip_crds=chart.crds is Crds.CRDS_DIR,
        opts=pulumi.ResourceOptions(parent=parent, depends_on=list(depends_on)),
    )
