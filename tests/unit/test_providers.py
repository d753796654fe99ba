"""Whose cluster: components that make Kubernetes objects want to be told, and never take kubectl's."""

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest

from eks_llm.core.problems import InvalidArgs
from eks_llm.plan.recorder import Recording, record
from tests.unit.components import FULL
from tests.unit.serving import on_cluster
from tests.unit.test_contracts import COMPONENTS

NO_OBJECTS = {"Cluster", "ExistingCluster", "GpuNodePool", "Network", "Weights"}
"""Components that are of AWS alone, or make a provider and use none."""


def case_id(value: Any) -> str:
    return getattr(value, "__name__", "opts")


def objects(run: Recording) -> list[str]:
    """The providers of what was put into clusters."""
    return [item.provider for item in run.resources if item.type.startswith("kubernetes:")]


def attempt(kind: Any, opts: Callable[[], pulumi.ResourceOptions | None]) -> tuple[Recording, str]:
    """What is registered before `kind` refuses, and what it says."""
    said: list[str] = []

    def program() -> None:
        with pytest.raises(InvalidArgs) as error:
            kind("demo", FULL[kind][0], opts())
        said.append(str(error.value))

    return record(program), said[0]


@pytest.mark.parametrize("kind", COMPONENTS, ids=case_id)
def test_objects_go_where_they_are_told_to_and_are_refused_without(kind: Any) -> None:
    told = record(lambda: kind("demo", FULL[kind][0], on_cluster()))
    assert {provider.split("::")[-2] for provider in objects(told)} <= {"cluster"}
    assert bool(objects(told)) is (kind.__name__ not in NO_OBJECTS)
    if kind.__name__ in NO_OBJECTS:
        record(lambda: kind("demo", FULL[kind][0]))
        return
    run, said = attempt(kind, lambda: None)
    assert not run.resources
    assert said.startswith(f'{kind.__name__} "demo": opts: no Kubernetes provider is given')
    assert "pulumi.ResourceOptions(providers=[…])" in said


MAKING = [kind for kind in COMPONENTS if kind.__name__ not in NO_OBJECTS]


def cluster() -> k8s.Provider:
    return k8s.Provider("cluster", kubeconfig="apiVersion: v1")


class Team(pulumi.ComponentResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("acme:index:Team", name, {}, opts)


def inherited() -> pulumi.ResourceOptions:
    outer = Team("outer", pulumi.ResourceOptions(providers=[cluster()]))
    return pulumi.ResourceOptions(parent=Team("inner", pulumi.ResourceOptions(parent=outer)))


WAYS: dict[str, Callable[[], pulumi.ResourceOptions]] = {
    "provider": lambda: pulumi.ResourceOptions(provider=cluster()),
    "list": lambda: pulumi.ResourceOptions(providers=[aws.Provider("aws", region="us-west-2"), cluster()]),
    "dict": lambda: pulumi.ResourceOptions(providers={"kubernetes": cluster()}),
    "inherited": inherited,
    "merged": lambda: pulumi.ResourceOptions.merge(
        pulumi.ResourceOptions(provider=aws.Provider("aws", region="us-west-2")),
        pulumi.ResourceOptions(provider=cluster()),
    ),
}


@pytest.mark.parametrize("kind", MAKING, ids=case_id)
@pytest.mark.parametrize("opts", WAYS.values(), ids=WAYS)
def test_each_way_of_pulumi_to_give_a_provider_is_taken(kind: Any, opts: Any) -> None:
    providers = objects(record(lambda: kind("demo", FULL[kind][0], opts())))
    assert {provider.split("::")[-2] for provider in providers} == {"cluster"}


@pytest.mark.parametrize(
    "opts",
    [
        lambda: pulumi.ResourceOptions(),
        lambda: pulumi.ResourceOptions(provider=aws.Provider("aws", region="us-west-2")),
        lambda: pulumi.ResourceOptions(providers={"aws": aws.Provider("aws", region="us-west-2")}),
        lambda: pulumi.ResourceOptions(parent=Team("team", pulumi.ResourceOptions())),
    ],
)
@pytest.mark.parametrize("kind", MAKING, ids=case_id)
def test_a_provider_of_something_else_is_none(kind: Any, opts: Any) -> None:
    run, _ = attempt(kind, opts)
    assert {item.name for item in run.resources} <= {"aws", "team"}
