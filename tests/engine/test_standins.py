"""The stand-ins answer as the real providers do, and the check of the destroy order notices a missing dependency."""

from collections.abc import Callable

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from tests.engine.harness import Program, Stack, short
from tests.engine.order import Resource, must_precede, waits_for


def platform(release_knows_nodes: bool = True) -> None:
    """The least of each kind of resource whose order matters."""
    vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16")
    subnet = aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block="10.0.0.0/20")
    role = aws.iam.Role("role", assume_role_policy="{}")
    cluster = aws.eks.Cluster("cluster", role_arn=role.arn, vpc_config={"subnet_ids": [subnet.id]})
    entry = aws.eks.AccessEntry("admin", cluster_name=cluster.name, principal_arn=role.arn)
    nodes = aws.eks.NodeGroup(
        "nodes",
        cluster_name=cluster.name,
        node_role_arn=role.arn,
        subnet_ids=[subnet.id],
        scaling_config={"desired_size": 1, "max_size": 1, "min_size": 1},
    )
    server = k8s.Provider("cluster", kubeconfig=cluster.endpoint, opts=pulumi.ResourceOptions(depends_on=[entry]))
    keda = k8s.helm.v3.Release(
        "keda",
        chart="keda",
        version="2.20.2",
        opts=pulumi.ResourceOptions(provider=server, depends_on=[nodes] if release_knows_nodes else []),
    )
    k8s.apiextensions.CustomResource(
        "scaling",
        api_version="keda.sh/v1alpha1",
        kind="ScaledObject",
        spec={},
        opts=pulumi.ResourceOptions(provider=server, depends_on=[keda]),
    )
    pulumi.export("arn", cluster.arn)
    pulumi.export("revision", keda.status.revision)


def broken_rules(state: dict[str, Resource]) -> list[tuple[str, str]]:
    after = waits_for(state)
    return [(short(first), short(then)) for _, first, then in must_precede(state) if then not in after[first]]


def test_computed_attributes_are_unknown_at_preview_and_known_after_up(
    small_stack: Callable[[Program], Stack],
) -> None:
    stack = small_stack(platform)
    seen: dict[str, bool] = {}

    def program() -> None:
        platform()
        vpc = aws.ec2.Vpc("another", cidr_block="10.1.0.0/16")
        vpc.arn.apply(lambda value: seen.setdefault("arn", bool(value)))
        vpc.cidr_block.apply(lambda value: seen.setdefault("cidr", bool(value)))

    stack.run(program)
    stack.preview()
    assert seen == {"cidr": True}
    stack.up()
    assert seen == {"cidr": True, "arn": True}
    outputs = stack.stack.outputs()
    assert outputs["revision"].value == 1
    assert outputs["arn"].value


def test_generated_names_are_kept_and_a_destroy_goes_backwards(small_stack: Callable[[Program], Stack]) -> None:
    stack = small_stack(platform)
    stack.up()
    assert stack.preview().changes == {}
    assert broken_rules(stack.resources()) == []
    stack.destroy()
    order = [event.urn.split("::")[-1] for event in stack.journal.of("delete")]
    assert order[:2] == ["scaling", "keda"]
    assert [name for name in order if name in ("nodes", "cluster", "subnet", "vpc")] == [
        "nodes",
        "cluster",
        "subnet",
        "vpc",
    ]


def test_a_release_that_does_not_wait_for_nodes_breaks_the_order(small_stack: Callable[[Program], Stack]) -> None:
    stack = small_stack(lambda: platform(release_knows_nodes=False))
    stack.up()
    keda = "kubernetes:helm.sh/v3:Release::keda"
    assert broken_rules(stack.resources()) == [(keda, "aws:eks/nodeGroup:NodeGroup::nodes")]
