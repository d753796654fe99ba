"""Messages say what helps: the right key, the right file, and one line where many say the same."""

import copy
from typing import Any

import pulumi
import pytest

from eks_llm.core.problems import InvalidArgs, folded
from eks_llm.plan.recorder import record
from eks_llm.platform import load
from tests.unit.test_settings import platform, problems, settings


def test_a_file_of_another_project_says_which_key_is_wanted() -> None:
    config = {"aws:region": "us-west-2", "other:platform": platform()}
    with pytest.raises(InvalidArgs) as error:
        record(lambda: load(pulumi.Config(), "prod"), stack="prod", config=config)
    (message,) = error.value.messages
    assert message == (
        "Pulumi.prod.yaml: other:platform: is there, and this project reads eks-llm:platform; rename the keys, or set "
        "name: other in Pulumi.yaml"
    )


def test_a_missing_region_is_called_missing() -> None:
    assert problems(platform(), aws__region=None) == [
        "Pulumi.prod.yaml: aws:region: required, but missing; run: pulumi config set aws:region us-west-2 (or another "
        "region)"
    ]


def test_keys_that_seem_to_matter_and_do_not_are_named() -> None:
    _, warnings = settings(platform(), kubernetes__context="prod", other__platform="{}")
    assert "kubernetes:context: objects go where an explicit provider says, so this does not reach them" in warnings
    assert "other:platform: of a project called other; this one reads eks-llm:platform" in warnings


def test_keys_of_pulumi_and_of_a_programs_own_providers_are_no_doubt() -> None:
    config: Any = {"pulumi__disable-default-providers": '["*"]', "cloudflare__accountId": "1"}
    _, warnings = settings(platform(), **config)
    assert not [text for text in warnings if "pulumi:" in text or "cloudflare" in text]


# One for many -------------------------------------------------------------------------------------------------------


def test_two_hundred_services_are_one_warning() -> None:
    content = platform()
    content["gpuPools"]["a100"]["nodes"] = {"min": 0, "max": 450}
    content["services"] = {
        f"s{index}": {**copy.deepcopy(content["services"]["llama"]), "scaling": {"min": 1, "max": 1}}
        for index in range(200)
    }
    _, warnings = settings(content)
    same = [text for text in warnings if "the loss of one node takes all of its replicas" in text]
    assert len(same) == 1
    assert same[0].startswith("platform.services.*.scaling.min (s0, s1, s2 and 197 more): ")
    assert len(warnings) < 10


def test_unused_pools_are_one_warning() -> None:
    content = platform()
    pool = {**content["gpuPools"]["a100"], "nodes": {"min": 0, "max": 1}}
    content["gpuPools"] |= {f"p{index}": pool for index in range(8)}
    _, warnings = settings(content)
    assert "gpuPools.* (p0, p1, p2 and 5 more): no service uses this pool (0 to 1 nodes)" in warnings


def test_what_differs_and_what_is_few_stays() -> None:
    few = [f"services.{name}.scaling.min: too low" for name in "abc"]
    assert folded(few) == few
    other = [f"services.s{index}.scaling.min: {index} is too low" for index in range(9)]
    assert folded(other) == other
    plain = ["eks-llm:key: not set", "a sentence without a path", "network: x", "network: x"]
    assert folded(plain) == plain
    assert folded([f"services.s{index}: odd: x" for index in range(4)]) == [
        "services.* (s0, s1, s2 and 1 more): odd: x"
    ]
