"""Names of objects that Kubernetes and AWS make or keep for themselves: `kubernetes_problem`, `aws_problem`."""

import re
from collections.abc import Mapping
from typing import Any

from .names import RANDOM_SUFFIX
from .s3 import bucket_problem

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
"""Made by Kubernetes in every cluster. Source: Kubernetes documentation, "Namespaces", "Initial namespaces"."""

MADE_IN_EVERY_NAMESPACE = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
"""Source: Kubernetes documentation, "Configure Service Accounts for Pods" and "Managing Service Accounts"."""

_LABEL = {"Service": r"[a-z]([-a-z0-9]*[a-z0-9])?", "Namespace": r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"}
"""Kinds whose name is a DNS label of 63 characters (RFC 1035, RFC 1123); the others have a DNS subdomain of 253."""
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_PATHS = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
"""Kinds whose name may be any path segment, such as `system:x`."""


def namespace_problem(name: str) -> str | None:
    """Why no stack can make a namespace of this name; None if it can."""
    if name in SYSTEM_NAMESPACES:
        return "Kubernetes makes this namespace itself; choose a name of its own, such as inference"
    if name.startswith("kube-"):
        return "Kubernetes keeps names that begin with kube- for itself; choose another, such as inference"
    return None


def kubernetes_problem(kind: str, namespace: str, name: str) -> str | None:
    """Why a cluster takes no object of this kind and name from a stack; None if it does."""
    if (kind, name) in MADE_IN_EVERY_NAMESPACE:
        return "Kubernetes makes one of this name in every namespace itself"
    if (kind, namespace, name) == ("Service", "default", "kubernetes"):
        return "it is the API server's own"
    if kind == "PriorityClass" and name.startswith("system-"):
        return "Kubernetes keeps names that begin with system- for itself"
    own = namespace_problem(name) if kind == "Namespace" else None
    return own or (None if kind in _PATHS else _form_problem(kind, name))


def _form_problem(kind: str, name: str) -> str | None:
    form, limit = _LABEL.get(kind, _SUBDOMAIN), 63 if kind in _LABEL else 253
    if len(name) > limit or not re.fullmatch(form, name):
        return f"not a name of its kind: up to {limit} lower-case letters, digits and '-'"
    return None


AWS_NAMES: Mapping[str, tuple[str, int, str]] = {
    "aws:iam/role:Role": ("name", 64, r"[\w+=,.@-]+"),
    "aws:iam/policy:Policy": ("name", 128, r"[\w+=,.@-]+"),
    "aws:eks/cluster:Cluster": ("name", 100, r"[0-9A-Za-z][A-Za-z0-9_-]*"),
    "aws:eks/nodeGroup:NodeGroup": ("nodeGroupName", 63, r"[0-9A-Za-z][A-Za-z0-9_-]*"),
    "aws:ec2/launchTemplate:LaunchTemplate": ("name", 128, r"[A-Za-z0-9()./_-]{3,}"),
    "aws:cloudwatch/logGroup:LogGroup": ("name", 512, r"(?!aws/)[\w./#-]+"),
}
"""Types with a name that is unique in an account and region: its key, longest length and form. Without one, Pulumi's
provider makes one of the resource's name and a random end. Source: the API references of IAM (`CreateRole`,
`CreatePolicy`), EKS (`CreateCluster`, `CreateNodegroup`), EC2 (`CreateLaunchTemplate`) and CloudWatch Logs
(`CreateLogGroup`)."""

_BUCKET = "aws:s3/bucket:Bucket"


def aws_name(type_: str, inputs: Mapping[str, Any]) -> str | None:
    """The name that a resource is given, where it is one of the account's own; None where Pulumi makes one."""
    key = "bucket" if type_ == _BUCKET else AWS_NAMES[type_][0] if type_ in AWS_NAMES else ""
    name = inputs.get(key)
    return name if isinstance(name, str) else None


def aws_problem(type_: str, resource: str, name: str | None) -> str | None:
    """Why AWS takes no such name; None if it does. `resource`: Pulumi's name, of which it makes one without `name`."""
    if type_ == _BUCKET:
        return bucket_problem(name) if name else None
    if type_ not in AWS_NAMES:
        return None
    _, limit, form = AWS_NAMES[type_]
    if not re.fullmatch(form, name or resource, re.ASCII):
        return f"not a name of its kind, which has the form {form}"
    if (length := len(name) if name else len(resource) + RANDOM_SUFFIX) > limit:
        return f"{length} characters{'' if name else ' with a random end'}; at most {limit}"
    return None
