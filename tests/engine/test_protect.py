"""`protect: true` keeps what cannot be made again, and lets everything else be changed and removed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi.automation.errors import CommandError

from tests.engine.harness import Stack, reference_stack
from tests.engine.standins import running

STACK = "prod"
LASTING = {
    "aws:ec2/vpc:Vpc",
    "aws:ec2/subnet:Subnet",
    "aws:eks/cluster:Cluster",
    "aws:kms/key:Key",
    "aws:s3/bucket:Bucket",
}


@pytest.fixture(scope="module")
def prod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running() as standins:
        stack = reference_stack(STACK, tmp_path_factory.mktemp(STACK), standins)
        stack.up()
        yield stack


def changed(stack: Stack, change: Callable[[dict[str, Any]], Any]) -> dict[str, str]:
    """What a preview says after a change of the stack file, which is put back."""
    file = Path(stack.home, "project", f"Pulumi.{STACK}.yaml")
    before = file.read_text()
    content = yaml.safe_load(before)
    change(content["config"]["eks-llm:platform"])
    file.write_text(yaml.safe_dump(content))
    try:
        return stack.preview().changes
    finally:
        file.write_text(before)


def deleted(changes: dict[str, str]) -> set[str]:
    return {urn.split("$")[-1] for urn, operation in changes.items() if operation == "delete"}


def test_only_what_cannot_be_made_again_is_protected(prod: Stack) -> None:
    protected = {item["type"] for item in prod.resources().values() if item.get("protect") and item.get("custom")}
    assert protected == LASTING


def test_a_service_can_be_removed(prod: Stack) -> None:
    services: list[str] = []
    gone = deleted(changed(prod, lambda platform: services.append(platform["services"].popitem()[0])))
    assert f"aws:iam/role:Role::weights-{services[0]}" in gone
    assert f"kubernetes:apps/v1:Deployment::{services[0]}-deployment" in gone


def test_an_administrator_can_be_replaced(prod: Stack) -> None:
    def other(platform: dict[str, Any]) -> None:
        platform["cluster"]["admins"] = ["arn:aws:iam::111122223333:role/another"]

    assert deleted(changed(prod, other)) == {
        f"aws:eks/{kind}::eks-llm-prod-admin-111122223333-role-{role}"
        for kind in ("accessEntry:AccessEntry", "accessPolicyAssociation:AccessPolicyAssociation")
        for role in ("platform-admin", "github-deploy")
    }


def test_logs_can_be_switched_off(prod: Stack) -> None:
    gone = deleted(changed(prod, lambda platform: platform["cluster"].update(logTypes=[])))
    assert {item.split("::")[0] for item in gone} == {"aws:cloudwatch/logGroup:LogGroup"}


def test_the_bucket_cannot_be_removed(prod: Stack) -> None:
    with pytest.raises(CommandError, match=r"weights-bucket. cannot be deleted\s+because it is protected"):
        changed(prod, lambda platform: platform["weights"].update(create=False))
