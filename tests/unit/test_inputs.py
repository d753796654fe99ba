"""Quantities, names and messages that all components share."""

import re
from enum import Enum
from typing import Any

import pulumi
import pytest
from pydantic import TypeAdapter, ValidationError, field_validator, model_validator

from eks_llm.aws.cluster import ClusterSettings
from eks_llm.aws.network import Network
from eks_llm.aws.node_pool import GpuNodePool, GpuNodePoolArgs, PoolSettings
from eks_llm.aws.weights import Weights
from eks_llm.core.addresses import Arn
from eks_llm.core.faults import Fault, Faults
from eks_llm.core.model import In, Model
from eks_llm.core.names import Name
from eks_llm.core.problems import InvalidArgs, nearest, problems, unshown, validated
from eks_llm.core.quantities import Duration, Size
from eks_llm.plan.recorder import record
from eks_llm.serving.service import InferenceService, ServiceSettings
from tests.unit.serving import on_cluster
from tests.unit.test_service import service_args


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


def messages(content: dict[str, Any], python: bool = False) -> list[str]:
    with pytest.raises(ValidationError) as error:
        Outer.model_validate(content)
    return [str(problem) for problem in problems(error.value, Outer, python)]


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
            raise Fault("max_nodes", "1 does not go with onDemand; set {key.api_key}")
        if self.max_nodes == 2:
            raise Faults(Fault("max_nodes", "2 is even"), Fault("api_key", "required with {key.max_nodes}"))
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
    assert messages({"inner_part": {}}, python=True) == ["inner_part.max_nodes: required, but missing"]


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
    wiring: Any = {
        "cluster_name": "x",
        "subnet_id": "subnet-00000001",
        "security_group_id": "sg-00000001",
        "node_role_arn": "arn:aws:iam::111122223333:role/node",
    }

    def program() -> None:
        settings = PoolSettings.model_validate(pool).args()
        GpuNodePool("a100", GpuNodePoolArgs(**settings, **wiring, kubernetes_version="1.35"))

    shown = record(program).one("GpuNodePool").inputs
    assert shown.keys() == pool.keys()
    assert PoolSettings.model_validate(shown) == PoolSettings.model_validate(pool)


def test_outputs_among_the_settings_are_resolved() -> None:
    def program() -> None:
        subnets: dict[str, pulumi.Input[str]] = {
            "us-west-2a": pulumi.Output.from_input("subnet-0000000a"),
            "us-west-2b": "subnet-0000000b",
        }
        Network("main", {"region": "us-west-2", "existing": {"vpc_id": "vpc-00000001", "private_subnet_ids": subnets}})

    run = record(program)
    assert run.one("Network").inputs["existing"]["privateSubnetIds"] == {
        "us-west-2a": "subnet-0000000a",
        "us-west-2b": "subnet-0000000b",
    }


# The caller's own words ---------------------------------------------------------------------------------------------

ADMIN = "arn:aws:iam::111122223333:role/admin"
ODD = [
    "supportV2",
    "SQLAdapter",
    "maxNumSeqs",
    "tensorParallel",
    "OMP_NUM_THREADS",
    "a: b",
    "{key.model}",
    "a[0]",
    "str",
]
"""Words that look like keys, paths, templates or types, and are data."""


def refusals(**changes: Any) -> list[str]:
    """What `InferenceService` says to a Python caller."""
    with pytest.raises(InvalidArgs) as error:
        record(lambda: InferenceService("llama", service_args(**changes), on_cluster()))
    return [message.removeprefix('InferenceService "llama": ') for message in error.value.messages]


@pytest.mark.parametrize("word", ODD)
def test_words_of_a_python_caller_stay_as_they_are(word: str) -> None:
    assert refusals(engine={"lora_adapters": {word: 5}})[0].startswith(f"engine.lora_adapters.{word}: 5 is not text")
    assert f"model: {word!r} is not in the catalogue and has no model_shape" in refusals(model=word)[0]
    assert refusals(quantization=word)[0].startswith(f"quantization: {word!r}: unknown format")
    assert refusals(model_repository={word: "x"})[0] == f"model_repository: holds no llm/config.pbtxt (it has {word})"
    readers: Any = {"bucket": "models", "readers": {"llama": word}, "cluster_name": "c", "namespace": "n"}
    with pytest.raises(InvalidArgs, match=re.escape(f"readers.llama: {word!r}: ")):
        record(lambda: Weights("w", readers))


@pytest.mark.parametrize("word", ["maxNumSeq", "Engine", "modelRepo", "a[0]"])
def test_an_unknown_key_is_repeated_as_it_was_written(word: str) -> None:
    assert refusals(**{word: 1})[0].startswith(f"{word}: unknown key")


@pytest.mark.parametrize("word", ["supportV2", "eniConfig", "kubeProxy"])
def test_names_of_add_ons_are_data(word: str) -> None:
    cluster = {"version": "1.35", "admins": [ADMIN], "addons": {word: "v1"}, "public_access_cidrs": []}
    with pytest.raises(ValidationError) as error:
        ClusterSettings.model_validate(cluster)
    assert [problem.path for problem in problems(error.value, ClusterSettings, python=True)] == [f"addons.{word}"]


def test_fields_are_named_as_the_caller_names_them() -> None:
    engine = {"maxNumBatchedTokens": 8, "maxNumSeqs": 16}
    settings = {"model": "qwen3-8b", "weights": "s3://models/x/", "pool": "a", "runtime": "triton", "engine": engine}
    with pytest.raises(ValidationError) as error:
        ServiceSettings.model_validate(settings)
    for python, path, key in (
        (True, "engine.max_num_batched_tokens", "max_num_seqs"),
        (False, "engine.maxNumBatchedTokens", "maxNumSeqs"),
    ):
        (problem,) = problems(error.value, ServiceSettings, python)
        assert str(problem) == f"{path}: 8 is less than {key} 16, one token each"


def test_arguments_that_vllm_may_not_be_given_name_the_setting_for_it() -> None:
    assert refusals(engine={"extra": {"max_num_seqs": 5}}) == [
        "engine.extra.max_num_seqs: cannot be set here: set engine.max_num_seqs"
    ]
