"""The reference program: one LLM platform per stack. Read it from top to bottom."""

from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s
from pulumi import ResourceOptions

import eks_cluster
import existing_cluster
from eks_llm.platform import ExistingPlatform, load
from eks_llm.platform.sum import outputs, usd_per_gpu_hour
from eks_llm.platform.times import node_start
from eks_llm.serving.service import InferenceService, InferenceServiceArgs

# Settings: all that is wrong with the stack file, or cannot run, is said here, before anything is registered.
stack = pulumi.get_stack()
name = f"{pulumi.get_project()}-{stack}"
settings = load(pulumi.Config(), stack, root=Path(__file__).parents[1])
platform = settings.platform

# Where services run: a cluster that exists and has its operators, or a new one in AWS with operators of our own.
if isinstance(platform, ExistingPlatform):
    cluster = existing_cluster.connect(name, platform, settings)
else:
    cluster = eks_cluster.build(name, platform, settings)

# Services: each reads its own weights only, and KEDA scales it on what Prometheus scrapes from it.
namespace = k8s.core.v1.Namespace(
    cluster.namespace,
    # Pods read weights from the node's NVMe through hostPath, which the milder Pod Security levels refuse.
    metadata={"name": cluster.namespace, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    opts=ResourceOptions(provider=cluster.kubernetes),
)
on_all = ResourceOptions(providers=[cluster.kubernetes], depends_on=[namespace, *cluster.ready])
services: dict[str, InferenceService] = {}
for service_name, service in platform.services.items():
    args = InferenceServiceArgs(
        **service.args(),
        namespace=cluster.namespace,
        instance_type=platform.gpu_pools[service.pool].instance_type,
        node_start=str(node_start(platform.gpu_pools[service.pool])),
        prometheus_url=cluster.prometheus_url,
        monitoring_namespace=cluster.monitoring_namespace,
        runbooks=cluster.runbooks,
    )
    if price := usd_per_gpu_hour(settings.report, service.pool):
        args["usd_per_gpu_hour"] = price
    if settings.region:
        args["region"] = settings.region
    if service.api_key_secret:
        args["api_key"] = settings.secret(service.api_key_secret)
    services[service_name] = InferenceService(service_name, args, on_all)

# What other stacks and people need; README says how to use them.
pulumi.export("services", {service_name: service.url for service_name, service in services.items()})
for key, value in {**cluster.exports, **outputs(settings.report)}.items():
    pulumi.export(key, value)
