"""A cluster that exists, with its operators: see docs/existing-cluster.md for what it must have."""

from typing import Any, cast

import pulumi

from eks_llm.platform import ExistingPlatform, Settings
from eks_llm.serving.existing_cluster import ExistingCluster
from serving_cluster import ServingCluster


def connect(name: str, platform: ExistingPlatform, settings: Settings) -> ServingCluster:
    """The cluster of `platform.existingCluster`; nothing in it is made or changed but the services."""
    given = platform.existing_cluster
    # Unknown only in a preview: `load` refuses an update without the file.
    unknown: pulumi.Output[str] = pulumi.Output.from_input(cast(Any, pulumi.UNKNOWN))
    cluster = ExistingCluster(
        name,
        {
            "gpu_pools": {pool_name: pool.args() for pool_name, pool in platform.gpu_pools.items()},
            "prometheus_url": given.prometheus_url,
            "namespace": given.namespace,
            "monitoring_namespace": given.monitoring_namespace,
            "kubeconfig": settings.kubeconfig or unknown,
            "identity": given.identity,
        },
    )
    return ServingCluster(
        kubernetes=cluster.kubernetes,
        namespace=given.namespace,
        prometheus_url=given.prometheus_url,
        monitoring_namespace=given.monitoring_namespace,
        exports={"cluster": given.identity, "prometheus": given.prometheus_url},
    )
