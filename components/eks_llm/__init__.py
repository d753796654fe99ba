"""Typed Pulumi components for serving large language models on EKS.

The components and their argument types can be imported from here: `from eks_llm import Network, NetworkArgs`. They are
loaded when they are first asked for, since the SDKs of AWS and Kubernetes take seconds to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aws.cluster import Cluster, ClusterArgs
    from .aws.network import Network, NetworkArgs
    from .aws.node_pool import GpuNodePool, GpuNodePoolArgs
    from .aws.weights import Weights, WeightsArgs
    from .operators.gpu_operator import GpuOperator, GpuOperatorArgs
    from .operators.keda import Keda, KedaArgs
    from .operators.load_balancer import LoadBalancerController, LoadBalancerControllerArgs
    from .operators.monitoring import Monitoring, MonitoringArgs
    from .operators.node_autoscaler import NodeAutoscaler, NodeAutoscalerArgs
    from .serving.endpoint import Endpoint
    from .serving.existing_cluster import ExistingCluster, ExistingClusterArgs
    from .serving.service import InferenceService, InferenceServiceArgs, Runtime

_HOMES = {
    "aws.cluster": ("Cluster", "ClusterArgs"),
    "aws.network": ("Network", "NetworkArgs"),
    "aws.node_pool": ("GpuNodePool", "GpuNodePoolArgs"),
    "aws.weights": ("Weights", "WeightsArgs"),
    "operators.gpu_operator": ("GpuOperator", "GpuOperatorArgs"),
    "operators.keda": ("Keda", "KedaArgs"),
    "operators.load_balancer": ("LoadBalancerController", "LoadBalancerControllerArgs"),
    "operators.monitoring": ("Monitoring", "MonitoringArgs"),
    "operators.node_autoscaler": ("NodeAutoscaler", "NodeAutoscalerArgs"),
    "serving.endpoint": ("Endpoint",),
    "serving.existing_cluster": ("ExistingCluster", "ExistingClusterArgs"),
    "serving.service": ("InferenceService", "InferenceServiceArgs", "Runtime"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Cluster",
    "ClusterArgs",
    "Endpoint",
    "ExistingCluster",
    "ExistingClusterArgs",
    "GpuNodePool",
    "GpuNodePoolArgs",
    "GpuOperator",
    "GpuOperatorArgs",
    "InferenceService",
    "InferenceServiceArgs",
    "Keda",
    "KedaArgs",
    "LoadBalancerController",
    "LoadBalancerControllerArgs",
    "Monitoring",
    "MonitoringArgs",
    "Network",
    "NetworkArgs",
    "NodeAutoscaler",
    "NodeAutoscalerArgs",
    "Runtime",
    "Weights",
    "WeightsArgs",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
