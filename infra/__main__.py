"""The reference program: one LLM platform per stack. Read it from top to bottom."""

from pathlib import Path

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
from pulumi import ResourceOptions
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

# Settings: everything that is wrong with the stack file is said here, before anything is registered.
stack = pulumi.get_stack()
name = f"{pulumi.get_project()}-{stack}"
settings = load(pulumi.Config(), stack)
platform = settings.platform
for warning in settings.warnings:
    pulumi.log.warn(warning)

# AWS: the network, the cluster, its GPU node pools, and the weights.
account = aws.Provider(
    "aws",
    region=settings.region,
    default_tags={"tags": {"project": pulumi.get_project(), "stack": stack, **platform.tags}},
)
lasting = ResourceOptions(providers=[account], protect=platform.protect)

network = Network(name, NetworkArgs(**platform.network.args(), region=settings.region), lasting)
cluster = Cluster(
    name,
    ClusterArgs(**platform.cluster.args(), subnet_ids=network.private_subnet_ids.apply(lambda ids: list(ids.values()))),
    ResourceOptions.merge(lasting, ResourceOptions(depends_on=[network])),
)
on_cluster = ResourceOptions(providers=[account, cluster.kubernetes], depends_on=[cluster])
pools = [
    GpuNodePool(
        pool_name,
        GpuNodePoolArgs(
            **pool.args(),
            cluster_name=cluster.cluster_name,
            kubernetes_version=platform.cluster.version,
            subnet_id=network.private_subnet_ids[pool.zone],
            security_group_id=cluster.security_group_id,
            node_role_arn=cluster.node_role_arn,
        ),
        on_cluster,
    )
    for pool_name, pool in platform.gpu_pools.items()
]

# Operators. Monitoring comes first: the others publish their metrics through its custom resources.
monitoring = Monitoring(
    "monitoring",
    MonitoringArgs(**platform.monitoring.args(), grafana_admin_password=settings.secret(GRAFANA_SECRET)),
    on_cluster,
)
after_monitoring = ResourceOptions.merge(on_cluster, ResourceOptions(depends_on=[monitoring]))
after_pools = ResourceOptions.merge(after_monitoring, ResourceOptions(depends_on=pools))

keda = Keda("keda", {}, after_monitoring)
load_balancer = LoadBalancerController(
    "load-balancer",
    {"cluster_name": cluster.cluster_name, "region": settings.region, "vpc_id": network.vpc_id},
    after_monitoring,
)
autoscaler = NodeAutoscaler(
    "node-autoscaler",
    {"cluster_name": cluster.cluster_name, "region": settings.region, "kubernetes_version": platform.cluster.version},
    after_pools,
)
gpu_operator = GpuOperator("gpu-operator", {"ami_type": settings.ami_type}, after_pools)

# Services: each reads its own weights only, and is scaled by KEDA on what Prometheus scrapes from it.
namespace = k8s.core.v1.Namespace(
    "inference", metadata=namespace_metadata("inference"), opts=ResourceOptions(provider=cluster.kubernetes)
)
weights = Weights(
    "weights",
    WeightsArgs(
        **platform.weights.args(),
        cluster_name=cluster.cluster_name,
        namespace="inference",
        readers={service_name: service.weights for service_name, service in platform.services.items()},
    ),
    ResourceOptions.merge(lasting, ResourceOptions(depends_on=[cluster])),
)
