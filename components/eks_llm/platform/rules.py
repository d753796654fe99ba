"""Rules across the sections of a stack file: that names meet, that ranges do not overlap, that GPUs suffice."""

from collections.abc import Iterator

from ..aws.cluster import Cluster
from ..aws.network import Network
from ..aws.node_pool import GpuNodePool, PoolSettings
from ..aws.nodes import release_problem
from ..aws.weights import Weights, WeightsInputs
from ..catalog.images import IMAGES, driver_problem
from ..core.names import name_problem
from ..core.problems import Problem, nearest
from ..operators.gpu_operator import GpuOperator, GpuOperatorSettings
from ..operators.keda import Keda, KedaSettings
from ..operators.load_balancer import LoadBalancerController, LoadBalancerControllerSettings
from ..operators.monitoring import Monitoring
from ..operators.node_autoscaler import NodeAutoscaler, NodeAutoscalerSettings
from ..serving.existing_cluster import ExistingCluster, ExistingClusterInputs, ExistingPool
from ..serving.service import InferenceService, ServiceInputs
from . import fits, names
from .schema import NAMESPACE, AwsAccess, Platform
from .sections import Sections
from .sum import Part, part

LONGEST_ROLE = "-aws-ebs-csi-driver"
"""What the longest name among the cluster's IAM roles appends to the cluster's."""


# Checks across sections ---------------------------------------------------------------------------------------------
# Each yields problems and skips what is absent because it was wrong by itself.


def _zones(sections: Sections, region: str) -> Iterator[Problem]:
    network = sections.network
    if not network:
        return
    places = [("platform.network.zones", zone) for zone in network.zones]
    if given := network.existing:
        below = {"privateSubnetIds": given.private_subnet_ids, "publicSubnetIds": given.public_subnet_ids}
        places = [(f"platform.network.existing.{key}", zone) for key, subnets in below.items() for zone in subnets]
    for path, zone in places:
        if region and zone[:-1] != region:
            yield Problem(path, f"{zone!r} is not in region {region} (aws:region)")
    for name, pool in sections.gpu_pools.items():
        if isinstance(pool, PoolSettings) and pool.zone not in network.zone_names:
            key, known = "existing.privateSubnetIds" if given else "zones", ", ".join(network.zone_names)
            yield Problem(f"platform.gpuPools.{name}.zone", f"{pool.zone!r} has no subnet; network.{key} has {known}")


def _keys(sections: Sections, region: str) -> Iterator[Problem]:
    """KMS encrypts objects of a bucket with keys of its region only. Source: S3 user guide, "SSE-KMS"."""
    key = sections.weights.kms_key if sections.weights else None
    if key and region and key.split(":")[3] != region:
        yield Problem(
            "platform.weights.kmsKey", f"a key of {key.split(':')[3]}; the bucket is in {region} (aws:region)"
        )


def _some_pool(sections: Sections, _region: str) -> Iterator[Problem]:
    if sections.pool_names == []:
        yield Problem("platform.gpuPools", "empty; services run on a pool of GPU nodes")


def _ranges(sections: Sections, _region: str) -> Iterator[Problem]:
    network, cluster = sections.network, sections.cluster
    if network and cluster and not network.existing and network.cidr.overlaps(cluster.service_cidr):
        yield Problem(
            "platform.cluster.serviceCidr",
            f"'{cluster.service_cidr}' overlaps network.cidr {network.cidr}: Services would hide hosts of the VPC",
        )


def _placement(sections: Sections, _region: str) -> Iterator[Problem]:
    for name, service in sections.services.items():
        path, names = f"platform.services.{name}", sections.pool_names
        if names and service.pool not in names:
            yield Problem(f"{path}.pool", f"no pool {service.pool!r}{nearest(service.pool, names)}")
        if pool := sections.gpu_pools.get(service.pool):
            for fault in service.misfits(pool.instance_type):
                yield Problem(f"{path}.{fault.where()}", fault.text())
            if problem := service.adapter_problem(name):
                yield Problem(f"{path}.engine.loraAdapters", problem)
            driver = pool.ami_type.facts.driver if isinstance(pool, PoolSettings) else ""
            if driver and (problem := driver_problem(IMAGES[service.runtime.value], driver)):
                yield Problem(f"{path}.runtime", problem)


def _releases(sections: Sections, _region: str) -> Iterator[Problem]:
    cluster = sections.cluster
    for name, pool in sections.gpu_pools.items():
        release = pool.ami_release if isinstance(pool, PoolSettings) else None
        if cluster and release and (problem := release_problem(release, cluster.version)):
            yield Problem(f"platform.gpuPools.{name}.amiRelease", problem)


def _one_ami_family(sections: Sections, _region: str) -> Iterator[Problem]:
    types = {name: pool.ami_type for name, pool in sections.gpu_pools.items() if isinstance(pool, PoolSettings)}
    if len({type_.family for type_ in types.values()}) > 1:
        listed = ", ".join(f"{name}: {type_.value}" for name, type_ in types.items())
        yield Problem("platform.gpuPools", f"one GPU operator serves all pools, so their AMIs must agree ({listed})")


def _weights_buckets(sections: Sections, _region: str) -> Iterator[Problem]:
    weights = sections.weights
    for name, service in sections.services.items():
        bucket = service.weights.removeprefix("s3://").split("/")[0]
        if weights and bucket != weights.bucket:
            yield Problem(
                f"platform.services.{name}.weights",
                f"bucket {bucket!r} is not weights.bucket {weights.bucket!r}, which the service's role may read",
            )


RULES = [
    _some_pool,
    _zones,
    _keys,
    _ranges,
    _placement,
    _releases,
    _one_ami_family,
    _weights_buckets,
    *fits.RULES,
    *names.RULES,
]


def cluster_name(name: str) -> Iterator[Problem]:
    if problem := name_problem(name, LONGEST_ROLE):
        yield Problem("", f"project and stack name the cluster, {name!r}: {problem}; choose another stack name")


# Parts --------------------------------------------------------------------------------------------------------------


def parts(name: str, sections: Sections) -> Iterator[Part]:
    """What the program makes of a stack file, as far as it is right, each with its settings. `name`: of the cluster."""
    namespace, monitoring = NAMESPACE, "monitoring"
    if given := sections.existing_cluster:
        namespace, monitoring = given.namespace, given.monitoring_namespace
    pools = {key: pool for key, pool in sections.gpu_pools.items() if isinstance(pool, ExistingPool)}
    if pools:
        told = ExistingClusterInputs(
            gpu_pools=pools, prometheus_url="http://unknown", namespace=namespace, monitoring_namespace=monitoring
        )
        yield part(ExistingCluster, name, told)
    if not given:
        yield from _made(name, sections)
    # Of what cannot run on its nodes, the arithmetic would only say more that is not true.
    for key, service in sections.services.items():
        pool = sections.gpu_pools.get(service.pool)
        if pool and not any(service.misfits(pool.instance_type)):
            more = {"namespace": namespace, "monitoring_namespace": monitoring}
            yield part(InferenceService, key, ServiceInputs.model_validate({**service.args(), **more}))


def _made(name: str, sections: Sections) -> Iterator[Part]:
    """The network, cluster and operators of a stack that makes them."""
    if sections.network:
        yield part(Network, name, sections.network)
    if sections.cluster:
        yield part(Cluster, name, sections.cluster)
    for key, pool in sections.gpu_pools.items():
        if isinstance(pool, PoolSettings):
            yield part(GpuNodePool, key, pool)
    if sections.weights:
        readers = {key: service.weights for key, service in sections.services.items()}
        told = {**sections.weights.args(), "namespace": NAMESPACE, "readers": readers}
        yield part(Weights, "weights", WeightsInputs.model_validate(told))
    if sections.monitoring:
        yield part(Monitoring, "monitoring", sections.monitoring)
    yield part(Keda, "keda", KedaSettings())
    yield part(LoadBalancerController, "load-balancer", LoadBalancerControllerSettings())
    yield part(NodeAutoscaler, "node-autoscaler", NodeAutoscalerSettings())
    yield part(GpuOperator, "gpu-operator", GpuOperatorSettings())


# Warnings -----------------------------------------------------------------------------------------------------------


def warnings(platform: Platform, access: AwsAccess) -> Iterator[str]:
    if access.profile or access.assume_roles:
        key = "aws:profile" if access.profile else "aws:assumeRoles"
        yield (
            f"{key}: the Kubernetes provider signs in with the AWS CLI, which does not know of it: "
            "set AWS_PROFILE to a profile of that identity too"
        )
    used = {service.pool for service in platform.services.values()}
    for name, pool in platform.gpu_pools.items():
        if name not in used and isinstance(pool, PoolSettings):
            yield f"gpuPools.{name}: no service uses this pool ({pool.nodes.min} to {pool.nodes.max} nodes)"
    for name, service in platform.services.items():
        image = IMAGES[service.runtime.value]
        if image.digest is None:
            pin = "whoever can push this tag changes what the pods run; docs/images.md says how to pin it"
            yield f"services.{name}: image {image.reference} has no digest: {pin}"
