"""The recorder: what it keeps of a run, and what it never keeps."""

import time

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest

from eks_llm.core.secrets import SECRET
from eks_llm.plan.recorder import record


def test_a_secret_is_marked_wherever_it_goes_and_its_value_is_nowhere() -> None:
    def program() -> None:
        key = pulumi.Config().require_secret("key")
        k8s.core.v1.Secret("direct", string_data={"key": key})
        k8s.core.v1.ConfigMap("derived", data={"url": key.apply(lambda k: f"https://{k}@host"), "open": "yes"})
        pulumi.export("url", pulumi.Output.concat("https://", key))
        pulumi.export("nested", {"list": [key, "open"]})

    run = record(program, project="p", config={"p:key": "s3cr3t-value"}, secret_keys=["p:key"])
    assert "s3cr3t-value" not in repr(run)
    assert run.one("Secret").inputs["stringData"] == {"key": SECRET}
    assert run.one("ConfigMap").inputs["data"] == {"url": SECRET, "open": "yes"}
    assert run.exports == {"url": SECRET, "nested": {"list": [SECRET, "open"]}}


def test_a_secret_still_reaches_the_code_that_needs_it() -> None:
    seen: list[str] = []
    record(
        lambda: pulumi.Config().require_secret("key").apply(seen.append),
        project="p",
        config={"p:key": "v"},
        secret_keys=["p:key"],
    )
    assert seen == ["v"]


def test_resources_come_in_the_order_of_the_program() -> None:
    def program() -> None:
        first = aws.ec2.Vpc("first")
        for index in range(5):  # known only after the first, so their requests come after the last one's
            aws.ec2.Subnet(f"subnet-{index}", vpc_id=first.id)
        aws.ec2.Vpc("last")

    names = [item.name for item in record(program).resources]
    assert names == ["first", *(f"subnet-{index}" for index in range(5)), "last"]


def test_two_resources_with_one_urn_are_refused_like_by_the_engine() -> None:
    with pytest.raises(pulumi.RunError, match=r"two resources have the URN .*::vpc: give one another name"):
        record(lambda: [aws.ec2.Vpc("vpc"), aws.ec2.Vpc("vpc")])


def test_asking_the_cloud_is_refused_by_name() -> None:
    with pytest.raises(pulumi.RunError, match="calls aws:ec2/getVpc:getVpc: a preview without credentials"):
        record(lambda: aws.ec2.get_vpc_output(id="vpc-1").id.apply(print))


def test_an_error_in_an_apply_ends_the_run() -> None:
    def fail(_: str) -> None:
        raise ValueError("inside an apply")

    with pytest.raises(ValueError, match="inside an apply"):
        record(lambda: aws.ec2.Vpc("vpc").id.apply(fail))


def test_warnings_and_errors_are_kept_once_also_those_of_a_resource() -> None:
    def program() -> None:
        vpc = aws.ec2.Vpc("vpc")
        for _ in range(2):
            pulumi.log.warn("plain")
        pulumi.log.warn("of a resource", vpc)
        pulumi.log.error("bad")

    run = record(program)
    assert run.warnings == ["plain", "of a resource"]
    assert run.errors == ["bad"]


def test_an_adopted_resource_keeps_its_id() -> None:
    def program() -> None:
        vpc = aws.ec2.Vpc("vpc", opts=pulumi.ResourceOptions(import_="vpc-123"))
        aws.ec2.Subnet("subnet", vpc_id=vpc.id)

    assert record(program).one("Subnet").inputs["vpcId"] == "vpc-123"


def test_time_per_resource_does_not_grow_with_their_number() -> None:
    def seconds(count: int) -> float:
        start = time.perf_counter()
        record(lambda: [aws.ec2.Eip(f"eip-{index}", domain="vpc") for index in range(count)])
        return (time.perf_counter() - start) / count

    seconds(50)
    # Loose, because test machines stall: quadratic work would make it 20 times as much.
    assert min(seconds(800), seconds(800)) < 3 * min(seconds(40) for _ in range(3))
