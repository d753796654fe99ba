"""The reference program: one LLM platform per stack. Read it from top to bottom."""

import sys
from pathlib import Path

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
from settings import GRAFANA_SECRET, load

from eks_llm.aws.cluster import Cluster, ClusterArgs
from eks_llm.aws.network import Network, NetworkArgs
from eks_llm.aws.node_pool import GpuNodePool, GpuNodePoolArgs
from eks_llm.aws.weights import Weights, WeightsArgs
from eks_llm.operators.gpu_operator import GpuOperator
from eks_llm.operators.keda import Keda
from eks_llm.operators.load_balancer import LoadBalancerController
from eks_llm.operators.monitoring import Monitoring, MonitoringArgs
from eks_llm.operators.node_autoscaler import NodeAutoscaler
from eks_llm.serving.service import InferenceService, InferenceServiceArgs
