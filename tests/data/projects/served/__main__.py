"""A program of another repository that serves a model and never asks for its size."""

import pulumi
import pulumi_kubernetes as k8s

from eks_llm.aws.node_pool import GpuNodePool
from eks_llm.serving.service import InferenceService, Runtime

config = pulumi.Config()
GpuNodePool(
    "a100",
    {
        "instance_type": "p4d.24xlarge",
        "zone": "us-west-2b",
        "nodes": {"min": 1, "max": 1},
        "cluster_name": "theirs",
        "kubernetes_version": "1.35",
        "subnet_id": "subnet-00000001",
        "security_group_id": "sg-00000001",
        "node_role_arn": "arn:aws:iam::111122223333:role/node",
    },
)
InferenceService(
    "chat",
    {
        "model": config.require("model"),
        "weights": "s3://theirs/chat/",
        "pool": "a100",
        "runtime": Runtime.OPENAI,
        "tensor_parallel": 4,
        "scaling": {"min": 1, "max": 2},
        "namespace": "chat",
        "instance_type": "p4d.24xlarge",
        "prometheus_url": "http://prometheus:9090",
    },
    pulumi.ResourceOptions(provider=k8s.Provider("theirs", kubeconfig="apiVersion: v1")),
)
