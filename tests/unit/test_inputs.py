"""Quantities, names and messages that all components share."""

from enum import Enum
from typing import Any

import pulumi
import pytest
from pydantic import TypeAdapter, ValidationError, field_validator, model_validator

from eks_llm.aws.network import Network
from eks_llm.aws.node_pool import GpuNodePool, GpuNodePoolArgs, PoolSettings
from eks_llm.core.inputs import (
    Arn,
    Duration,
    FaultsError,
    In,
    InvalidArgs,
    Model,
    Name,
    Size,
    nearest,
    problems,
    unshown,
    validated,
)
from eks_llm.plan.recorder import record


@pytest.mark.parametrize(
    ("text", "seconds"), [("820ms", 0.82), ("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2 s ", 2)]
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert TypeAdapter(Duration).validate_python(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "gib"), [("512MiB", 0.5), ("200GiB", 200), ("2TiB", 2048)])
def test_sizes_are_gib(text: str, gib: float) -> None:
    assert TypeAdapter(Size).validate_python(text) == pytest.approx(gib)


@pytest.mark.parametrize("text", ["200GB", "200", 200, "-5GiB", "1e3GiB", "nanGiB", "", None, True, "GiB"])
def test_a_size_needs_a_number_and_a_binary_unit(text: Any) -> None:
    with pytest.raises(ValidationError, match="MiB, GiB, TiB, such as 200GiB"):
        TypeAdapter(Size).validate_python(text)


@pytest.mark.parametrize("name", ["a", "llama-70b", "a" * 40])
def test_names(name: str) -> None:
    assert TypeAdapter(Name).validate_python(name) == name


@pytest.mark.parametrize("name", ["", "70b", "Llama", "llama_70b", "llama-", "löwe", "a" * 41, 70])
def test_what_is_no_name(name: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(name)


class Inner(Model):
    max_nodes: int
    size: Size = Size(1)


class Outer(Model):
    inner_part: Inner
    value: In[int] = 0


def messages(content: dict[str, Any], snake_case: bool = False) -> list[str]:
    with pytest.raises(ValidationError) as error:
        Outer.model_validate(content)
    return [str(problem) for problem in problems(error.value, Outer, snake_case)]


def test_messages_name_path_value_and_the_nearest_key() -> None:
    assert messages({"innerPart": {"maxNodes": "two", "sise": "1GiB"}}) == [
        "innerPart.maxNodes: 'two': write a whole number, such as 2, without quotes",
        "innerPart.sise: unknown key; did you mean 'size'?",
    ]


class Kind(Enum):
    LARGE = "large"


class Scalars(Model):
    whole: int = 0
    share: float = 0
    flag: bool = False
    text: str = ""
    names: list[str] = []
    kind: Kind = Kind.LARGE
    maybe: In[int] = 0


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        *((key, value, f"{text}: write a whole number, such as 2, without quotes")
          for key in ("whole", "maybe") for value, text in ((True, "true"), ("2", "'2'"), (2.0, "2.0"))),
        ("share", "0.9", "'0.9': write a number, such as 0.9, without quotes"),
        ("flag", "yes", "'yes': write true or false, without quotes"),
        ("flag", 1, "1: write true or false, without quotes"),
        ("text", 1.35, '1.35 is not text; write it in quotes, such as "1.35"'),
        ("text", True, 'true is not text; write it in quotes, such as "true"'),
        ("text", [], "[] is not text"),
        ("names", "a", "'a': write a list, such as [a, b]"),
        ("names", "a" * 200, f"'{'a' * 78}…: write a list, such as [a, b]"),
        ("names", None, "nothing stands here (null); give a value, or leave the key out"),
        ("kind", "small", "'small' is not one of 'large'"),
    ],
)  # fmt: skip
def test_scalars_are_taken_as_they_are_written(key: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        Scalars.model_validate({key: value})
    assert [str(problem) for problem in problems(error.value, Scalars)] == [f"{key}: {message}"]


def test_sound_scalars() -> None:
    content = {"whole": 2, "share": 1, "flag": True, "text": "2", "names": ["a"], "kind": "large"}
    assert Scalars.model_validate(content).kind is Kind.LARGE


class Ranged(Model):
    max_nodes: int
    api_key: str = ""
    kind: Kind = Kind.LARGE

    @model_validator(mode="after")
    def _sound(self) -> "Ranged":
        if self.max_nodes == 1:
            raise ValueError("maxNodes: 1 does not go with onDemand; set apiKey")
        if self.max_nodes == 2:
            raise FaultsError("maxNodes: 2 is even", "apiKey: required with maxNodes")
        return self

    @field_validator("api_key", mode="before")
    @classmethod
    def _no_key(cls, value: Any) -> Any:
        if value:
            raise unshown("not a name")
        return value


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        ({"max_nodes": 1}, ["max_nodes: 1 does not go with onDemand; set api_key"]),
        ({"max_nodes": 2}, ["max_nodes: 2 is even", "api_key: required with max_nodes"]),
        ({"max_nodes": 3, "api_key": "sk-123"}, ["api_key: not a name"]),
        (None, ["args: None is not a mapping of arguments"]),
        ([], ["args: [] is not a mapping of arguments"]),
    ],
)
def test_a_component_refuses_in_the_words_of_python(args: Any, lines: list[str]) -> None:
    with pytest.raises(InvalidArgs) as error:
        validated(Ranged, args, 'Pool "a"')
    assert error.value.messages == [f'Pool "a": {line}' for line in lines]


@pytest.mark.parametrize("partition", ["aws-cn", "aws-us-gov", "aws-iso-b", "aws-eusc"])
def test_arns_are_of_the_one_partition_that_the_components_write(partition: str) -> None:
    with pytest.raises(
        ValidationError, match="of another partition than arn:aws, the only one that the components know"
    ):
        TypeAdapter(Arn).validate_python(f"arn:{partition}:iam::111122223333:role/admin")
    TypeAdapter(Arn).validate_python("arn:aws:iam::111122223333:role/admin")


def test_messages_to_python_callers_use_their_names() -> None:
    assert messages({"inner_part": {}}, snake_case=True) == ["inner_part.max_nodes: required, but missing"]


def test_an_output_is_taken_on_trust_and_a_plain_value_is_checked() -> None:
    seen: list[bool] = []

    def program() -> None:
        output = pulumi.Output.from_input(3)
        seen.append(Outer.model_validate({"inner_part": {"max_nodes": 1}, "value": output}).value is output)

    record(program)
    assert seen == [True]
    assert messages({"innerPart": {"maxNodes": 1}, "value": "x"})[0].startswith("value: 'x'")


def test_nearest_falls_back_to_all_names() -> None:
    assert nearest("p4d", ["g5", "p4d.24xlarge"]) == " (known: g5, p4d.24xlarge)"


def test_a_component_shows_its_settings_as_a_stack_file_writes_them() -> None:
    pool = {
        "instanceType": "p4d.24xlarge",
        "zone": "us-west-2b",
        "nodes": {"min": 0, "max": 2},
        "capacity": {"kind": "capacityBlock", "id": "cr-0123456789abcdef0", "endsAt": "2099-01-01T11:30:00+00:00"},
        "rootVolume": "100GiB",
    }
    wiring = dict.fromkeys(("cluster_name", "subnet_id", "security_group_id", "node_role_arn"), "x")

    def program() -> None:
        settings = PoolSettings.model_validate(pool).args()
        GpuNodePool("a100", GpuNodePoolArgs(**settings, **wiring, kubernetes_version="1.35"))

    shown = record(program).one("GpuNodePool").inputs
    assert shown.keys() == pool.keys()
    assert PoolSettings.model_validate(shown) == PoolSettings.model_validate(pool)


def test_outputs_among_the_settings_are_resolved() -> None:
    def program() -> None:
        subnets: dict[str, pulumi.Input[str]] = {
            "us-west-2a": pulumi.Output.from_input("subnet-a"),
            "us-west-2b": "subnet-b",
        }
        Network("main", {"region": "us-west-2", "existing": {"vpc_id": "vpc-1", "private_subnet_ids": subnets}})

    run = record(program)
    assert run.one("Network").inputs["existing"]["privateSubnetIds"] == {
        "us-west-2a": "subnet-a",
        "us-west-2b": "subnet-b",
    }
