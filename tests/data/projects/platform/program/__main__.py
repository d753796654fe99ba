"""A platform of plain resources: what the preview has to show, whichever component made it."""

from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_llm.aws.network import Network

print("what a program prints must not mix with the report")
config = pulumi.Config()
zones = ["us-west-2a", "us-west-2b", "us-west-2c"]
network = Network("platform", {"region": "us-west-2", "zones": zones})


class Part(pulumi.ComponentResource):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"example:index:{kind}", name, {})
        self.inside = pulumi.ResourceOptions(parent=self)


cluster = Part("Cluster", "platform")
role = aws.iam.Role("platform-node", assume_role_policy="{}", opts=cluster.inside)
eks = aws.eks.Cluster(
    "platform",
    version="1.35",
    role_arn=role.arn,
    vpc_config={"subnet_ids": network.private_subnet_ids.apply(lambda ids: list(ids.values()))},
    opts=cluster.inside,
)
aws.eks.NodeGroup(
    "platform-system",
    cluster_name=eks.name,
    node_role_arn=role.arn,
    subnet_ids=[network.private_subnet_ids["us-west-2a"], network.private_subnet_ids["us-west-2b"]],
    instance_types=["m7i.xlarge"],
    scaling_config={"min_size": 2, "max_size": 4, "desired_size": 2},
    opts=cluster.inside,
)
for addon, version in (("vpc-cni", "v1.20.4-eksbuild.1"), ("coredns", "v1.12.4-eksbuild.1")):
    aws.eks.Addon(
        f"platform-{addon}", cluster_name=eks.name, addon_name=addon, addon_version=version, opts=cluster.inside
    )

pool = Part("GpuNodePool", "a100")
template = aws.ec2.LaunchTemplate("a100", instance_type="p4d.24xlarge", opts=pool.inside)
aws.eks.NodeGroup(
    "a100",
    cluster_name=eks.name,
    node_role_arn=role.arn,
    subnet_ids=[network.private_subnet_ids["us-west-2b"]],
    launch_template={"id": template.id, "version": template.latest_version.apply(str)},
    scaling_config={"min_size": 2, "max_size": 4, "desired_size": 2},
    opts=pool.inside,
)

provider = k8s.Provider("platform", kubeconfig="{}", opts=cluster.inside)
keda = Part("Keda", "keda")
k8s.helm.v3.Release(
    "keda",
    chart="keda",
    version="2.18.1",
    namespace="keda",
    values={"token": config.require_secret("apiKey")},
    opts=pulumi.ResourceOptions(parent=keda, provider=provider),
)

namespace = k8s.core.v1.Namespace("llm", metadata={"name": "llm"}, opts=pulumi.ResourceOptions(provider=provider))
service = Part("InferenceService", "chat")
inside = pulumi.ResourceOptions(parent=service, provider=provider)
meta: Any = {"name": "chat", "namespace": "llm"}
k8s.core.v1.Secret("chat-key", metadata=meta, string_data={"key": config.require_secret("apiKey")}, opts=inside)
k8s.core.v1.ConfigMap("chat-engine", metadata=meta, data={"engine.json": "{}"}, opts=inside)
k8s.core.v1.Service("chat", metadata=meta, spec={"ports": [{"port": 8000}]}, opts=inside)
pods: Any = {**meta, "name": "chat-pods"}
k8s.core.v1.Service("chat-headless", metadata=pods, spec={"cluster_ip": "None"}, opts=inside)
deployment: Any = {
    "selector": {"matchLabels": {"app": "chat"}},
    "template": {
        "metadata": {"labels": {"app": "chat"}},
        "spec": {
            "containers": [
                {
                    "name": "server",
                    "image": "nvcr.io/nvidia/tritonserver:26.08-vllm-python-py3@sha256:" + "0123456789abcdef" * 4,
                    "env": [{"name": "API_KEY", "value": config.require_secret("apiKey")}],
                    "resources": {"limits": {"nvidia.com/gpu": "4"}},
                }
            ]
        },
    },
}
k8s.apps.v1.Deployment("chat", metadata=meta, spec=deployment, opts=inside)
k8s.apiextensions.CustomResource(
    "chat-scaler",
    api_version="keda.sh/v1alpha1",
    kind="ScaledObject",
    metadata=meta,
    spec={
        "scaleTargetRef": {"name": "chat"},
        "minReplicaCount": 2,
        "maxReplicaCount": 6,
        "triggers": [{"type": "prometheus", "name": "in-flight", "metadata": {"threshold": "48"}}],
    },
    opts=inside,
)
k8s.apiextensions.CustomResource(
    "chat-rules",
    api_version="monitoring.coreos.com/v1",
    kind="PrometheusRule",
    metadata=meta,
    spec={"groups": [{"name": "chat", "rules": [{"alert": "LlmQueueGrowing", "expr": "vector(1)"}]}]},
    opts=inside,
)
pulumi.log.warn("pool h100 is used by no service")
pulumi.export("clusterName", eks.name)
pulumi.export("apiKey", config.require_secret("apiKey"))
