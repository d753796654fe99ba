"""A changed child name is a replacement in every stack that runs: the golden set shows it, an alias prevents it."""

from collections.abc import Callable
from pathlib import Path

import pulumi
import pulumi_aws as aws

from tests.engine import golden
from tests.engine.harness import Program, Stack


class Platform(pulumi.ComponentResource):
    """A component of which one release calls its VPC `main-vpc` and the next one `main-net`."""

    def __init__(self, name: str, child: str, aliases: list[pulumi.Alias]) -> None:
        super().__init__("test:index:Platform", name)
        aws.ec2.Vpc(
            f"{name}-{child}",
            cidr_block="10.0.0.0/16",
            opts=pulumi.ResourceOptions(parent=self, aliases=list(aliases)),
        )
        self.register_outputs({})


def release(child: str, *aliases: pulumi.Alias) -> Program:
    return lambda: Platform("main", child, list(aliases))


def test_renamed_child_fails_the_golden_set_and_would_be_replaced(
    small_stack: Callable[[Program], Stack], tmp_path: Path
) -> None:
    stack = small_stack(release("vpc"))
    golden.write("test", stack.up().of("create"), tmp_path)
    stack.run(release("net"))
    steps = stack.preview()
    assert steps.changes == {
        "test:index:Platform$aws:ec2/vpc:Vpc::main-net": "create",
        "test:index:Platform$aws:ec2/vpc:Vpc::main-vpc": "delete",
    }
    message = golden.difference("test", steps.of("same", "create"), tmp_path)
    assert "- test:index:Platform$aws:ec2/vpc:Vpc::main-vpc" in message
    assert "+ test:index:Platform$aws:ec2/vpc:Vpc::main-net" in message
    assert "--update-golden" in message


def test_alias_keeps_a_renamed_child(small_stack: Callable[[Program], Stack]) -> None:
    stack = small_stack(release("vpc"))
    stack.up()
    stack.run(release("net", pulumi.Alias(name="main-vpc")))
    assert stack.preview().changes == {}
    stack.up()
    assert [event.action for event in stack.journal.events] == ["create"]
