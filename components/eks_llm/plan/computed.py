"""What the cloud would fill in: placeholders for attributes that are known only after `pulumi up`.

A placeholder reads like `‹dev-cluster.endpoint›`, so a policy or a manifest that uses one stays readable.
"""

from typing import Any

COMPUTED: dict[str, tuple[str, ...]] = {
    "aws:cloudwatch/logGroup:LogGroup": ("arn",),
    "aws:ec2/eip:Eip": ("publicIp", "allocationId"),
    "aws:ec2/securityGroup:SecurityGroup": ("arn",),
    "aws:ec2/vpc:Vpc": ("arn", "defaultSecurityGroupId"),
    "aws:eks/cluster:Cluster": ("arn", "endpoint", "platformVersion", "region"),
    "aws:eks/nodeGroup:NodeGroup": ("arn",),
    "aws:iam/policy:Policy": ("arn",),
    "aws:iam/role:Role": ("arn",),
    "aws:kms/key:Key": ("arn", "keyId"),
    "aws:s3/bucket:Bucket": ("arn", "bucketDomainName"),
    "aws:sqs/queue:Queue": ("arn", "url"),
}
"""Computed attributes that the components read, by resource type. Source: pulumi-aws SDK output properties."""

NAMED_BY_PROVIDER: dict[str, str] = {
    "aws:cloudwatch/logGroup:LogGroup": "name",
    "aws:ec2/placementGroup:PlacementGroup": "name",
    "aws:eks/cluster:Cluster": "name",
    "aws:eks/nodeGroup:NodeGroup": "nodeGroupName",
    "aws:iam/policy:Policy": "name",
    "aws:iam/role:Role": "name",
    "aws:s3/bucket:Bucket": "bucket",
}
"""The property that the provider fills with a generated name when the program gives none."""


def computed(type_: str, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """The state of a resource right after its creation: its inputs and a placeholder for each computed attribute."""
    state: dict[str, Any] = {attribute: f"‹{name}.{attribute}›" for attribute in COMPUTED.get(type_, ())}
    if key := NAMED_BY_PROVIDER.get(type_):
        state[key] = name
    state |= inputs
    if type_ == "aws:eks/cluster:Cluster":
        state["certificateAuthority"] = {"data": f"‹{name}.certificateAuthority›"}
        state["vpcConfig"] = {**inputs.get("vpcConfig", {}), "clusterSecurityGroupId": f"‹{name}.securityGroup›"}
        state["identities"] = [{"oidcs": [{"issuer": f"https://‹{name}.issuer›"}]}]
    elif type_ == "aws:eks/nodeGroup:NodeGroup":
        state["resources"] = [{"autoscalingGroups": [{"name": f"‹{name}.autoscalingGroup›"}]}]
    elif type_ == "aws:ec2/launchTemplate:LaunchTemplate":
        state["latestVersion"] = 1
    return state
