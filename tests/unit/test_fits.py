"""What a stack file asks for must have room where it runs."""

import copy
from typing import Any

import pytest

from eks_llm.core.problems import InvalidArgs
from tests.unit.test_settings import platform, settings

BLOCK = {"kind": "reservation", "id": "cr-0123456789abcdef0"}


def pools(number: int) -> dict[str, Any]:
    content = platform()
    pool = {**content["gpuPools"]["a100"], "nodes": {"min": 0, "max": 1}}
    content["gpuPools"] |= {f"p{index}": copy.deepcopy(pool) for index in range(number - 1)}
    return content


def refused(content: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidArgs) as error:
        settings(content)
    return {problem.path.removeprefix("platform."): problem.message for problem in error.value.problems}


# Addresses ----------------------------------------------------------------------------------------------------------


def with_nodes(cidr: str, gpu: int, system: int = 4) -> dict[str, Any]:
    content = platform()
    content["network"]["cidr"] = cidr
    content["gpuPools"]["a100"]["nodes"]["max"] = gpu
    content["cluster"]["systemNodes"] = {"max": system}
    content["services"] = {}
    return content


def test_a_zones_subnet_holds_the_addresses_of_its_nodes() -> None:
    """A /20 gives each zone a /23: 512 addresses, of which AWS keeps 5 and EKS wants 6. A node takes its own and 16."""
    assert refused(with_nodes("10.10.0.0/20", 450)) == {
        "network.cidr": "us-west-2b has 10.10.2.0/23, with 501 addresses for nodes; 452 nodes (gpuPools.a100 450, "
        "system nodes 2) take at least 7,684, 17 each: take a wider range, or lower the largest numbers"
    }
    settings(with_nodes("10.10.0.0/20", 27))  # 29 nodes take 493
    assert refused(with_nodes("10.10.0.0/20", 28))  # 30 take 510


def test_system_nodes_and_endpoints_count_too() -> None:
    assert "us-west-2" in refused(with_nodes("10.10.0.0/20", 1, system=450))["network.cidr"]
    content = with_nodes("10.10.0.0/20", 27)
    content["network"]["interfaceEndpoints"] = ["sts", "ec2", "eks", "logs", "kms", "sqs", "sns", "ssm", "ecr.api"]
    assert "with 492 addresses" in refused(content)["network.cidr"]


def test_the_widest_range_holds_the_largest_pool() -> None:
    settings(with_nodes("10.10.0.0/16", 450))  # 8,192 addresses of a /19


# Once only ----------------------------------------------------------------------------------------------------------


def test_a_reservation_is_in_one_pool() -> None:
    content = pools(2)
    for pool in content["gpuPools"].values():
        pool["capacity"] = BLOCK
    said = refused(content)["gpuPools.p0.capacity.id"]
    assert "is gpuPools.a100's too, and its instances would count twice" in said


@pytest.mark.parametrize(
    ("weights", "model", "message"),
    [
        ("llama/", "qwen3-14b", "services.llama.weights too, which is of llama-3-8b-instruct"),
        ("llama/v2/", "llama-3-8b-instruct", "lies below services.llama.weights (s3://acme-weights/llama/)"),
        ("llama/adapters/", "qwen3-14b", "lies below services.llama.weights"),
    ],
)
def test_a_prefix_holds_one_model(weights: str, model: str, message: str) -> None:
    content = platform()
    content["gpuPools"]["a100"]["nodes"]["max"] = 4
    content["services"]["zeta"] = {
        **content["services"]["llama"],
        "weights": f"s3://acme-weights/{weights}",
        "model": model,
    }
    assert message in refused(content)["services.zeta.weights"]


def test_a_prefix_around_another_is_refused() -> None:
    content = platform()
    content["services"]["zeta"] = {**content["services"]["llama"], "weights": "s3://acme-weights/a/"}
    content["services"]["llama"]["weights"] = "s3://acme-weights/a/llama/"
    assert refused(content)["services.zeta.weights"].startswith("services.llama.weights lies below it")


def test_two_services_may_share_the_weights_of_one_model_and_prefixes_may_begin_alike() -> None:
    content = platform()
    content["gpuPools"]["a100"]["nodes"]["max"] = 4
    content["services"]["same"] = content["services"]["llama"]
    content["services"]["alike"] = {**content["services"]["llama"], "weights": "s3://acme-weights/llama-2/"}
    settings(content)


# Node groups --------------------------------------------------------------------------------------------------------


def test_more_node_groups_than_eks_makes_need_a_quota() -> None:
    """The user guide's default is 30 managed node groups a cluster; system nodes are one."""
    loaded, warnings = settings(pools(41))
    (said,) = [text for text in warnings if "managed node groups" in text]
    assert "42 managed node groups with the system nodes; EKS makes 30 a cluster" in said
    (quota,) = [item for item in loaded.report.capacity.quotas if item.service == "eks"]
    assert (quota.code, quota.value) == ("L-6D54EA21", 42)
    assert "--service-code eks --quota-code L-6D54EA21 --desired-value 42" in quota.command


def test_thirty_groups_need_none() -> None:
    loaded, warnings = settings(pools(29))
    assert not [text for text in warnings if "managed node groups" in text]
    assert not [item for item in loaded.report.capacity.quotas if item.service == "eks"]


# System nodes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("monitoring", {"memory": "16GiB"}),
        ("monitoring", {"memory": "200GiB"}),
        ("cluster", {"systemNodes": {"instanceTypes": ["t3.nano"]}}),
    ],
)
def test_operators_that_no_system_node_holds_are_refused(section: str, value: dict[str, Any]) -> None:
    content = platform()
    content[section] = {**content.get(section, {}), **value}
    assert all(path.startswith("cluster.systemNodes") for path in refused(content))


# Advice -------------------------------------------------------------------------------------------------------------


def test_advice_stays_within_what_a_pool_can_have() -> None:
    content = platform()
    content["services"]["llama"]["scaling"]["max"] = 10**9
    said = refused(content)["gpuPools.a100.nodes.max"]
    assert "set max to" not in said
    assert "a pool has at most 450 nodes (EKS), so share them among pools, or lower scaling.max" in said


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"gpuMemoryUtilization": 0.0001}, "gpuMemoryUtilization 0.0001 leaves too little of 39.49 GiB"),
        ({"maxNumSeqs": 10**12}, "lower maxNumSeqs (1,000,000,000,000) or maxNumBatchedTokens"),
    ],
)
def test_a_setting_that_no_gpu_can_satisfy_is_named(engine: dict[str, Any], message: str) -> None:
    content = platform()
    content["services"]["llama"]["engine"] = engine
    assert message in refused(content)["services.llama"]
