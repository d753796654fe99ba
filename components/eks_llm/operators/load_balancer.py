"""`LoadBalancerController`: makes AWS load balancers for Ingresses, Services and Gateways."""

from dataclasses import replace
from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pulumi_kubernetes.helm.v3 import Release

from ..catalog.charts import CHARTS, KUBECTL_IMAGE, LOAD_BALANCER_POLICY
from ..core.addresses import VpcId
from ..core.component import Child, Component
from ..core.customize import Customize
from ..core.identity import policy
from ..core.model import In, Model, component_inputs
from ..sizing.needs import Artifact, Context, Needs, answers, permissions
from . import _helm, _identity
from ._helm import chart_needs, release
from ._identity import pod_identity

NAMESPACE = "kube-system"
SERVICE_ACCOUNT = "aws-load-balancer-controller"
CHART = "aws-load-balancer-controller"
CRD_ACCOUNT = f"{CHART}-crds"

# Arguments ----------------------------------------------------------------------------------------------------------


class LoadBalancerControllerArgs(TypedDict):
    cluster_name: pulumi.Input[str]
    """Name of the EKS cluster."""
    region: pulumi.Input[str]
    """AWS region of the cluster. Given, because pods cannot ask the instance metadata service (hop limit 1)."""
    vpc_id: pulumi.Input[str]
    """Id of the cluster's VPC, for the same reason."""
    service_monitors: NotRequired[bool]
    """Let Prometheus scrape the controller. Default true; needs the CRD ServiceMonitor, which `Monitoring` installs."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


class LoadBalancerControllerSettings(Model):
    service_monitors: bool = True


class _LoadBalancerController(LoadBalancerControllerSettings):
    cluster_name: In[str]
    region: In[str]
    vpc_id: In[VpcId]
    customize: Customize = {}


# Builders -----------------------------------------------------------------------------------------------------------


def controller_values(
    cluster_name: pulumi.Input[str], region: pulumi.Input[str], vpc_id: pulumi.Input[str], service_monitors: bool = True
) -> dict[str, Any]:
    """Values of the chart `aws-load-balancer-controller`."""
    return {
        "clusterName": cluster_name,
        "region": region,
        "vpcId": vpc_id,
        "serviceAccount": {"create": True, "name": SERVICE_ACCOUNT},
        # On, no Service of any kind can be created while the controller is down: its webhook fails closed.
        "enableServiceMutatorWebhook": False,
        # Off, every render makes a new certificate: a difference in each preview, and broken TLS for a moment.
        "keepTLSSecret": True,
        "replicaCount": 2,
        "podDisruptionBudget": {"maxUnavailable": 1},
        "serviceMonitor": {"enabled": service_monitors},
    }


def crd_rules() -> list[k8s.rbac.v1.PolicyRuleArgsDict]:
    """What the CRD job may do. Server-side apply reads, creates and patches; nothing is deleted."""
    return [
        {
            "api_groups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "verbs": ["get", "list", "create", "patch"],
        }
    ]


def crd_job() -> dict[str, Any]:
    """A Job that applies the CRDs of the pinned chart. Its name has the version: another chart, another run.

    Server-side, because these definitions are longer than the annotation of a client-side apply may be; forced, to take
    over definitions that Helm once installed. No time to live: a Job that vanished would be a difference.
    """
    chart = CHARTS[CHART]
    container = {
        "name": "kubectl",
        "image": KUBECTL_IMAGE,
        "args": ["apply", "--server-side", "--force-conflicts", *(f"--filename={url}" for url in chart.crd_manifests)],
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 of the container: where kubectl keeps its cache
        "volume_mounts": [{"name": "tmp", "mount_path": "/tmp"}],  # noqa: S108
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "security_context": {
            "allow_privilege_escalation": False,
            "read_only_root_filesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "metadata": {"name": f"{CRD_ACCOUNT}-{chart.version.replace('.', '-')}", "namespace": NAMESPACE},
        "spec": {
            "backoff_limit": 3,
            "active_deadline_seconds": 300,
            "template": {
                "spec": {
                    "service_account_name": CRD_ACCOUNT,
                    "restart_policy": "OnFailure",
                    "security_context": {
                        "run_as_non_root": True,
                        "run_as_user": 65532,
                        "seccomp_profile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": [{"name": "tmp", "empty_dir": {}}],
                }
            },
        },
    }


# Needs --------------------------------------------------------------------------------------------------------------


def needs(_name: str, settings: LoadBalancerControllerSettings, context: Context) -> Needs:
    chart = chart_needs(CHART, controller_values(context.cluster, context.region, "", settings.service_monitors))
    return replace(
        chart,
        artifacts=(*chart.artifacts, Artifact("image", KUBECTL_IMAGE)),
        permissions=permissions(f"{NAMESPACE}/{SERVICE_ACCOUNT}", policy(*LOAD_BALANCER_POLICY)),
    )


# Component ----------------------------------------------------------------------------------------------------------


@answers(LoadBalancerControllerSettings, needs)
class LoadBalancerController(Component):
    """The AWS load balancer controller, with the IAM policy that its project publishes.

    Helm never upgrades this chart's CRDs, and no chart of their own exists; a Job applies them before the release. It
    reads them from the project's repository, as the nodes read images. It needs the add-on eks-pod-identity-agent.
    """

    CHILDREN = {
        **_identity.CHILDREN,
        "crd_account": Child(k8s.core.v1.ServiceAccount, "crds", "account of the Job that applies the CRDs"),
        "crd_role": Child(k8s.rbac.v1.ClusterRole, "crds", "what that Job may do"),
        "crd_binding": Child(k8s.rbac.v1.ClusterRoleBinding, "crds", "whose that role is"),
        "crd_job": Child(k8s.batch.v1.Job, "crds", "the Job that applies the CRDs"),
        "release": _helm.RELEASE,
    }

    release: Release
    """The Helm release. Ingresses, Gateways and Services of type LoadBalancer depend on it: only the controller removes
    their load balancers, and a load balancer that stays keeps the VPC from being deleted."""

    def __init__(self, name: str, args: LoadBalancerControllerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = LoadBalancerController.checked(_LoadBalancerController, args, name)
        super().__init__(
            "eks-llm:index:LoadBalancerController",
            name,
            component_inputs(model, LoadBalancerControllerSettings),
            opts,
            model.customize,
        )
        values = controller_values(model.cluster_name, model.region, model.vpc_id, model.service_monitors)
        allowed = policy(*LOAD_BALANCER_POLICY)
        identity = pod_identity(name, model.cluster_name, NAMESPACE, SERVICE_ACCOUNT, policy=allowed, parent=self)
        self.role, self.permissions, self.identity = identity.role, identity.permissions, identity.association
        self.crd_job = crds = self._apply_crds(name)
        self.release = release(
            f"{name}-release", CHART, NAMESPACE, values, parent=self, depends_on=[*identity.before_pods, crds]
        )
        self.register_outputs({})

    def _apply_crds(self, name: str) -> k8s.batch.v1.Job:
        here = pulumi.ResourceOptions(parent=self)
        self.crd_account = account = k8s.core.v1.ServiceAccount(
            f"{name}-crds", metadata={"name": CRD_ACCOUNT, "namespace": NAMESPACE}, opts=here
        )
        self.crd_role = role = k8s.rbac.v1.ClusterRole(
            f"{name}-crds", metadata={"name": CRD_ACCOUNT}, rules=crd_rules(), opts=here
        )
        self.crd_binding = binding = k8s.rbac.v1.ClusterRoleBinding(
            f"{name}-crds",
            metadata={"name": CRD_ACCOUNT},
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CRD_ACCOUNT},
            subjects=[{"kind": "ServiceAccount", "name": CRD_ACCOUNT, "namespace": NAMESPACE}],
            opts=here,
        )
        return k8s.batch.v1.Job(
            f"{name}-crds",
            **crd_job(),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[account, role, binding]),
        )
