"""What the policy pack checks: rules on the inputs of one resource, on buckets, and on the size of the whole stack.

No import of pulumi_policy, so that the rules are tested like any code. A rule yields a message for each violation.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_llm.preflight import of_components
from eks_llm.sizing.validity import Finding

Props = Mapping[str, Any]
"""Inputs of a resource, keys in camelCase."""


@dataclass(frozen=True)
class Rule:
    """A rule on resources of some types."""

    name: str
    description: str
    types: tuple[str, ...]
    check: Callable[[Props], Iterator[str]]


# AWS ----------------------------------------------------------------------------------------------------------------


def imdsv2(props: Props) -> Iterator[str]:
    options = props.get("metadataOptions") or {}
    if options.get("httpTokens") != "required":
        yield "metadataOptions.httpTokens: set it to required, or a pod can take the node's role through IMDSv1"
    if options.get("httpPutResponseHopLimit") != 1:
        yield "metadataOptions.httpPutResponseHopLimit: set it to 1, or pods reach the node's credentials"


def encrypted_template(props: Props) -> Iterator[str]:
    for index, mapping in enumerate(props.get("blockDeviceMappings") or []):
        disk = mapping.get("ebs")
        if disk is not None and not _true(disk.get("encrypted")):
            yield f"blockDeviceMappings[{index}].ebs.encrypted: the volume is not encrypted"


def encrypted_volume(props: Props) -> Iterator[str]:
    if not _true(props.get("encrypted")):
        yield "encrypted: the volume is not encrypted"


def encrypted_class(props: Props) -> Iterator[str]:
    if props.get("provisioner") == "ebs.csi.aws.com" and not _true((props.get("parameters") or {}).get("encrypted")):
        yield 'parameters.encrypted: volumes of this class are not encrypted; set it to "true"'


def closed_endpoint(props: Props) -> Iterator[str]:
    access = props.get("vpcConfig") or {}
    if access.get("endpointPublicAccess", True):
        cidrs = access.get("publicAccessCidrs") or ["0.0.0.0/0"]
        wide = [cidr for cidr in cidrs if cidr in ("0.0.0.0/0", "::/0")]
        if wide:
            yield f"vpcConfig.publicAccessCidrs: the API server is open to the internet ({', '.join(wide)})"


def encrypted_secrets(props: Props) -> Iterator[str]:
    if "secrets" not in ((props.get("encryptionConfig") or {}).get("resources") or []):
        yield "encryptionConfig: Kubernetes secrets are not encrypted with a key of yours"


def least_privilege(props: Props) -> Iterator[str]:
    for statement in _statements(props.get("policy")):
        everything = "*" in _listed(statement.get("Action")) and "*" in _listed(statement.get("Resource"))
        if statement.get("Effect") == "Allow" and everything:
            yield "policy: allows every action on every resource"


def private_bucket(props: Props) -> Iterator[str]:
    for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"):
        if not props.get(key):
            yield f"{key}: not true, so the bucket can be made public"


def bucket_policy(props: Props) -> Iterator[str]:
    statements = list(_statements(props.get("policy")))
    if any(item.get("Effect") == "Allow" and not item.get("Condition") and _anyone(item) for item in statements):
        yield "policy: allows anyone"
    if not any(item.get("Effect") == "Deny" and _plain_http(item) for item in statements):
        yield "policy: does not deny requests without TLS (aws:SecureTransport false)"


def _anyone(statement: Props) -> bool:
    principal = statement.get("Principal")
    return principal == "*" or (isinstance(principal, Mapping) and "*" in _listed(principal.get("AWS")))


def _plain_http(statement: Props) -> bool:
    return str(((statement.get("Condition") or {}).get("Bool") or {}).get("aws:SecureTransport")).lower() == "false"


def _statements(policy: Any) -> Iterator[Props]:
    document = json.loads(policy) if isinstance(policy, str) and policy else policy or {}
    found = document.get("Statement") or []
    yield from [found] if isinstance(found, Mapping) else found


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value or [])


def _true(value: Any) -> bool:
    return str(value).lower() == "true"


# Kubernetes ---------------------------------------------------------------------------------------------------------


def pods(props: Props) -> Iterator[str]:
    """Of a Pod, or of whatever makes pods."""
    spec = props.get("spec") or {}
    spec = ((spec.get("jobTemplate") or {}).get("spec")) or spec
    spec = ((spec.get("template") or {}).get("spec")) or spec
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"{key}: the pod shares it with its node"
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        name, security = container.get("name"), container.get("securityContext") or {}
        if security.get("privileged"):
            yield f"{name}: privileged"
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: securityContext.allowPrivilegeEscalation is not false"
        image = str(container.get("image", ""))
        if "@" not in image and (":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")):
            yield f"{name}: image {image} names no version"


_WORKLOADS = (
    "kubernetes:core/v1:Pod", "kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:StatefulSet",
    "kubernetes:apps/v1:DaemonSet", "kubernetes:batch/v1:Job", "kubernetes:batch/v1:CronJob",
)  # fmt: skip
_TEMPLATE, _CLUSTER = "aws:ec2/launchTemplate:LaunchTemplate", "aws:eks/cluster:Cluster"

RULES = [
    Rule("imdsv2", "Nodes offer IMDSv2 only, and only to themselves.", (_TEMPLATE,), imdsv2),
    Rule("encrypted-node-volumes", "Volumes of nodes are encrypted.", (_TEMPLATE,), encrypted_template),
    Rule("encrypted-volumes", "EBS volumes are encrypted.", ("aws:ebs/volume:Volume",), encrypted_volume),
    Rule(
        "encrypted-storage-classes",
        "Volumes that pods claim are encrypted.",
        ("kubernetes:storage.k8s.io/v1:StorageClass",),
        encrypted_class,
    ),
    Rule("closed-endpoint", "The API server is not open to the internet.", (_CLUSTER,), closed_endpoint),
    Rule("encrypted-secrets", "Kubernetes secrets are encrypted with a KMS key.", (_CLUSTER,), encrypted_secrets),
    Rule(
        "least-privilege",
        "No IAM policy allows everything.",
        ("aws:iam/policy:Policy", "aws:iam/rolePolicy:RolePolicy"),
        least_privilege,
    ),
    Rule(
        "private-buckets",
        "Buckets cannot be made public.",
        ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",),
        private_bucket,
    ),
    Rule("tls-only-buckets", "Buckets refuse anyone, and plain HTTP.", ("aws:s3/bucketPolicy:BucketPolicy",),
         bucket_policy),
    Rule("confined-pods", "Pods get no more of their node than they need.", _WORKLOADS, pods),
]  # fmt: skip


# The stack ----------------------------------------------------------------------------------------------------------

BUCKET = "aws:s3/bucket:Bucket"
GUARDS = {
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "a BucketPublicAccessBlock",
    "aws:s3/bucketPolicy:BucketPolicy": "a BucketPolicy",
}


def unguarded(resources: Iterable[tuple[str, str, Iterable[str]]]) -> Iterator[tuple[str, str]]:
    """URN of each bucket that lacks a guard, and a message. Takes type, URN and the URNs that `bucket` comes from."""
    listed = list(resources)
    for type_, urn, _ in listed:
        if type_ != BUCKET:
            continue
        for guard, name in GUARDS.items():
            if not any(kind == guard and urn in sources for kind, _, sources in listed):
                yield urn, f"the bucket has no {name.split()[-1]}"


def sizing(components: Iterable[tuple[str, str, Props]]) -> list[Finding]:
    """Memory, parallelism, GPU budget, quotas, prices: what the preview of the reference program checks too.

    Takes type token, name and inputs of resources; those of other types count nothing.
    """
    ours = ((type_.rsplit(":", 1)[-1], name, props) for type_, name, props in components if is_component(type_))
    report = of_components(ours)
    return list(report.findings) if report else []


def is_component(type_: str) -> bool:
    """Whether a type token is one of this package's components."""
    return type_.startswith("eks-llm:index:")
