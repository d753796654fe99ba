"""The reference program: one LLM platform per stack. Read it from top to bottom."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
from pulumi import ResourceOptions

from eks_llm.aws.cluster import Cluster, ClusterArgs
from eks_llm.aws.network import Network, NetworkArgs
from eks_llm.aws.node_pool import GpuNodePool, GpuNodePoolArgs
from eks_llm.aws.weights import Weights, WeightsArgs
from eks_llm.operators.gpu_operator import GpuOperator
from eks_llm.operators.keda import Keda
from eks_llm.operators.load_balancer import LoadBalancerController
from eks_llm.operators.monitoring import Monitoring, MonitoringArgs
from eks_llm.operators.node_autoscaler import NodeAutoscaler
from eks_llm.preflight import outputs
from eks_llm.serving.service import InferenceService, InferenceServiceArgs
from settings import GRAFANA_SECRET, NAMESPACE, load

# Settings: all that is wrong with the stack file, or cannot run, is said here, before anything is registered.
stack = pulumi.get_stack()
name = f"{pulumi.get_project()}-{stack}"
settings = load(pulumi.Config(), stack)
platform = settings.platform

# AWS: the network, the cluster, its GPU node pools, and the weights.
tags = {"project": pulumi.get_project(), "stack": stack, **platform.tags}
account = aws.Provider("aws", region=settings.region, default_tags={"tags": tags}, **settings.access.provider_args())
lasting = ResourceOptions(providers=[account], protect=platform.protect)

network = Network(name, NetworkArgs(**platform.network.args(), region=settings.region), lasting)
cluster = Cluster(
    name,
    ClusterArgs(
        **platform.cluster.args(),
        subnet_ids=network.private_subnet_ids.apply(lambda ids: list(ids.values())),
        tags=tags,
    ),
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
            vpc_id=network.vpc_id,
            tags=tags,
        ),
        on_cluster,
    )
    for pool_name, pool in platform.gpu_pools.items()
]
weights = Weights(
    "weights",
    WeightsArgs(
        **platform.weights.args(),
        cluster_name=cluster.cluster_name,
        namespace=NAMESPACE,
        readers={service_name: service.weights for service_name, service in platform.services.items()},
    ),
    lasting,
)

# Operators. Monitoring comes first: the others publish their metrics through its custom resources.
monitoring = Monitoring(
    "monitoring",
    MonitoringArgs(**platform.monitoring.args(), grafana_admin_password=settings.secret(GRAFANA_SECRET)),
    on_cluster,
)
after_monitoring = ResourceOptions.merge(on_cluster, ResourceOptions(depends_on=[monitoring]))
after_pools = ResourceOptions.merge(after_monitoring, ResourceOptions(depends_on=pools))

keda = Keda("keda", {}, after_monitoring)
LoadBalancerController(
    "load-balancer",
    {"cluster_name": cluster.cluster_name, "region": settings.region, "vpc_id": network.vpc_id},
    after_monitoring,
)
NodeAutoscaler(
    "node-autoscaler",
    {"cluster_name": cluster.cluster_name, "region": settings.region, "kubernetes_version": platform.cluster.version},
    after_pools,
)
gpu_operator = GpuOperator("gpu-operator", {"ami_type": settings.ami_type}, after_pools)

# Services: each reads its own weights only, and KEDA scales it on what Prometheus scrapes from it.
namespace = k8s.core.v1.Namespace(
    NAMESPACE,
    # Pods read weights from the node's NVMe through hostPath, which the milder Pod Security levels refuse.
    metadata={"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    opts=ResourceOptions(provider=cluster.kubernetes),
)
on_all = ResourceOptions(
    providers=[cluster.kubernetes], depends_on=[namespace, weights, monitoring, keda, gpu_operator, *pools]
)
services: dict[str, InferenceService] = {}
for service_name, service in platform.services.items():
    args = InferenceServiceArgs(
        **service.args(),
        namespace=NAMESPACE,
        instance_type=platform.gpu_pools[service.pool].instance_type,
        prometheus_url=monitoring.prometheus_url,
        region=settings.region,
    )
    if service.api_key_secret:
        args["api_key"] = settings.secret(service.api_key_secret)
    services[service_name] = InferenceService(service_name, args, on_all)

# What other stacks and people need; README says how to use them.
pulumi.export("services", {service_name: service.url for service_name, service in services.items()})
exports = {"cluster": cluster.cluster_name, "prometheus": monitoring.prometheus_url, **outputs(settings.report)}
for key, value in exports.items():
    pulumi.export(key, value)
