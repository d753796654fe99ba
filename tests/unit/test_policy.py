"""The policy pack's rules: the committed stacks pass them, and each bad resource is named."""

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
SOUND = {"name": "c", "image": "i:1", "securityContext": {"allowPrivilegeEscalation": False}}


def pod(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{**SOUND, **container}], **spec}}}}


def document(*statements: Any) -> dict[str, Any]:
    return {"policy": json.dumps({"Version": "2012-10-17", "Statement": list(statements)})}


BAD: list[tuple[str, Any, list[str]]] = [
    (TEMPLATE, {}, ["metadataOptions.httpTokens", "metadataOptions.httpPutResponseHopLimit"]),
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
    ("aws:iam/rolePolicy:RolePolicy", document({"Effect": "Allow", "Action": ["*"], "Resource": "*"}), ["policy: all"]),
    (
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        {"blockPublicAcls": True, "blockPublicPolicy": True, "ignorePublicAcls": True},
        ["restrictPublicBuckets"],
    ),
    (POLICY, document(OPEN, TLS), ["policy: allows anyone"]),
    (POLICY, document(), ["policy: does not deny requests without TLS"]),
    (
        "kubernetes:apps/v1:Deployment",
        pod({"securityContext": {"privileged": True}, "image": "registry:5000/a"}, hostNetwork=True),
        ["hostNetwork", "c: privileged", "c: securityContext.allowPrivilegeEscalation", "c: image registry:5000/a"],
    ),
    ("kubernetes:batch/v1:CronJob", {"spec": {"jobTemplate": pod({"image": "a:latest"})}}, ["c: image a:latest"]),
    ("kubernetes:core/v1:Pod", {"spec": {"containers": [SOUND], "hostPID": True}}, ["hostPID"]),
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
        ("kubernetes:apps/v1:Deployment", pod({"image": "r:5000/a@sha256:00"})),
        ("kubernetes:storage.k8s.io/v1:StorageClass", {"provisioner": "efs.csi.aws.com"}),
        ("aws:ec2/vpc:Vpc", {}),
    ],
)
def test_what_is_allowed(type_: str, props: Any) -> None:
    assert list(violations(type_, props)) == []


def test_a_bucket_without_guards() -> None:
    bucket, block, policy = (rules.BUCKET, "urn:b", []), *((guard, f"urn:{i}", ["urn:b"]) for i, guard in
                                                           enumerate(rules.GUARDS))  # fmt: skip
    assert list(rules.unguarded([bucket, block, policy])) == []
    assert list(rules.unguarded([bucket, policy])) == [("urn:b", "the bucket has no BucketPublicAccessBlock")]
    assert [text for _, text in rules.unguarded([bucket, (policy[0], policy[1], ["urn:other"])])] == [
        "the bucket has no BucketPublicAccessBlock", "the bucket has no BucketPolicy",
    ]  # fmt: skip
