"""`ExistingCluster`: a cluster that somebody else runs, with the operators and GPU nodes that services need.

It deploys nothing. What must be there is described in docs/existing-cluster.md.
"""

import re
from typing import Annotated, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import AfterValidator, Field, field_validator

from ..catalog.instances import INSTANCES, InstanceType
from ..core.component import Child, Component
from ..core.customize import Customize
from ..core.model import In, Model, component_inputs
from ..core.names import Name, Namespace
from ..core.problems import InvalidArgs, Problem, nearest
from ..sizing.needs import Context, Needs, answers
from ..sizing.stack import EXISTING, Pool

# Arguments ----------------------------------------------------------------------------------------------------------


class ExistingPoolArgs(TypedDict):
    instance_type: str
    """EC2 type of the nodes, a GPU type of the catalogue, e.g. `p4d.24xlarge`. Pods are sized by it."""
    nodes: int
    """How many nodes there are, or may be where a node autoscaler adds them. The services' largest number of replicas
    must fit on them."""


class ExistingClusterArgs(TypedDict):
    kubeconfig: pulumi.Input[str]
    """A kubeconfig as text, whose current context is the cluster. It may hold credentials, so it is kept as a secret.
    An output that is unknown at preview leaves the preview without the cluster."""
    identity: str
    """What stands for the cluster: as long as it stays, a new address or certificate in `kubeconfig` updates the
    provider; a change replaces everything that was deployed through it."""
    gpu_pools: dict[str, ExistingPoolArgs]
    """Nodes with GPUs by the value of their label `eks-llm.dev/pool`, at least one."""
    prometheus_url: str
    """Where KEDA queries Prometheus, e.g. `http://prometheus-operated.monitoring.svc:9090`."""
    namespace: NotRequired[str]
    """Namespace that is made for the services. Pods use hostPath, so it admits privileged ones. Default `inference`."""
    monitoring_namespace: NotRequired[str]
    """Namespace of the cluster's Prometheus, whose pods may scrape the services. Default `monitoring`."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


# Models -------------------------------------------------------------------------------------------------------------


def _http_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^/\s@?#]+(/[^\s?#]*)?", value):
        raise ValueError("not an HTTP address such as http://prometheus-operated.monitoring.svc:9090")
    return value


class ExistingPool(Model):
    """Nodes of a cluster that somebody else runs."""

    instance_type: str
    nodes: int = Field(ge=1)

    @field_validator("instance_type")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in INSTANCES:
            raise ValueError(f"not a GPU instance type of the catalogue{nearest(name, list(INSTANCES))}")
        return name

    @property
    def instance(self) -> InstanceType:
        return INSTANCES[self.instance_type]


class ExistingClusterSettings(Model):
    """What a stack file says about a cluster that exists, beside how to sign in."""

    prometheus_url: Annotated[str, AfterValidator(_http_url)]
    namespace: Namespace = "inference"
    monitoring_namespace: Namespace = "monitoring"


class ExistingClusterInputs(ExistingClusterSettings):
    """What the component tells the engine of itself, so that tools can size services."""

    gpu_pools: dict[Name, ExistingPool] = Field(min_length=1)


class _ExistingCluster(ExistingClusterInputs):
    kubeconfig: In[str]
    identity: str
    customize: Customize = {}


# Builders -----------------------------------------------------------------------------------------------------------


def chosen(kubeconfig: str, name: str) -> str:
    """The kubeconfig, which is not empty: the provider would look for another, in the environment."""
    if not kubeconfig.strip():
        raise InvalidArgs(f'ExistingCluster "{name}"', [Problem("kubeconfig", "empty; give the text of a kubeconfig")])
    return kubeconfig


# Needs --------------------------------------------------------------------------------------------------------------


def needs(_name: str, settings: ExistingClusterInputs, _context: Context) -> Needs:
    return Needs(
        pools=tuple(
            Pool(pool_name, pool.instance_type, min_nodes=pool.nodes, max_nodes=pool.nodes, capacity=EXISTING)
            for pool_name, pool in settings.gpu_pools.items()
        )
    )


# Component ----------------------------------------------------------------------------------------------------------


@answers(ExistingClusterInputs, needs)
class ExistingCluster(Component):
    """The provider for a cluster that exists, and what tools need to know of its nodes to size services."""

    CHILDREN = {
        "kubernetes": Child(k8s.Provider, "kubernetes", "the Kubernetes provider", {"kubeconfig": "set kubeconfig"})
    }

    kubernetes: k8s.Provider
    """The Kubernetes provider; it knows no other kubeconfig than the one that was given."""

    def __init__(self, name: str, args: ExistingClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = ExistingCluster.checked(_ExistingCluster, args, name)
        super().__init__(
            "eks-llm:index:ExistingCluster", name, component_inputs(model, ExistingClusterInputs), opts, model.customize
        )
        self.kubernetes = k8s.Provider(
            f"{name}-kubernetes",
            kubeconfig=pulumi.Output.secret(model.kubeconfig).apply(lambda text: chosen(text, name)),
            cluster_identifier=model.identity,
            enable_server_side_apply=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
