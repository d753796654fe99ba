"""`Weights`: a bucket that is closed to all, one narrow role per service, and what it refuses."""

import json
from typing import Any

import pytest

from eks_llm.aws.weights import Weights, read_policy
from eks_llm.core.problems import InvalidArgs
from eks_llm.core.s3 import uri_problem
from eks_llm.plan.recorder import Recording, record

KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666"
BASIC: dict[str, Any] = {
    "bucket": "acme-models",
    "cluster_name": "dev",
    "namespace": "llm",
    "readers": {"llama-8b": "s3://acme-models/llama-3-8b/", "llama-70b": "s3://acme-models/llama-70b/2026-10-01/"},
}


def weights(**args: Any) -> Recording:
    return record(lambda: Weights("models", {**BASIC, **args}))  # type: ignore[typeddict-item]


def test_the_bucket_is_private_versioned_encrypted_and_tls_only() -> None:
    run = weights()
    assert run.one("Bucket").inputs == {"bucket": "acme-models", "forceDestroy": False}
    block = run.one("BucketPublicAccessBlock").inputs
    assert [block[key] for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls")] == [True] * 3
    assert block["restrictPublicBuckets"] is True
    assert run.one("BucketVersioning").inputs["versioningConfiguration"] == {"status": "Enabled"}
    assert run.one("BucketOwnershipControls").inputs["rule"] == {"objectOwnership": "BucketOwnerEnforced"}
    rule = run.one("BucketServerSideEncryptionConfiguration").inputs["rules"][0]
    assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "AES256"
    (statement,) = json.loads(run.one("BucketPolicy").inputs["policy"])["Statement"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "s3:*")
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert statement["Resource"] == ["‹models-bucket.arn›", "‹models-bucket.arn›/*"]


def test_each_service_reads_its_prefix_and_no_other() -> None:
    run = weights()
    get, find = json.loads(run.one("RolePolicy", "models-llama-70b").inputs["policy"])["Statement"]
    assert get == {
        "Effect": "Allow",
        "Action": "s3:GetObject",
        "Resource": "‹models-bucket.arn›/llama-70b/2026-10-01/*",
    }
    assert (find["Action"], find["Resource"]) == ("s3:ListBucket", "‹models-bucket.arn›")
    assert find["Condition"]["StringLike"]["s3:prefix"] == ["llama-70b/2026-10-01", "llama-70b/2026-10-01/*"]


def test_only_the_service_account_of_that_name_can_take_the_role() -> None:
    run = weights()
    (trust,) = json.loads(run.one("Role", "models-llama-8b").inputs["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(trust["Action"]) == {"sts:AssumeRole", "sts:TagSession"}
    assert trust["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-name": "dev",
        "aws:RequestTag/kubernetes-namespace": "llm",
        "aws:RequestTag/kubernetes-service-account": "llama-8b",
    }
    role = run.one("Role", "models-llama-8b")
    association = run.one("PodIdentityAssociation", "models-llama-8b")
    assert association.inputs == {
        "clusterName": "dev",
        "namespace": "llm",
        "serviceAccount": "llama-8b",
        "roleArn": role.outputs["arn"],
    }
    assert run.one("RolePolicy", "models-llama-8b").urn in association.dependencies


def test_an_existing_bucket_is_left_alone() -> None:
    run = weights(create=False)
    assert not [item.type for item in run.resources if item.type.startswith("aws:s3")]
    get, _ = json.loads(run.one("RolePolicy", "models-llama-8b").inputs["policy"])["Statement"]
    assert get["Resource"] == "arn:aws:s3:::acme-models/llama-3-8b/*"
    outputs = next(iter(run.outputs.values()))
    assert outputs["bucket"] == "acme-models"
    assert set(outputs["roleArns"]) == set(BASIC["readers"])


def test_a_key_encrypts_and_its_readers_may_decrypt() -> None:
    rule = weights(kms_key=KEY).one("BucketServerSideEncryptionConfiguration").inputs["rules"][0]
    assert rule["applyServerSideEncryptionByDefault"] == {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": KEY}
    assert rule["bucketKeyEnabled"] is True
    statements = json.loads(read_policy("arn:aws:s3:::acme-models", "s3://acme-models/a/", KEY))["Statement"]
    assert statements[-1] == {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": KEY}


def test_a_bucket_is_emptied_only_on_request() -> None:
    assert weights(force_destroy=True).one("Bucket").inputs["forceDestroy"] is True
    assert weights().one("Bucket").inputs["forceDestroy"] is False


def test_no_readers_no_roles() -> None:
    assert weights(readers={}).of("Role") == []


@pytest.mark.parametrize("uri", ["s3://acme-models/a/", "s3://acme-models/llama-3.3-70b-instruct-awq/2026-10-01/"])
def test_good_prefixes(uri: str) -> None:
    assert uri_problem(uri, "acme-models") is None


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("https://acme-models.s3.amazonaws.com/a/", "not an S3 prefix such as s3://acme-models/llama-3-8b/2026-10-01/"),
        ("s3://acme-models", "not an S3 prefix"),
        ("s3://other/a/", "not in bucket acme-models"),
        ("s3://acme-models/", "the whole bucket"),
        ("s3://acme-models/llama", "does not end with '/'"),
        ("s3://acme-models/a//b/", "has a part that is empty"),
        ("s3://acme-models/../b/", "'..'"),
        ("s3://acme-models/a/../b/", "'..'"),
        ("s3://acme-models/./b/", "'.'"),
        ("s3://acme-models/ä/", "other characters than letters"),
        ("s3://acme-models/*/", "other characters than letters"),
        ("s3://acme-models/${aws:userid}/", "other characters than letters"),
        (f"s3://acme-models/{'a' * 768}/", "a prefix of 769 characters; at most 768"),
    ],
)
def test_bad_prefixes(uri: str, message: str) -> None:
    assert message in (uri_problem(uri, "acme-models") or "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            {"readers": {"llama-8b": "s3://acme-models/llama"}},
            "readers.llama-8b: 's3://acme-models/llama': does not end with '/'",
        ),
        ({"readers": {"Llama": "s3://acme-models/llama/"}}, "a name has lower-case letters"),
        ({"bucket": "Acme_Models"}, "bucket: 'Acme_Models': a bucket name has 3 to 63 lower-case letters"),
        ({"bucket": "10.0.0.1"}, "bucket: '10.0.0.1': a bucket name does not look like an IP address"),
        ({"bucket": "xn--models"}, "bucket: 'xn--models': S3 keeps names with this beginning or ending for itself"),
        ({"bucket": "models--x-s3"}, "S3 keeps names with this beginning or ending for itself"),
        (
            {"create": False, "force_destroy": True},
            "force_destroy: true with create: false; a bucket made elsewhere is",
        ),
        (
            {"kms_key": KEY.replace("arn:aws", "arn:aws-cn")},
            "of another partition than arn:aws",
        ),
        ({"kms_key": "alias/weights"}, "kms_key: 'alias/weights': not an ARN"),
        ({"kms_key": "arn:aws:s3:::acme-models"}, "not the ARN of a KMS key"),
    ],
)
def test_refuses(args: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgs) as error:
        weights(**args)
    assert message in str(error.value)
