"""What the policy pack checks: rules on the inputs of one resource, on buckets, and on the size of the whole stack.

No import of pulumi_policy, so that the rules are tested like any code. A rule yields a message for each violation.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from pathlib import PurePosixPath
from typing import Any

from eks_llm.aws.cluster import OPEN_ADDRESSES
from eks_llm.catalog.images import IMAGES
from eks_llm.core.placement import NODE_FOLDER
from eks_llm.platform.sum import of_resources
from eks_llm.serving.risks import RISKS, risky
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


EVERYTHING = r"[*:]+|arn:[*:]+"
"""Of actions and resources: `*`, `*:*`, `arn:*`."""

NARROWING = {
    f"{quantifier}{operator}"
    for quantifier in ("", "foranyvalue:")
    for operator in ("stringequals", "stringequalsignorecase", "stringlike", "arnequals", "arnlike", "ipaddress")
}
CALLERS = {
    "aws:principalarn", "aws:principalaccount", "aws:principalorgid", "aws:sourceaccount", "aws:sourcearn",
    "aws:sourceip", "aws:sourceorgid", "aws:sourceowner", "aws:sourcevpc", "aws:sourcevpce", "aws:userid",
    "s3:dataaccesspointaccount", "s3:dataaccesspointarn",
}  # fmt: skip
"""Condition keys that, with fixed values, make a bucket policy not public. Source: S3 user guide, "Blocking public
access to your Amazon S3 storage", The meaning of "public"."""


# AWS ----------------------------------------------------------------------------------------------------------------


def imdsv2(props: Props) -> Iterator[str]:
    options = props.get("metadataOptions") or {}
    if options.get("httpTokens") != "required":
        yield "metadataOptions.httpTokens: set it to required, or a pod can take the node's role through IMDSv1"
    if options.get("httpPutResponseHopLimit") != 1:
        yield "metadataOptions.httpPutResponseHopLimit: set it to 1, or pods reach the node's credentials"


def encrypted_template(props: Props) -> Iterator[str]:
    mappings = props.get("blockDeviceMappings") or []
    if not any(mapping.get("ebs") for mapping in mappings):
        yield "blockDeviceMappings: names no volume, so the root volume is as the AMI has it: not encrypted"
    for index, mapping in enumerate(mappings):
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
        try:
            wide = _wide(cidrs)
        except ValueError as error:
            yield f"vpcConfig.publicAccessCidrs: {error}"
        else:
            if wide:
                yield f"vpcConfig.publicAccessCidrs: the API server is open to the internet ({', '.join(cidrs)})"


def _wide(cidrs: Iterable[str]) -> bool:
    """Whether ranges together hold more of the internet than the Cluster component takes, of IPv6 the same share.

    Raises `ValueError` for what is no range.
    """
    ranges = [ip_network(cidr, strict=False) for cidr in cidrs]
    old = collapse_addresses(item for item in ranges if isinstance(item, IPv4Network))
    new = collapse_addresses(item for item in ranges if isinstance(item, IPv6Network))
    share = OPEN_ADDRESSES / 2**32
    return (
        sum(item.num_addresses for item in old) > share * 2**32
        or sum(item.num_addresses for item in new) > share * 2**128
    )


def encrypted_secrets(props: Props) -> Iterator[str]:
    if "secrets" not in ((props.get("encryptionConfig") or {}).get("resources") or []):
        yield "encryptionConfig: Kubernetes secrets are not encrypted with a key of yours"


def least_privilege(props: Props) -> Iterator[str]:
    try:
        statements = _statements(props.get("policy"))
    except ValueError as error:
        yield f"policy: {error}"
        return
    for statement in statements:
        if statement.get("Effect") != "Allow":
            continue
        if not (_any(EVERYTHING, statement.get("Resource")) or "NotResource" in statement):
            continue
        if _any(EVERYTHING, statement.get("Action")):
            yield "policy: allows every action on every resource"
        elif "NotAction" in statement:
            yield "policy: allows every action but those of NotAction on every resource"


def private_bucket(props: Props) -> Iterator[str]:
    for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"):
        if not props.get(key):
            yield f"{key}: not true, so the bucket can be made public"


def bucket_policy(props: Props) -> Iterator[str]:
    try:
        statements = _statements(props.get("policy"))
    except ValueError as error:
        yield f"policy: {error}"
        return
    if any(item.get("Effect") == "Allow" and _anyone(item) and not _narrowed(item) for item in statements):
        yield "policy: allows anyone"
    if not any(item.get("Effect") == "Deny" and _anyone(item) and _plain_http(item) for item in statements):
        yield "policy: does not deny anyone's s3:* requests without TLS (aws:SecureTransport false)"


def _anyone(statement: Props) -> bool:
    principal = statement.get("Principal")
    return principal == "*" or (isinstance(principal, Mapping) and "*" in _listed(principal.get("AWS")))


def _narrowed(statement: Props) -> bool:
    """Whether a condition leaves of everyone only some that it names."""
    return any(
        operator in NARROWING and key in CALLERS and values and all(_fixed(operator, str(value)) for value in values)
        for operator, key, values in _conditions(statement)
    )


def _fixed(operator: str, value: str) -> bool:
    if operator == "ipaddress":
        try:
            return not _wide([value])
        except ValueError:
            return False
    return not re.search(r"[*?]", value) or bool(re.match(r"arn:[^:*?]+:[^:*?]+:[^:*?]*:\d{12}:", value))


def _plain_http(statement: Props) -> bool:
    """Whether a statement is of every request without TLS, and under no other condition."""
    asked = [(operator, key, [str(value).lower() for value in values]) for operator, key, values in
             _conditions(statement)]  # fmt: skip
    return asked == [("bool", "aws:securetransport", ["false"])] and _any(r"\*|s3:\*", statement.get("Action"))


def _conditions(statement: Props) -> Iterator[tuple[str, str, list[Any]]]:
    """Operator and key in lower case, as IAM does not tell them apart, and values."""
    for operator, tests in (statement.get("Condition") or {}).items():
        for key, values in tests.items():
            yield operator.lower(), key.lower(), _listed(values)


def _statements(policy: Any) -> list[Props]:
    """The statements of a policy, as text or as an object. Raises `ValueError` for what is no policy."""
    try:
        document = json.loads(policy) if isinstance(policy, str) and policy else policy or {}
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from None
    found = document.get("Statement") or [] if isinstance(document, Mapping) else None
    listed = [found] if isinstance(found, Mapping) else found
    if not isinstance(listed, list) or not all(map(_is_statement, listed)):
        raise ValueError("not a policy document with a list of statements")
    return listed


def _is_statement(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return False
    tests = item.get("Condition") or {}
    return isinstance(tests, Mapping) and all(isinstance(test, Mapping) for test in tests.values())


def _any(pattern: str, value: Any) -> bool:
    """Whether one of the values, such as the actions of a statement, is `pattern` as a whole."""
    return any(re.fullmatch(pattern, str(item), re.I) for item in _listed(value))


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


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
    for volume in spec.get("volumes") or []:
        path = (volume.get("hostPath") or {}).get("path")
        if path is not None and not _for_pods(str(path)):
            yield f"volume {volume.get('name')}: hostPath {path} is not below {NODE_FOLDER}, the folder for pods"
    user = (spec.get("securityContext") or {}).get("runAsUser")
    inits = [(container, True) for container in spec.get("initContainers") or []]
    for container, first in [*((container, False) for container in spec.get("containers") or []), *inits]:
        name, security = container.get("name"), container.get("securityContext") or {}
        # Makes folders on the node for the engine's user, so it has to be root: see serving/fetch.py.
        fetches = first and container.get("image") == IMAGES["weights"].reference
        added = set((security.get("capabilities") or {}).get("add") or []) - ({"CHOWN"} if fetches else set())
        if added:
            yield f"{name}: securityContext.capabilities.add {', '.join(sorted(added))}"
        if security.get("runAsUser", user) == 0 and not fetches:
            yield f"{name}: runs as root (runAsUser 0)"
        if security.get("privileged"):
            yield f"{name}: privileged"
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: securityContext.allowPrivilegeEscalation is not false"
        image = str(container.get("image", ""))
        if "@" not in image and (":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")):
            yield f"{name}: image {image} names no version"


def engines(props: Props) -> Iterator[str]:
    """Of a ConfigMap with an engine.json."""
    text = (props.get("data") or {}).get("engine.json")
    if not isinstance(text, str):
        return
    try:
        engine = json.loads(text).get("engine")
    except (ValueError, AttributeError):
        return
    for argument in risky(engine if isinstance(engine, dict) else {}):
        yield f"engine.json: {argument} is set: {RISKS[argument]}"


def _for_pods(path: str) -> bool:
    return PurePosixPath(path).is_relative_to(NODE_FOLDER) and ".." not in PurePosixPath(path).parts


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
    Rule("confined-engines", "Engines take no argument that weakens isolation.", ("kubernetes:core/v1:ConfigMap",),
         engines),
]  # fmt: skip


# The stack ----------------------------------------------------------------------------------------------------------

BUCKETS = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
GUARDS = {
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "a BucketPublicAccessBlock",
    "aws:s3/bucketPolicy:BucketPolicy": "a BucketPolicy",
}


def unguarded(resources: Iterable[tuple[str, str, Iterable[str]]]) -> Iterator[tuple[str, str]]:
    """URN of each bucket that lacks a guard, and a message. Takes type, URN and the URNs that `bucket` comes from."""
    listed = list(resources)
    for type_, urn, _ in listed:
        if type_ not in BUCKETS:
            continue
        for guard, name in GUARDS.items():
            if not any(kind == guard and urn in sources for kind, _, sources in listed):
                yield urn, f"the bucket has no {name.split()[-1]}"


def sizing(components: Iterable[tuple[str, str, Props]]) -> list[Finding]:
    """Memory, parallelism, GPU budget, quotas, prices: what the preview of the reference program checks too.

    Takes type token, name and inputs of resources; those of other types count nothing.
    """
    report = of_resources(components)
    return list(report.findings) if report else []


def is_component(type_: str) -> bool:
    """Whether a type token is one of this package's components."""
    return type_.startswith("eks-llm:index:")
