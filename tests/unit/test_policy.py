"""The policy pack's rules: the committed stacks pass them, and each bad resource is named."""

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eks_llm.catalog.images import IMAGES
from eks_llm.plan.program import find_project, run
from eks_llm.plan.recorder import Recording

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "policy"))

import rules  # noqa: E402


@pytest.fixture(scope="module", params=["dev", "prod"])
def recording(request: pytest.FixtureRequest) -> Recording:
    return run(find_project(ROOT), request.param)


def violations(type_: str, props: Any) -> Iterator[str]:
    for rule in rules.RULES:
        if type_ in rule.types:
            yield from rule.check(props)


def test_the_committed_stacks_keep_every_rule(recording: Recording) -> None:
    found = [(item.name, text) for item in recording.resources for text in violations(item.type, item.inputs)]
    assert not found
    seen = {item.type for item in recording.resources}
    unused = [rule.name for rule in rules.RULES if not seen & set(rule.types)]
    assert unused == ["encrypted-volumes"]  # the rest has something to check
    sized = rules.sizing((item.type, item.name, item.inputs) for item in recording.resources)
    assert sized
    assert not [finding for finding in sized if finding.error]


def test_sizing_is_that_of_the_preview(recording: Recording) -> None:
    components = copy.deepcopy([(item.type, item.name, item.inputs) for item in recording.resources])
    service = next(props for type_, _, props in components if type_ == "eks-llm:index:InferenceService")
    service["scaling"]["max"] = 99
    errors = [finding for finding in rules.sizing(components) if finding.error]
    assert [finding.path for finding in errors] == ["gpuPools.a100.nodes.max"]


POLICY = "aws:s3/bucketPolicy:BucketPolicy"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
CLUSTER = "aws:eks/cluster:Cluster"
OPEN = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "s3:GetObject", "Resource": "*"}
TLS = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
NO_TLS = "policy: does not deny anyone's s3:* requests without TLS (aws:SecureTransport false)"
ROLE = "aws:iam/rolePolicy:RolePolicy"
SECRETS = {"encryptionConfig": {"resources": ["secrets"]}}
SOUND = {"name": "c", "image": "i:1", "securityContext": {"allowPrivilegeEscalation": False}}


def allow(**statement: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Resource": "*", **statement}


def under(condition: dict[str, Any]) -> dict[str, Any]:
    return {**OPEN, "Condition": condition}


def fetch(*capabilities: str) -> dict[str, Any]:
    """The init container that brings the weights."""
    security = {"runAsUser": 0, "allowPrivilegeEscalation": False, "capabilities": {"add": list(capabilities)}}
    return {"name": "weights", "image": IMAGES["weights"].reference, "securityContext": security}


FETCH = fetch("CHOWN")


def pod(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{**SOUND, **container}], **spec}}}}


def document(*statements: Any) -> dict[str, Any]:
    return {"policy": json.dumps({"Version": "2012-10-17", "Statement": list(statements)})}


BAD: list[tuple[str, Any, list[str]]] = [
    (
        TEMPLATE,
        {},
        ["metadataOptions.httpTokens", "metadataOptions.httpPutResponseHopLimit", "blockDeviceMappings: names no"],
    ),
    (
        TEMPLATE,
        {"metadataOptions": {"httpTokens": "optional", "httpPutResponseHopLimit": 2},
         "blockDeviceMappings": [{"ebs": {"encrypted": "false"}}, {"ebs": {"encrypted": "true"}}, {"noDevice": ""}]},
        ["metadataOptions.httpTokens", "metadataOptions.httpPutResponseHopLimit", "blockDeviceMappings[0]"],
    ),
    ("aws:ebs/volume:Volume", {"size": 1}, ["encrypted: the volume is not encrypted"]),
    (
        "kubernetes:storage.k8s.io/v1:StorageClass",
        {"provisioner": "ebs.csi.aws.com", "parameters": {"type": "gp3"}},
        ["parameters.encrypted"],
    ),
    (CLUSTER, {}, ["vpcConfig.publicAccessCidrs: the API server is open", "encryptionConfig"]),
    (
        CLUSTER,
        {"vpcConfig": {"publicAccessCidrs": ["10.0.0.0/8", "0.0.0.0/0"]},
         "encryptionConfig": {"resources": ["secrets"]}},
        ["vpcConfig.publicAccessCidrs"],
    ),
    (
        CLUSTER,
        {"vpcConfig": {"publicAccessCidrs": ["0.0.0.0/1", "128.0.0.0/1"]}, **SECRETS},
        ["vpcConfig.publicAccessCidrs: the API server is open to the internet (0.0.0.0/1, 128.0.0.0/1)"],
    ),
    (
        CLUSTER,
        {"vpcConfig": {"publicAccessCidrs": ["2000::/3"]}, **SECRETS},
        ["vpcConfig.publicAccessCidrs: the API server is open to the internet (2000::/3)"],
    ),
    (CLUSTER, {"vpcConfig": {"publicAccessCidrs": ["office"]}, **SECRETS}, ["vpcConfig.publicAccessCidrs: 'office'"]),
    (ROLE, document(allow(Action=["*"])), ["policy: allows every action on every resource"]),
    (ROLE, document(allow(Action="*:*")), ["policy: allows every action on every resource"]),
    (ROLE, document({"Effect": "Allow", "Action": "*", "NotResource": "arn:aws:s3:::b"}), ["policy: allows every"]),
    (ROLE, document(allow(NotAction="iam:*")), ["policy: allows every action but those of NotAction on every"]),
    (ROLE, {"policy": "{'Statement'"}, ["policy: not JSON (Expecting property name"]),
    (ROLE, {"policy": '["*"]'}, ["policy: not a policy document with a list of statements"]),
    (POLICY, {"policy": "{"}, ["policy: not JSON ("]),
    (POLICY, document("Allow"), ["policy: not a policy document with a list of statements"]),
    (
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        {"blockPublicAcls": True, "blockPublicPolicy": True, "ignorePublicAcls": True},
        ["restrictPublicBuckets"],
    ),
    (POLICY, document(OPEN, TLS), ["policy: allows anyone"]),
    (POLICY, document(under({"StringLike": {"aws:PrincipalArn": "*"}}), TLS), ["policy: allows anyone"]),
    (POLICY, document(under({"Bool": {"aws:SecureTransport": "true"}}), TLS), ["policy: allows anyone"]),
    (POLICY, document(under({"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}), TLS), ["policy: allows anyone"]),
    (POLICY, document(under({"StringEqualsIfExists": {"aws:SourceVpc": "vpc-1"}}), TLS), ["policy: allows anyone"]),
    (POLICY, document(), [NO_TLS]),
    (POLICY, document({**TLS, "Principal": {"AWS": "arn:aws:iam::111122223333:root"}}), [NO_TLS]),
    (POLICY, document({**TLS, "Action": "s3:GetObject"}), [NO_TLS]),
    (POLICY, document({**TLS, "Condition": {**TLS["Condition"], "StringEquals": {"aws:userid": "x"}}}), [NO_TLS]),
    (
        "kubernetes:apps/v1:Deployment",
        pod({"securityContext": {"privileged": True}, "image": "registry:5000/a"}, hostNetwork=True),
        ["hostNetwork", "c: privileged", "c: securityContext.allowPrivilegeEscalation", "c: image registry:5000/a"],
    ),
    ("kubernetes:batch/v1:CronJob", {"spec": {"jobTemplate": pod({"image": "a:latest"})}}, ["c: image a:latest"]),
    ("kubernetes:core/v1:Pod", {"spec": {"containers": [SOUND], "hostPID": True}}, ["hostPID"]),
    (
        "kubernetes:apps/v1:Deployment",
        pod({}, volumes=[{"name": "v", "hostPath": {"path": "/var/run"}}, {"name": "t", "emptyDir": {}},
                         {"name": "w", "hostPath": {"path": "/mnt/k8s-disks/0/eks-llm/../../etc"}},
                         {"name": "k", "hostPath": {"path": "/mnt/k8s-disks/0/kubelet"}},
                         {"name": "a", "hostPath": {"path": "/mnt/k8s-disks/0"}}]),
        [
            "volume v: hostPath /var/run is not below /mnt/k8s-disks/0/eks-llm, the folder for pods",
            "volume w: hostPath /mnt/k8s-disks/0/eks-llm/../../etc is not",
            "volume k: hostPath /mnt/k8s-disks/0/kubelet is not",
            "volume a: hostPath /mnt/k8s-disks/0 is not",
        ],
    ),
    (
        "kubernetes:apps/v1:Deployment",
        pod({**FETCH, "name": "c"}),
        ["c: securityContext.capabilities.add CHOWN", "c: runs as root (runAsUser 0)"],
    ),
    ("kubernetes:apps/v1:Deployment", pod({}, securityContext={"runAsUser": 0}), ["c: runs as root (runAsUser 0)"]),
    (
        "kubernetes:apps/v1:Deployment",
        pod({}, initContainers=[{**FETCH, "image": "other:1"}]),
        ["weights: securityContext.capabilities.add CHOWN", "weights: runs as root (runAsUser 0)"],
    ),
    (
        "kubernetes:core/v1:ConfigMap",
        {"data": {"engine.json": json.dumps({"engine": {"trust_remote_code": True, "seed": 1}})}},
        ["engine.json: trust_remote_code is set: Python code that lies beside the weights"],
    ),
    (
        "kubernetes:apps/v1:Deployment",
        pod({}, initContainers=[fetch("SYS_ADMIN", "CHOWN")]),
        ["weights: securityContext.capabilities.add SYS_ADMIN"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "props", "starts"), BAD)
def test_what_is_refused(type_: str, props: Any, starts: list[str]) -> None:
    found = list(violations(type_, props))
    assert len(found) == len(starts), found
    assert all(text.startswith(start) for text, start in zip(found, starts, strict=True)), found


@pytest.mark.parametrize(
    ("type_", "props"),
    [
        (CLUSTER, {"vpcConfig": {"endpointPublicAccess": False}, "encryptionConfig": {"resources": ["secrets"]}}),
        ("aws:iam/policy:Policy", document({"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"})),
        ("aws:iam/policy:Policy", {"policy": {"Statement": {"Effect": "Deny", "Action": "*", "Resource": "*"}}}),
        (POLICY, document({**OPEN, "Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}}, TLS)),
        (
            POLICY,
            document(
                {**OPEN, "Condition": {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::111122223333:role/*"}}},
                {**TLS, "Condition": {"bool": {"AWS:SecureTransport": [False]}}},
            ),
        ),
        (ROLE, document(allow(Action="s3:*"), {**allow(NotAction="iam:*"), "Resource": "arn:aws:s3:::b/*"})),
        ("kubernetes:apps/v1:Deployment", pod({"image": "r:5000/a@sha256:00"})),
        (
            "kubernetes:apps/v1:Deployment",
            pod(
                {},
                initContainers=[FETCH],
                volumes=[{"name": "w", "hostPath": {"path": "/mnt/k8s-disks/0/eks-llm/models/a"}}],
            ),
        ),
        ("kubernetes:storage.k8s.io/v1:StorageClass", {"provisioner": "efs.csi.aws.com"}),
        ("kubernetes:core/v1:ConfigMap", {"data": {"engine.json": '{"engine": {"seed": 1}}'}}),
        ("kubernetes:core/v1:ConfigMap", {"data": {"engine.json": "[1]", "a": "b"}}),
        ("aws:ec2/vpc:Vpc", {}),
    ],
)
def test_what_is_allowed(type_: str, props: Any) -> None:
    assert list(violations(type_, props)) == []


@pytest.mark.parametrize("type_", ["aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2"])
def test_a_bucket_without_guards(type_: str) -> None:
    bucket, block, policy = (type_, "urn:b", []), *((guard, f"urn:{i}", ["urn:b"]) for i, guard in
                                                           enumerate(rules.GUARDS))  # fmt: skip
    assert list(rules.unguarded([bucket, block, policy])) == []
    assert list(rules.unguarded([bucket, policy])) == [("urn:b", "the bucket has no BucketPublicAccessBlock")]
    assert [text for _, text in rules.unguarded([bucket, (policy[0], policy[1], ["urn:other"])])] == [
        "the bucket has no BucketPublicAccessBlock", "the bucket has no BucketPolicy",
    ]  # fmt: skip
