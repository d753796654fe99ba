"""Which changes replace a resource instead of updating it: `replacing`, for the types that the components make.

A preview with credentials asks the providers; this table is what they answer. Sources: `ForceNew` in
terraform-provider-aws (internal/service/…), forceNew in pulumi-kubernetes (provider/pkg/provider/diff.go).
"""

from collections.abc import Iterable

from .recorder import Resource

_BUCKET = ("bucket", "expectedBucketOwner")

AWS: dict[str, tuple[str, ...]] = {
    "aws:cloudwatch/logGroup:LogGroup": ("name", "namePrefix", "logGroupClass"),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": ("vpcId",),
    "aws:ec2/eip:Eip": ("domain", "networkBorderGroup", "publicIpv4Pool"),
    "aws:ec2/launchTemplate:LaunchTemplate": ("name", "namePrefix"),
    "aws:ec2/natGateway:NatGateway": ("subnetId", "allocationId", "connectivityType"),
    "aws:ec2/placementGroup:PlacementGroup": ("name", "strategy", "partitionCount", "spreadLevel"),
    "aws:ec2/route:Route": ("routeTableId", "destinationCidrBlock", "destinationIpv6CidrBlock"),
    "aws:ec2/routeTable:RouteTable": ("vpcId",),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": ("subnetId", "gatewayId"),
    "aws:ec2/securityGroup:SecurityGroup": ("name", "namePrefix", "description", "vpcId"),
    "aws:ec2/subnet:Subnet": ("availabilityZone", "availabilityZoneId", "cidrBlock", "vpcId"),
    "aws:ec2/vpc:Vpc": ("cidrBlock",),
    "aws:ec2/vpcEndpoint:VpcEndpoint": ("serviceName", "vpcEndpointType", "vpcId"),
    "aws:eks/accessEntry:AccessEntry": ("clusterName", "principalArn", "type"),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        "clusterName", "policyArn", "principalArn", "accessScope",
    ),
    "aws:eks/addon:Addon": ("addonName", "clusterName"),
    "aws:eks/cluster:Cluster": (
        "name", "roleArn", "bootstrapSelfManagedAddons", "accessConfig.bootstrapClusterCreatorAdminPermissions",
        "kubernetesNetworkConfig.ipFamily", "kubernetesNetworkConfig.serviceIpv4Cidr",
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        "amiType", "capacityType", "clusterName", "diskSize", "instanceTypes", "nodeGroupName", "nodeRoleArn",
        "subnetIds", "launchTemplate.id", "launchTemplate.name",
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": ("clusterName", "namespace", "serviceAccount"),
    "aws:iam/policy:Policy": ("name", "namePrefix", "path", "description"),
    "aws:iam/role:Role": ("name", "namePrefix", "path"),
    "aws:iam/rolePolicy:RolePolicy": ("name", "namePrefix", "role"),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ("policyArn", "role"),
    "aws:kms/key:Key": ("keyUsage", "customerMasterKeySpec", "multiRegion"),
    "aws:s3/bucket:Bucket": ("bucket", "bucketPrefix", "objectLockEnabled"),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": ("bucket",),
    "aws:s3/bucketPolicy:BucketPolicy": ("bucket",),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": ("bucket",),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _BUCKET,
    "aws:s3/bucketVersioning:BucketVersioning": _BUCKET,
    # A replaced provider replaces all that it has made: `ForcesProviderReplace` in pulumi-terraform-bridge, and
    # DiffConfig in pulumi-kubernetes.
    "pulumi:providers:aws": ("region",),
    "pulumi:providers:kubernetes": ("clusterIdentifier",),
}  # fmt: skip

KUBERNETES: dict[str, tuple[str, ...]] = {
    "ClusterRoleBinding": ("roleRef",),
    "ConfigMap": ("data", "binaryData"),
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "Job": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "Release": ("name", "namespace"),
    "RoleBinding": ("roleRef",),
    "Secret": ("type", "data", "stringData"),
    "Service": ("spec.clusterIP",),
    "StatefulSet": (
        "spec.podManagementPolicy", "spec.revisionHistoryLimit", "spec.selector", "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "StorageClass": ("parameters", "provisioner"),
}  # fmt: skip
ANY_OBJECT = ("apiVersion", "kind", "metadata.name", "metadata.namespace")
"""Of every Kubernetes object."""


def replacing(item: Resource) -> tuple[str, ...]:
    """Keys of `item` whose change replaces it."""
    if item.type.startswith("kubernetes:"):
        return (*ANY_OBJECT, *KUBERNETES.get(item.kind, ()))
    return AWS.get(item.type, ())


def within(key: str, keys: Iterable[str]) -> bool:
    """Whether a changed `key` such as `spec.template.spec.nodeSelector` is one of `keys` or below it."""
    return any(key == one or key.startswith((f"{one}.", f"{one}[")) for one in keys)
