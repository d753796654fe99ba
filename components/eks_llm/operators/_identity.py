"""AWS permissions of an operator's pods: a role that one ServiceAccount of one cluster obtains by Pod Identity."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from ..core.component import Child
from ..core.identity import pod_identity_trust

CHILDREN = {
    "role": Child(aws.iam.Role, "role", "its role in AWS", {"assume_role_policy": "it names the operator's pods"}),
    "permissions": Child(aws.iam.RolePolicy, "permissions", "what its pods may do in AWS"),
    "identity": Child(
        aws.eks.PodIdentityAssociation,
        "identity",
        "which pods get the role",
        {"namespace": "it is the operator's", "service_account": "it is the operator's"},
    ),
}
"""Children of an operator that calls AWS."""


@dataclass(frozen=True)
class Identity:
    """A role, what it may do, and whose it is."""

    role: aws.iam.Role
    permissions: aws.iam.RolePolicy
    association: aws.eks.PodIdentityAssociation

    @property
    def before_pods(self) -> list[pulumi.Resource]:
        """What the release that makes the pods depends on.

        A pod receives credentials only if its ServiceAccount has a role when the pod is created.
        """
        return [self.permissions, self.association]


def pod_identity(
    name: str,
    cluster_name: pulumi.Input[str],
    namespace: str,
    service_account: str,
    *,
    policy: pulumi.Input[str],
    parent: pulumi.Resource,
) -> Identity:
    """The role of one ServiceAccount of one cluster."""
    here = pulumi.ResourceOptions(parent=parent)
    trust = pulumi.Output.from_input(cluster_name).apply(
        lambda cluster: pod_identity_trust(cluster, namespace, service_account)
    )
    role = aws.iam.Role(f"{name}-role", assume_role_policy=trust, opts=here)
    permissions = aws.iam.RolePolicy(f"{name}-permissions", role=role.name, policy=policy, opts=here)
    association = aws.eks.PodIdentityAssociation(
        f"{name}-identity",
        cluster_name=cluster_name,
        namespace=namespace,
        service_account=service_account,
        role_arn=role.arn,
        opts=here,
    )
    return Identity(role, permissions, association)
