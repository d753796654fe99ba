"""Every component with the arguments that make it register all kinds of its children, for tests of all components."""

from collections.abc import Callable
from typing import Any

import pulumi

from eks_llm import (
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
)
from tests.unit.serving import REPOSITORY, service_args

ZONES = ["us-west-2a", "us-west-2b"]
CLUSTER = {"cluster_name": "main", "region": "us-west-2"}
FULL: dict[Callable[..., pulumi.ComponentResource], list[dict[str, Any]]] = {
    Network: [{"region": "us-west-2", "zones": ZONES, "interface_endpoints": ["ecr.api", "sts"]}],
    Cluster: [
        {
            "version": "1.35",
            "admins": ["arn:aws:iam::111122223333:role/platform-admin"],
            "subnet_ids": ["subnet-00000001", "subnet-00000002"],
            "log_types": ["audit"],
        }
    ],
    GpuNodePool: [
        {
            "instance_type": "p4d.24xlarge",
            "zone": "us-west-2b",
            "nodes": {"min": 0, "max": 2},
            "cluster_name": "main",
            "kubernetes_version": "1.35",
            "subnet_id": "subnet-00000002",
            "security_group_id": "sg-00000001",
            "node_role_arn": "arn:aws:iam::111122223333:role/node",
            "vpc_id": "vpc-00000001",
            "efa": True,
            "placement_group": True,
        }
    ],
    Weights: [
        {
            "create": True,
            "bucket": "acme-models",
            "cluster_name": "main",
            "namespace": "inference",
            "readers": {"llama": "s3://acme-models/llama/"},
        }
    ],
    Monitoring: [{"grafana_admin_password": "not-a-real-one"}],
    Keda: [{}],
    GpuOperator: [{"ami_type": "AL2023_x86_64_NVIDIA"}],
    NodeAutoscaler: [{**CLUSTER, "kubernetes_version": "1.35"}],
    LoadBalancerController: [{**CLUSTER, "vpc_id": "vpc-00000001"}],
    ExistingCluster: [
        {
            "kubeconfig": "apiVersion: v1",
            "identity": "team",
            "gpu_pools": {"a100": {"instance_type": "p4d.24xlarge", "nodes": 1}},
            "prometheus_url": "http://prometheus.monitoring.svc:9090",
        }
    ],
    InferenceService: [
        service_args(priority=10, api_key_secret="key", api_key="not-a-real-one"),
        service_args(runtime="triton", model_repository=REPOSITORY),
    ],
}
