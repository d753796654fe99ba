"""The instance catalogue against AWS's own figures and rules."""

from pathlib import Path

import pytest

from eks_llm.catalog import _load
from eks_llm.catalog.instances import GPUS, INSTANCES, QUOTAS
from eks_llm.catalog.models import MODELS
from eks_llm.catalog.quantization import KV_CACHES, QUANTIZATIONS
from eks_llm.core.strict_yaml import YamlError
from eks_llm.sizing.weights import weights_gib


@pytest.mark.parametrize("name", INSTANCES)
def test_max_pods_follow_from_the_interfaces(name: str):
    # amazon-eks-ami, eni_max_pods.go: interfaces of the default card x (IPv4 addresses - 1) + 2.
    instance = INSTANCES[name]
    if instance.enis_per_card and instance.ipv4_per_eni:
        assert instance.max_pods == instance.enis_per_card * (instance.ipv4_per_eni - 1) + 2


@pytest.mark.parametrize("name", INSTANCES)
def test_entries_refer_to_known_gpus_and_quotas(name: str):
    instance = INSTANCES[name]
    assert instance.gpu in GPUS
    assert instance.quota in QUOTAS
    for kind in instance.unverified:
        field, _, region = kind.partition(".")
        assert field in {"onDemandUsd", "networkCards", "capacityBlockUsd"}
        assert not region or region in instance.on_demand_usd


@pytest.mark.parametrize("name", GPUS)
def test_cuda_sees_no_more_than_the_api_reports_in_binary(name: str):
    gpu = GPUS[name]
    # G5 to G6e report decimal gigabytes, so only 5 % more than that is impossible.
    assert gpu.visible_gib <= gpu.api_mib / 1024 * 1.05
    assert gpu.visible_gib >= gpu.api_mib / 1024 * 0.9


def test_p4d_costs_what_it_does_since_the_cut_of_2025():
    assert INSTANCES["p4d.24xlarge"].on_demand_usd == {"us-east-1": 21.957642, "us-west-2": 21.957642}


def test_p5e_is_not_sold_on_demand():
    assert INSTANCES["p5e.48xlarge"].on_demand_usd == {}


@pytest.mark.parametrize(
    ("name", "on_demand", "spot"),
    [
        ("p4d.24xlarge", "L-417A185B", "L-7212CCBC"),
        ("p5.48xlarge", "L-417A185B", "L-C4BD4855"),
        ("g6e.12xlarge", "L-DB2E81BA", "L-3819A6DF"),
    ],
)
def test_quota_codes(name: str, on_demand: str, spot: str):
    quota = QUOTAS[INSTANCES[name].quota]
    assert (quota.on_demand, quota.spot) == (on_demand, spot)


@pytest.mark.parametrize(
    ("gpu", "capability", "fp8"),
    [("a100-40gb", "8.0", False), ("a10g", "8.6", False), ("l4", "8.9", True), ("h200", "9.0", True)],
)
def test_fp8_arithmetic_begins_with_8_9(gpu: str, capability: str, fp8: bool):
    assert (GPUS[gpu].compute_capability, GPUS[gpu].fp8) == (capability, fp8)


def test_formats_refer_to_formats():
    for facts in QUANTIZATIONS.values():
        assert set(facts.alternatives) <= set(QUANTIZATIONS)
    for cache in KV_CACHES.values():
        assert set(cache.alternatives) <= set(KV_CACHES)
    assert {shape.native_quantization for shape in MODELS.values()} <= {"", *QUANTIZATIONS}


# Prices -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INSTANCES)
def test_a_gib_of_gpu_memory_costs_what_it_does_elsewhere(name: str):
    """From 3.4 cents an hour (g6) to 11 (g7) on EC2's price list of 2026; a price ten times off is outside."""
    instance = INSTANCES[name]
    held = instance.gpus * GPUS[instance.gpu].visible_gib
    for region, usd in instance.on_demand_usd.items():
        assert 0.03 < usd / held < 0.14, f"{name} in {region}: {usd / held:.3f} USD per GiB and hour"
    for usd in (*(instance.spot_usd or ()), *filter(None, [instance.capacity_block_usd])):
        assert 0.01 < usd / held < 0.14


@pytest.mark.parametrize("name", INSTANCES)
def test_capacity_that_is_not_on_demand_is_cheaper(name: str):
    instance = INSTANCES[name]
    for usd in instance.on_demand_usd.values():
        assert max(instance.spot_usd or (0, 0)) <= usd
        assert (instance.capacity_block_usd or 0) <= usd


def test_larger_types_of_a_family_cost_more_and_regions_do_not_differ_by_half():
    for name, instance in INSTANCES.items():
        for region, usd in instance.on_demand_usd.items():
            assert usd <= 1.5 * min(instance.on_demand_usd.values())
            for other, larger in INSTANCES.items():
                same = other.split(".")[0] == name.split(".")[0] and region in larger.on_demand_usd
                if same and larger.vcpus > instance.vcpus:
                    assert larger.on_demand_usd[region] > usd, f"{other} costs less than {name}"


# Models -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, shape in MODELS.items() if shape.bf16_gib])
def test_a_shape_makes_the_size_that_was_published(name: str):
    """`bf16Gib` is the sum of the checkpoint's files or parameters, the shape its config.json: two sources."""
    shape = MODELS[name]
    computed = weights_gib(shape.model_copy(update={"bf16_gib": None}), "none") - shape.extra_gib
    assert computed == pytest.approx(shape.bf16_gib, rel=0.005)


# Files --------------------------------------------------------------------------------------------------------------


def test_a_key_that_stands_twice_in_a_catalogue_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "twice.yaml").write_text("regions:\n  eu-west-1: {natHour: 1}\n  eu-west-1: {natHour: 2}\n")
    monkeypatch.setattr(_load, "files", lambda _package: tmp_path)
    with pytest.raises(YamlError, match="key 'eu-west-1' stands here twice"):
        _load.load("twice.yaml", _load.Fact)
