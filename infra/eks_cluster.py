"""A new EKS cluster in a VPC of its own, with GPU nodes, weights and operators. Read it from top to bottom."""

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from eks_llm.aws.cluster import Cluster, ClusterArgs
from eks_llm.aws.network import Network, NetworkArgs
from eks_llm.aws.node_pool import GpuNodePool, GpuNodePoolArgs
from eks_llm.aws.weights import Weights, WeightsArgs
from eks_llm.operators import monitoring as prometheus
from eks_llm.operators.gpu_operator import GpuOperator
from eks_llm.operators.keda import Keda
from eks_llm.operators.load_balancer import LoadBalancerController
from eks_llm.operators.monitoring import Monitoring, MonitoringArgs
from eks_llm.operators.node_autoscaler import NodeAutoscaler
from eks_llm.platform import EksPlatform, Settings
from eks_llm.platform.schema import GRAFANA_SECRET, NAMESPACE
from eks_llm.platform.times import node_idle_time, node_provision_time
from serving_cluster import ServingCluster


def build(name: str, platform: EksPlatform, settings: Settings) -> ServingCluster:
    """Registers everything below the services. `name`: of the cluster, and of what belongs to it."""
    # AWS: the network, the cluster, its GPU node pools, and the weights.
    tags = {"project": pulumi.get_project(), "stack": pulumi.get_stack(), **platform.tags}
    account = aws.Provider("aws", region=settings.region, default_tags={"tags": tags}, **settings.provider_args())
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
        MonitoringArgs(
            **platform.monitoring.args(),
            grafana_admin_password=settings.secret(GRAFANA_SECRET),
            capacity_blocks={
                pool_name: pool.capacity.ends_at.isoformat()
                for pool_name, pool in platform.gpu_pools.items()
                if pool.capacity.ends_at
            },
        ),
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
        {
            "cluster_name": cluster.cluster_name,
            "region": settings.region,
            "kubernetes_version": platform.cluster.version,
            "max_node_provision_time": str(node_provision_time(platform.gpu_pools)),
            "scale_down_unneeded_time": str(node_idle_time(platform.gpu_pools, platform.services)),
        },
        after_pools,
    )
    gpu_operator = GpuOperator("gpu-operator", {"ami_type": platform.ami_type}, after_pools)

    return ServingCluster(
        kubernetes=cluster.kubernetes,
        namespace=NAMESPACE,
        prometheus_url=monitoring.prometheus_url,
        monitoring_namespace=prometheus.NAMESPACE,
        runbooks=platform.monitoring.runbooks,
        exports={"cluster": cluster.cluster_name, "prometheus": monitoring.prometheus_url},
        ready=[weights, monitoring, keda, gpu_operator, *pools],
    )
