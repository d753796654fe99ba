"""`NodeAutoscaler`: adds nodes to a cluster's node groups for pods that do not fit, and removes idle ones."""

from dataclasses import replace
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_kubernetes.helm.v3 import Release
from pydantic import field_validator

from ..catalog.charts import CLUSTER_AUTOSCALER
from ..core.component import Component
from ..core.customize import Customize
from ..core.identity import policy
from ..core.model import In, Model, component_inputs
from ..core.quantities import Duration
from ..core.timing import provision
from ..sizing.needs import Context, Needs, answers, permissions
from . import _helm, _identity
from ._helm import chart_needs, release
from ._identity import pod_identity

NAMESPACE = "kube-system"
CHART = "cluster-autoscaler"
SERVICE_ACCOUNT = "cluster-autoscaler"
IN_USE = 0.01
"""Share of a GPU node's GPUs that are requested, from which on the node stays. Below 1/16, so one GPU is enough: the
default of 0.5 would evict serving pods, which take minutes to come back, to save half a node. Not 0, at which an empty
node would stay as well. Source: cluster-autoscaler, core/scaledown/eligibility/eligibility.go."""

# Arguments ----------------------------------------------------------------------------------------------------------


class NodeAutoscalerArgs(TypedDict):
    cluster_name: pulumi.Input[str]
    """Name of the EKS cluster. Its managed node groups are found by the tags that EKS puts on their groups."""
    region: pulumi.Input[str]
    """AWS region of the cluster. Given, because pods cannot ask the instance metadata service (hop limit 1)."""
    kubernetes_version: str
    """Minor version of the cluster, e.g. `1.35`. The autoscaler's image is of the same minor."""
    max_node_provision_time: NotRequired[str]
    """How long a node may take to become ready before the autoscaler gives it up, e.g. `45m`. Default `30m`: a slow p4d
    takes longer than the autoscaler's own 15 minutes, and counts as ready only when it offers its GPUs. Where a pool's
    nodes are expected to take more than 20 minutes, half as long again: the reference program sets that."""
    scale_down_unneeded_time: NotRequired[str]
    """How long a node must be idle before it is removed. Default `10m`, the autoscaler's own. Not shorter than services
    wait before they give up a replica: the reference program takes the longest of those windows."""
    service_monitors: NotRequired[bool]
    """Let Prometheus scrape the autoscaler. Default true; needs the CRD ServiceMonitor, which `Monitoring` installs."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


class NodeAutoscalerSettings(Model):
    max_node_provision_time: Duration = Duration(provision(0))
    scale_down_unneeded_time: Duration = Duration(10 * 60)
    service_monitors: bool = True


class _NodeAutoscaler(NodeAutoscalerSettings):
    cluster_name: In[str]
    region: In[str]
    kubernetes_version: str
    customize: Customize = {}

    @field_validator("kubernetes_version")
    @classmethod
    def _has_an_image(cls, version: str) -> str:
        if version not in CLUSTER_AUTOSCALER:
            raise ValueError(f"no cluster-autoscaler is known for this minor (known: {', '.join(CLUSTER_AUTOSCALER)})")
        return version


# Builders -----------------------------------------------------------------------------------------------------------


def autoscaler_policy(cluster: str) -> str:
    """IAM policy: read all groups, change only those that EKS tagged as owned by this cluster.

    Source: cluster-autoscaler, cloudprovider/aws/README.md; EKS user guide, "Autoscaling".
    """
    return policy(
        {
            "Effect": "Allow",
            "Action": [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeLaunchConfigurations",
                "autoscaling:DescribeScalingActivities",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:GetInstanceTypesFromInstanceRequirements",
                "eks:DescribeNodegroup",
            ],
            "Resource": "*",
        },
        {
            "Effect": "Allow",
            "Action": ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            "Resource": "*",
            "Condition": {
                "StringEquals": {
                    "aws:ResourceTag/k8s.io/cluster-autoscaler/enabled": "true",
                    f"aws:ResourceTag/k8s.io/cluster-autoscaler/{cluster}": "owned",
                }
            },
        },
    )


def autoscaler_values(
    settings: NodeAutoscalerSettings,
    kubernetes_version: str,
    cluster_name: pulumi.Input[str],
    region: pulumi.Input[str],
) -> dict[str, Any]:
    """Values of the chart `cluster-autoscaler`."""
    return {
        "autoDiscovery": {"clusterName": cluster_name},
        "awsRegion": region,
        "image": {"tag": CLUSTER_AUTOSCALER[kubernetes_version]},
        "replicaCount": 2,  # one leads, one stands by
        # Without the autoscaler no node comes that a crowded-out pod could move to.
        "priorityClassName": "system-cluster-critical",
        "rbac": {"serviceAccount": {"create": True, "name": SERVICE_ACCOUNT}},
        "extraArgs": {
            "max-node-provision-time": str(settings.max_node_provision_time),
            "scale-down-unneeded-time": str(settings.scale_down_unneeded_time),
            "scale-down-gpu-utilization-threshold": str(IN_USE),
            # Model servers keep weights on the node's own NVMe disks; that is a cache, and must not keep a node alive.
            "skip-nodes-with-local-storage": "false",
            # The alert NodePoolAtMax and the dashboard of nodes compare a pool's size with its limit.
            "emit-per-nodegroup-metrics": "true",
        },
        "serviceMonitor": {"enabled": settings.service_monitors, "namespace": NAMESPACE},
    }


# Needs --------------------------------------------------------------------------------------------------------------


def needs(_name: str, settings: NodeAutoscalerSettings, context: Context) -> Needs:
    version = context.kubernetes_version or next(reversed(CLUSTER_AUTOSCALER))  # alone in a program: any
    chart = chart_needs(CHART, autoscaler_values(settings, version, context.cluster, context.region))
    role = f"{NAMESPACE}/{SERVICE_ACCOUNT}"
    return replace(chart, permissions=permissions(role, autoscaler_policy(context.cluster or "<cluster>")))


# Component ----------------------------------------------------------------------------------------------------------


@answers(NodeAutoscalerSettings, needs)
class NodeAutoscaler(Component):
    """cluster-autoscaler, with a role that may resize only this cluster's node groups.

    It needs the add-on eks-pod-identity-agent, and on the GPU pools the label `k8s.amazonaws.com/accelerator`: by it
    the autoscaler waits until a new node offers its GPUs, instead of adding a second one.
    """

    CHILDREN = {**_identity.CHILDREN, "release": _helm.RELEASE}

    release: Release
    """The Helm release."""

    def __init__(self, name: str, args: NodeAutoscalerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = NodeAutoscaler.checked(_NodeAutoscaler, args, name)
        super().__init__(
            "eks-llm:index:NodeAutoscaler", name, component_inputs(model, NodeAutoscalerSettings), opts, model.customize
        )
        values = autoscaler_values(model, model.kubernetes_version, model.cluster_name, model.region)
        allowed = pulumi.Output.from_input(model.cluster_name).apply(autoscaler_policy)
        identity = pod_identity(name, model.cluster_name, NAMESPACE, SERVICE_ACCOUNT, policy=allowed, parent=self)
        self.role, self.permissions, self.identity = identity.role, identity.permissions, identity.association
        self.release = release(
            f"{name}-release", CHART, NAMESPACE, values, parent=self, depends_on=identity.before_pods
        )
        self.register_outputs({})
