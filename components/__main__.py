"""The Pulumi plugin: serves the components to programs in any language (`pulumi package add`)."""

import pulumi
from pulumi.provider.experimental import component_provider_host

from eks_llm.aws.cluster import Cluster
from eks_llm.aws.network import Network
from eks_llm.aws.node_pool import GpuNodePool
from eks_llm.aws.weights import Weights
from eks_llm.operators.gpu_operator import GpuOperator
from eks_llm.operators.keda import Keda
from eks_llm.operators.load_balancer import LoadBalancerController
from eks_llm.operators.monitoring import Monitoring
from eks_llm.operators.node_autoscaler import NodeAutoscaler
from eks_llm.serving.existing_cluster import ExistingCluster
from eks_llm.serving.service import InferenceService
from eks_llm.version import __version__

COMPONENTS: list[type[pulumi.ComponentResource]] = [
    Cluster,
    ExistingCluster,
    GpuNodePool,
    GpuOperator,
    InferenceService,
    Keda,
    LoadBalancerController,
    Monitoring,
    Network,
    NodeAutoscaler,
    Weights,
]

if __name__ == "__main__":
    component_provider_host(COMPONENTS, "eks-llm", version=__version__)
