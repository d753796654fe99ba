"""AWS permissions of an operator's pods: a role that one ServiceAccount of one cluster obtains by Pod Identity."""

import pulumi
import pulumi_aws as aws

from ..core.identity import pod_identity_trust


def pod_identity(
    name: str,
    cluster_name: pulumi.Input[str],
    namespace: str,
    service_account: str,
    *,
    policy: pulumi.Input[str],
    parent: pulumi.Resource,
) -> list[pulumi.Resource]:
    """What the release that makes the pods depends on.

    A pod receives credentials only if its ServiceAccount has a role when the pod is created.
    """
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
    return [permissions, association]
