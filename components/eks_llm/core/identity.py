"""IAM policy documents, and the trust policy of an EKS Pod Identity role. Text in, text out."""

import json
from typing import Any


def policy(*statements: dict[str, Any]) -> str:
    """An IAM policy document as JSON."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)}, ensure_ascii=False)


def service_trust(service: str) -> str:
    """Trust policy that lets one AWS service take the role, e.g. `ec2.amazonaws.com`."""
    return policy({"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"})


def pod_identity_trust(cluster: str, namespace: str, service_account: str) -> str:
    """Trust policy that lets pods of one ServiceAccount, in one namespace of one cluster, take the role.

    Without the conditions, an association made by somebody else could hand the role to any pod.
    Source: EKS user guide, "Create IAM role with trust policy required by EKS Pod Identity".
    """
    return policy(
        {
            "Effect": "Allow",
            "Principal": {"Service": "pods.eks.amazonaws.com"},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Condition": {
                "StringEquals": {
                    "aws:RequestTag/eks-cluster-name": cluster,
                    "aws:RequestTag/kubernetes-namespace": namespace,
                    "aws:RequestTag/kubernetes-service-account": service_account,
                }
            },
        }
    )
