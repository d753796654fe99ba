"""Capacity, quotas, cost, suggestions and advice for whole stacks."""

import datetime
import itertools
from dataclasses import replace

import pytest
import yaml

from benchmarks.sizing import fifty_services, seconds
from eks_llm.catalog.instances import INSTANCES
from eks_llm.catalog.models import MODELS
from eks_llm.sizing.advise import advise, cheapest_per_type
from eks_llm.sizing.capacity import capacity, nodes_needed, zone_ids, zone_prefix
from eks_llm.sizing.memory import Engine, Verdict
from eks_llm.sizing.own_prices import OwnPrices, read, write
from eks_llm.sizing.report import Report, size
from eks_llm.sizing.stack import USD, Charge, NodeGroup, Pool, Service, Stack
from eks_llm.sizing.suggest import suggestions
from tests.calibration import REFERENCE

NOW = datetime.datetime(2026, 8, 1, tzinfo=datetime.UTC)
ENGINE = Engine("0.27.1", 8192)
POOL = Pool("a100", "p4d.24xlarge", 2, 4)
SYSTEM = NodeGroup("system nodes", "cluster.systemNodes", ("m7i.xlarge",), 2, 4)
CHARGES = (Charge("EBS volumes", "gp3_gb_month", 50, 50, 50), Charge("EKS control plane", USD, 73, 73, 73))
NAT = (Charge("NAT gateways", "nat_hour", 3 * 730, 3 * 730, 3 * 730), Charge("NAT gateways", "nat_gb", 0, 100, 100))


def service(name: str = "llama", model: str = "llama-3.3-70b-instruct", **changes) -> Service:
    base = Service(name, model, MODELS[model], "a100", ENGINE, 2, 4, quantization="awq", tensor_parallel=4)
    return replace(base, **changes)


def stack(*services: Service, pool: Pool = POOL, **changes) -> Stack:
    return replace(Stack("us-west-2", (pool,), services, (SYSTEM,), CHARGES), **changes)


def own(usd: float, capacity: str = "onDemand", date: str = "2026-07-31") -> OwnPrices:
    prices = {"us-west-2": {capacity: {"p4d.24xlarge": usd}}}
    return OwnPrices.model_validate({"date": date, "regions": prices})


def messages(report: Report) -> str:
    return "\n".join(map(str, report.findings))


# Packing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "nodes"),
    [
        ({}, 0),
        ({8: 3}, 3),
        ({4: 3}, 2),
        ({4: 3, 8: 2}, 4),
        ({4: 1, 2: 1, 1: 2}, 1),
        ({4: 1, 2: 1, 1: 3}, 2),
        ({1: 17}, 3),
        ({5: 2, 3: 2}, 2),
        ({16: 1}, 0),  # larger than a node: refused elsewhere
    ],
)
def test_replicas_are_packed_on_nodes_of_eight_gpus(replicas: dict[int, int], nodes: int):
    assert nodes_needed(replicas, 8) == nodes


def test_packing_is_first_fit_of_the_largest():
    # The same rule pod by pod, the slow way.
    for ones, twos, threes, fours, eights in itertools.product(range(4), repeat=5):
        free: list[int] = []
        for gpus in [8] * eights + [4] * fours + [3] * threes + [2] * twos + [1] * ones:
            room = min((left for left in free if left >= gpus), default=None)
            if room is None:
                free.append(8 - gpus)
            else:
                free[free.index(room)] -= gpus
        assert nodes_needed({1: ones, 2: twos, 3: threes, 4: fours, 8: eights}, 8) == len(free)


def test_max_replicas_must_fit_the_pool():
    report = size(stack(service(max_replicas=9)), NOW)
    (error,) = report.errors
    assert error.path == "gpuPools.a100.nodes.max"
    assert error.message == (
        "4 node(s) hold 32 GPUs; the services ask for 36 at their maximum (llama 9 x 4), which takes 5 nodes; set max "
        "to 5, or lower scaling.max"
    )


def test_gpus_may_suffice_and_still_not_hold_the_replicas():
    # 3 x 5 = 15 of 16 GPUs, but a node of 8 holds one replica of 5.
    odd = service(model="phi-4", tensor_parallel=5, quantization="none", min_replicas=1, max_replicas=3)
    budget = capacity(stack(odd, pool=replace(POOL, max_nodes=2)), NOW).pools[0]
    assert (budget.gpus_max, budget.gpus_held, budget.nodes_for_max) == (15, 16, 3)


def test_min_against_min():
    report = size(stack(service(min_replicas=4), pool=replace(POOL, min_nodes=1)), NOW)
    assert "gpuPools.a100.nodes.min: 1, but the minimum replicas take 2 node(s)" in messages(report)


def test_nodes_that_are_never_needed():
    assert "4, but the services never need more than 2" in messages(size(stack(service()), NOW))


def test_small_replicas_may_scatter():
    mixed = stack(
        service("big", tensor_parallel=8, quantization="none", min_replicas=1, max_replicas=2),
        service("small", "llama-3-8b-instruct", tensor_parallel=1, quantization="none", min_replicas=4, max_replicas=8),
    )
    assert "small ones may scatter and leave no node with 8 free GPUs" in messages(size(mixed, NOW))
    assert "scatter" not in messages(size(stack(service()), NOW))


@pytest.mark.parametrize(
    ("replicas", "nodes", "words"),
    [(1, 1, "all of its replicas"), (2, 2, "1 of its 2 replicas"), (3, 2, "2 of its 3 replicas"), (4, 1, "2 of its 4"),
     (3, 3, None), (0, 1, None)],
)  # fmt: skip
def test_one_node_failure(replicas: int, nodes: int, words: str | None):
    text = messages(size(stack(service(min_replicas=replicas), pool=replace(POOL, min_nodes=nodes)), NOW))
    assert (words in text) if words else ("loss of one node" not in text)


def test_host_memory_and_nvme():
    # p4d: 1,152 GiB, of which 3 % are the kernel's and 8 GiB kubelet's; an eighth of the rest.
    hungry = service(model="llama-3-8b-instruct", tensor_parallel=1, quantization="none", memory_gib=200)
    assert "its share of a p4d.24xlarge is 139 GiB" in messages(size(stack(hungry), NOW))
    assert "host memory" not in messages(size(stack(service()), NOW))
    small = Pool("a100", "g6.xlarge", 1, 2)
    large = service(model="qwen3-235b-a22b", quantization="none", tensor_parallel=1)
    disk = "images and weights take 488 GiB; the NVMe disks of g6.xlarge hold 233 GiB"
    assert any(disk in str(item) and item.error for item in capacity(stack(large, pool=small), NOW).findings)


# Quotas, zones, blocks ----------------------------------------------------------------------------------------------


def test_quota_in_vcpus_with_the_command():
    need, _ = capacity(stack(service()), NOW).quotas
    assert (need.code, need.value, need.unit) == ("L-417A185B", 384, "vCPUs")  # 4 x 96
    assert need.command == (
        "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-417A185B "
        "--desired-value 384 --region us-west-2"
    )


def test_quota_codes_add_up_over_families():
    pools = (
        POOL,
        Pool("h100", "p5.48xlarge", 0, 1),
        Pool("l4", "g6.12xlarge", 0, 2),
        Pool("cheap", "p4d.24xlarge", 0, 1, "spot"),
    )
    needs = {need.code: need.value for need in capacity(replace(stack(), pools=pools), NOW).quotas}
    assert needs == {"L-417A185B": 4 * 96 + 192, "L-DB2E81BA": 96, "L-7212CCBC": 96, "L-1216C47A": 4 * 4}


def test_capacity_block_quota_counts_instances():
    need, _ = capacity(stack(pool=replace(POOL, capacity="capacityBlock")), NOW).quotas
    assert (need.code, need.value, need.unit) == ("L-2C8F52B3", 4, "instances")


@pytest.mark.parametrize(
    ("region", "prefix"),
    [("us-west-2", "usw2"), ("us-east-1", "use1"), ("eu-central-1", "euc1"), ("ap-southeast-2", "apse2"),
     ("ap-northeast-1", "apne1")],
)  # fmt: skip
def test_zone_id_prefix(region: str, prefix: str):
    assert zone_prefix(region) == prefix


def test_zones_that_offer_the_type():
    assert zone_ids(INSTANCES["p6-b300.48xlarge"], "us-west-2") == ["usw2-az2"]
    text = messages(size(stack(service(), region="eu-west-1"), NOW))
    assert "p4d.24xlarge is not known to be offered in eu-west-1 (zones use1, use2, usw2)" in text
    assert "no price of p4d.24xlarge in eu-west-1" in text
    assert "no prices of NAT" in text


@pytest.mark.parametrize(
    ("hours", "words", "error"),
    [(24, "EKS takes the nodes away at 2026-08-01 23:20 UTC, in 1.0 days; llama stop(s) then", False),
     (-1, "is over", True)],
)  # fmt: skip
def test_capacity_block_end(hours: int, words: str, error: bool):
    block = replace(POOL, capacity="capacityBlock", block_ends=NOW + datetime.timedelta(hours=hours))
    (found,) = [item for item in capacity(stack(service(), pool=block), NOW).findings if "capacity" in item.path]
    assert words in found.message
    assert found.error is error


def test_capacity_block_with_time_left_is_quiet():
    block = replace(POOL, capacity="capacityBlock", block_ends=NOW + datetime.timedelta(days=30))
    assert not [item for item in capacity(stack(service(), pool=block), NOW).findings if "capacity" in item.path]


@pytest.mark.parametrize(
    ("type_", "kind", "message", "error"),
    [
        ("p5e.48xlarge", "onDemand", "p5e.48xlarge is not sold on demand; set kind to spot, or to capacityBlock", True),
        ("g6e.48xlarge", "capacityBlock", "there are no Capacity Blocks of g6e.48xlarge (there are of p4d", True),
        ("p5.4xlarge", "capacityBlock", "the quota of Capacity Blocks of p5.4xlarge is not known", False),
    ],
)
def test_what_aws_does_not_sell(type_: str, kind: str, message: str, error: bool):
    pool = replace(POOL, instance_type=type_, capacity=kind)
    (found,) = [item for item in capacity(stack(pool=pool), NOW).findings if item.path == "gpuPools.a100.capacity"]
    assert found.message.startswith(message)
    assert found.error is error
    spot = replace(POOL, instance_type="p5e.48xlarge", capacity="spot")
    assert not [item for item in capacity(stack(pool=spot), NOW).findings if "capacity" in item.path]


def test_blocks_of_p6_share_a_quota():
    pools = tuple(Pool(name, f"{name}.48xlarge", 0, 1, "capacityBlock") for name in ("p6-b200", "p6-b300"))
    need, _ = capacity(replace(stack(), pools=pools), NOW).quotas
    assert (need.code, need.value) == ("L-8B23CEF3", 2)


def test_quota_of_the_system_nodes():
    (need,) = capacity(
        replace(stack(), pools=(), node_groups=(replace(SYSTEM, instance_types=("m7i.2xlarge",)),)), NOW
    ).quotas
    assert (need.code, need.value, need.pools) == ("L-1216C47A", 4 * 8, ("system nodes",))
    assert not capacity(replace(stack(), pools=(), node_groups=()), NOW).quotas


# Cost ---------------------------------------------------------------------------------------------------------------


def test_bill_of_a_stack():
    full = stack(service(max_replicas=8), charges=(*NAT, *CHARGES))
    bill = size(full, NOW).cost
    lines = {line.what: line for line in bill.lines}
    gpus = lines["a100: 2 to 4 x p4d.24xlarge"]
    assert gpus.minimum == pytest.approx(2 * 21.957642 * 730)
    assert gpus.maximum == pytest.approx(4 * 21.957642 * 730)
    assert gpus.expected == pytest.approx(3 * 21.957642 * 730)  # 5 replicas of 4 GPUs
    assert lines["NAT gateways"].minimum == pytest.approx(3 * 0.045 * 730)
    assert lines["EKS control plane"].minimum == pytest.approx(73)
    assert lines["EBS volumes"].minimum == pytest.approx((50 + 2 * 100) * 0.08)
    assert bill.minimum == pytest.approx(sum(line.minimum or 0 for line in bill.lines))
    assert bill.minimum <= bill.expected <= bill.maximum


def test_own_prices_count_for_their_kind_of_capacity_only():
    def line(prices: OwnPrices, capacity: str):
        return size(stack(service(), pool=replace(POOL, capacity=capacity), prices=prices), NOW).cost.lines[0]

    assert line(own(10.0), "reservation").note == line(own(10.0), "onDemand").note  # one list price for both
    assert "eks-llm.prices.yaml" not in line(own(10.0), "spot").note
    assert "eks-llm.prices.yaml" in line(own(5.0, "spot"), "spot").note
    assert "Capacity Block price" not in line(own(5.0, "capacityBlock"), "capacityBlock").note


def test_the_bill_is_as_old_as_its_prices():
    report = size(stack(service(), prices=own(10.0, date="2026-01-01")), NOW)
    assert "prices are of 2026-01-01, 212 days old" in messages(report)
    later = NOW + datetime.timedelta(days=120)
    assert "days old" not in messages(size(stack(service(), prices=own(10.0, date="2026-11-20")), later))


def test_own_prices_are_read_as_written(tmp_path):
    assert read(tmp_path) is None
    write(own(9.5, "spot"), tmp_path)
    assert read(tmp_path) == own(9.5, "spot")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "eks-llm.prices.yaml: not a YAML file that can be read"),
        ("date: 2026-07-31\nregion: {}", "eks-llm.prices.yaml: region: Extra inputs are not permitted"),
        ("regions: {}", "date: Field required"),
        (
            "date: 2026-07-31\nregions: {us-west-2: {spot: {a: -1}}}",
            "regions.us-west-2.spot.a: Input should be greater",
        ),
        ("", "content: Input should be a valid dictionary"),
        ("garbage", "eks-llm.prices.yaml: content: Input should be a valid dictionary, not 'garbage'"),
        ("date: 2026-13-40", "eks-llm.prices.yaml: date: Input should be a valid date"),
    ],
)
def test_own_prices_that_cannot_be_used(tmp_path, text: str, message: str):
    (tmp_path / "eks-llm.prices.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"eks-llm\.prices\.yaml: ") as error:
        read(tmp_path)
    assert message in str(error.value)


def test_share_of_a_service_and_price_of_tokens():
    measured = service(tokens_per_second=1000.0)
    (share,) = size(stack(measured), NOW).cost.services
    replica = 21.957642 / 2
    assert share.minimum == pytest.approx(2 * replica * 730)
    assert share.maximum == pytest.approx(4 * replica * 730)
    assert share.per_million_tokens == pytest.approx(replica / 3.6)
    assert share.assumption == "measured"


def test_estimated_rate_names_its_assumption():
    (share,) = size(stack(service()), NOW).cost.services
    assert share.assumption.startswith("estimate by bandwidth and arithmetic rate, 148 requests of 1,536 tokens in")
    assert share.assumption.endswith(" and 512 out")
    (fewer,) = size(stack(service(in_flight=16)), NOW).cost.services
    assert "16 requests" in fewer.assumption
    assert fewer.tokens_per_second < share.tokens_per_second
    assert (fewer.per_million_tokens or 0) > (share.per_million_tokens or 0)


def test_single_stream_rate_is_near_the_measured():
    # Llama-3.1-8B bf16, one stream of 1,024 + 128 tokens: 75 tok/s on A100-40, vLLM 0.23; 87 on A100-80, 0.31.
    for instance_type, rate in (("p4d.24xlarge", 75), ("p4de.24xlarge", 87)):
        pool = replace(POOL, instance_type=instance_type)
        one = service(model="llama-3.1-8b-instruct", quantization="none", tensor_parallel=1, typical_tokens=1088,
                      engine=replace(ENGINE, max_num_seqs=1))  # fmt: skip
        (share,) = size(stack(one, pool=pool), NOW).cost.services
        assert share.tokens_per_second == pytest.approx(rate, rel=0.15)


def test_reserved_capacity_is_paid_in_full():
    for kind, hour in (("reservation", 21.957642), ("capacityBlock", 14.75)):
        line = size(stack(service(), pool=replace(POOL, capacity=kind)), NOW).cost.lines[0]
        assert line.minimum == line.maximum == pytest.approx(4 * hour * 730)


def test_spot_is_the_middle_of_the_range_seen():
    line = size(stack(service(), pool=replace(POOL, capacity="spot")), NOW).cost.lines[0]
    assert line.minimum == pytest.approx(2 * (6.5 + 15.7) / 2 * 730)
    assert "seen from 6.5 to 15.7" in line.note


def test_prices_can_be_overridden():
    line = size(stack(service(), prices=own(10.0)), NOW).cost.lines[0]
    assert line.minimum == pytest.approx(2 * 10 * 730)
    assert line.note == "10 an hour, eks-llm.prices.yaml of 2026-07-31"


def test_old_prices_are_told():
    assert "days old" not in messages(size(stack(service()), NOW))
    later = datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC)
    assert "prices are of 2026-07-20, 132 days old" in messages(size(stack(service()), later))


def test_a_price_that_is_not_known_makes_the_bill_incomplete():
    bill = size(stack(service(min_replicas=4), region="eu-central-1", charges=(*NAT, *CHARGES)), NOW).cost
    lines = {line.what: line for line in bill.lines}
    pool = lines["a100: 2 x p4d.24xlarge"]
    assert (pool.minimum, pool.expected, pool.maximum, pool.note) == (None, None, None, "price not known")
    assert lines["NAT gateways"].minimum is lines["EBS volumes"].minimum is None
    # The control plane costs 0.10 USD an hour everywhere.
    assert (bill.incomplete, bill.minimum) == (True, pytest.approx(73))
    (share,) = bill.services
    assert (share.minimum, share.per_million_tokens) == (None, None)
    assert not size(stack(service()), NOW).cost.incomplete


def test_own_price_of_system_nodes_counts_without_catalogue_prices():
    prices = OwnPrices.model_validate({"date": "2026-07-31", "regions": {"eu-central-1": {"onDemand": {
        "m7i.xlarge": 0.25, "p4d.24xlarge": 25}}}})  # fmt: skip
    lines = {line.what: line for line in size(stack(service(), region="eu-central-1", prices=prices), NOW).cost.lines}
    assert lines["system nodes: 2 to 4 x m7i.xlarge"].minimum == pytest.approx(2 * 0.25 * 730)


def test_volumes_count_the_nodes_that_run():
    # Of at most 9 nodes the services need 2 to 4, and 3 with the 6 replicas that are expected; 100 GiB each.
    wide = stack(service(min_replicas=4, max_replicas=8, expected_replicas=6), pool=replace(POOL, max_nodes=9))
    line = next(line for line in size(wide, NOW).cost.lines if line.what == "EBS volumes")
    assert [line.minimum, line.expected, line.maximum] == pytest.approx([250 * 0.08, 350 * 0.08, 450 * 0.08])


def test_traffic_through_nat_counts_from_expected_on():
    line = next(x for x in size(stack(service(), charges=NAT), NOW).cost.lines if x.what == "NAT gateways")
    assert (line.expected or 0) - (line.minimum or 0) == pytest.approx(100 * 0.045)


def test_a_capacity_block_price_is_as_old_as_it_is():
    report = size(stack(service(), pool=replace(POOL, capacity="capacityBlock")), NOW)
    assert report.cost.date == datetime.date(2025, 1, 1)
    assert (
        "cost: the Capacity Block price of p4d.24xlarge is of 2025-01-01, 577 days old; write today's in "
        "eks-llm.prices.yaml"
    ) in messages(report)


def test_old_prices_name_the_command_with_its_region():
    later = datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC)
    assert "renew them: eks-llm prices refresh --region us-west-2" in messages(size(stack(service()), later))


def test_a_misspelt_type_in_own_prices_is_told():
    prices = OwnPrices.model_validate({"date": "2026-07-31", "regions": {"us-west-2": {"spot": {"p4d.24xlrge": 1}}}})
    assert (
        "eks-llm.prices.yaml: regions.us-west-2.spot: 'p4d.24xlrge' is no instance type that is known here, so its "
        "price counts for nothing; did you mean 'p4d.24xlarge'?"
    ) in messages(size(stack(service(), prices=prices), NOW))


# Refusal and suggestions --------------------------------------------------------------------------------------------

TOO_LARGE = service(model="llama-3-70b-instruct", quantization="none", tensor_parallel=4)


def test_a_refusal_has_the_arithmetic_and_the_ways_out():
    (error,) = size(stack(TOO_LARGE), NOW).errors
    text = str(error)
    assert text.startswith("services.llama: llama-3-70b-instruct does not fit on 4 x NVIDIA A100-SXM4-40GB")
    for words in (
        "budget          36.3 GiB",
        "weights        -32.9 GiB  131.4 bfloat16 on 4",
        "= KV cache      -0.2 GiB",
        "- tensorParallel: 8: fits",
        "- quantization: awq: fits",
        "- quantization: awq and tensorParallel: 2: fits",
        "- instanceType: p4de.24xlarge: fits",
    ):
        assert words in text


def test_suggestions_know_own_prices():
    here = suggestions(TOO_LARGE, POOL, "us-west-2", prices=own(10.0))[0]
    assert here.usd_month == pytest.approx(10 * 730)
    prices = OwnPrices.model_validate(
        {"date": "2026-07-31", "regions": {"eu-central-1": {"onDemand": {"p4de.24xlarge": 30}}}}
    )
    there = suggestions(TOO_LARGE, POOL, "eu-central-1", 99, prices)
    assert {dict(item.changes).get("instanceType") for item in there} == {None, "p4de.24xlarge"}


def test_suggestions_stay_in_the_region():
    # p6-b300 is offered in usw2-az2 only.
    types = {
        region: {dict(item.changes).get("instanceType") for item in suggestions(TOO_LARGE, POOL, region, 99)}
        for region in ("us-east-1", "us-west-2")
    }
    assert types["us-west-2"] - types["us-east-1"] == {"p6-b300.48xlarge"}


def test_marginal_and_too_small_changes_come_last_or_not_at_all():
    long = service(model="llama-3.1-8b-instruct", quantization="none", tensor_parallel=1, in_flight=16,
                   engine=Engine("0.27.1", 131072, max_num_seqs=256))  # fmt: skip
    tight = Pool("a100", "g5.12xlarge", 1, 2)
    found = suggestions(long, tight, "us-west-2", 99)
    assert found
    marginal = [item.fit.verdict is Verdict.MARGINAL for item in found]
    assert marginal == sorted(marginal)
    few = suggestions(replace(long, in_flight=1), tight, "us-west-2", 99)
    assert len(few) > len(found)
    assert all(item.fit.concurrency(min(131072 // 4, item.fit.engine.max_model_len)) >= 16 for item in found)


def test_suggestions_best_first_with_cost():
    found = suggestions(TOO_LARGE, POOL, "us-west-2")
    kinds = [tuple(key for key, _ in item.changes) for item in found]
    assert kinds[0] == ("tensorParallel",)
    assert kinds.index(("quantization",)) < kinds.index(("quantization", "tensorParallel"))
    assert kinds.index(("quantization",)) < kinds.index(("instanceType",))
    node = 21.957642 * 730
    assert found[0].usd_month == pytest.approx(node)
    assert found[0].usd_before == pytest.approx(node / 2)
    assert f"({node / 2:+,.0f})" in str(found[0])


def test_a_shorter_context_is_suggested_where_it_helps():
    long = service(
        model="llama-3.1-8b-instruct",
        quantization="none",
        tensor_parallel=1,
        engine=Engine("0.27.1", 131072, max_num_seqs=1024),
    )
    tight = Pool("a100", "g5.12xlarge", 1, 2)
    lengths = [
        dict(item.changes)["engine.maxModelLen"]
        for item in suggestions(long, tight, "us-west-2", 99)
        if "engine.maxModelLen" in dict(item.changes)
    ]
    (length,) = lengths
    fitting = replace(long, engine=replace(long.engine, max_model_len=int(length)))
    assert not size(stack(fitting, pool=tight), NOW).errors
    too_long = replace(long, engine=replace(long.engine, max_model_len=int(length) + 2048))
    assert size(stack(too_long, pool=tight), NOW).errors


def test_illegal_settings_are_refused_without_arithmetic():
    report = size(
        stack(
            service(tensor_parallel=3),
            service("fp8", quantization="fp8"),
            service("long", engine=Engine("0.27.1", 10**6)),
        ),
        NOW,
    )
    assert [error.path for error in report.errors if error.path.startswith("services")] == [
        "services.llama.tensorParallel",
        "services.fp8.quantization",
        "services.long.engine.maxModelLen",
    ]
    assert report.fits == {}


def test_unmeasured_engine_versions_are_a_warning():
    report = size(stack(service(engine=Engine("0.8.0", 8192))), NOW)
    assert "services.llama: memory not checked: vLLM 0.8.0" in messages(report)
    assert not [error for error in report.errors if error.path.startswith("services")]


@pytest.mark.parametrize(("share", "warned"), [(0.95, False), (0.97, True)])
def test_a_budget_without_room_for_cuda_contexts_is_warned_of(share: float, warned: bool):
    engine = replace(ENGINE, gpu_memory_utilization=share)
    text = messages(size(stack(service(engine=engine)), NOW))
    assert ("services.llama.engine.gpuMemoryUtilization: 0.97 leaves little beside vLLM's budget" in text) is warned


# Advice -------------------------------------------------------------------------------------------------------------


def test_advice_for_the_reference_workload():
    shape = MODELS["llama-3-70b-instruct"]
    found = advise("llama-3-70b-instruct", shape, REFERENCE, region="us-west-2", vllm="0.27.1")
    assert [item.usd_month for item in found] == sorted(item.usd_month for item in found)
    assert any(item.instance_type == "p4d.24xlarge" for item in found[:3])
    for item in found:
        assert item.latency.ttft_p99 <= 0.82
        assert item.latency.tpot_p99 <= 0.042
        assert item.replicas * item.streams_per_replica >= 100
        assert item.nodes * INSTANCES[item.instance_type].gpus >= item.replicas * item.tensor_parallel
        assert item.fit.margin > 0
    assert not any(
        item.instance_type == "p4d.24xlarge" and item.quantization == "none" and item.tensor_parallel < 8
        for item in found
    )


def test_advice_is_the_cheapest_of_each_type():
    shape = MODELS["llama-3-70b-instruct"]
    found = advise("m", shape, REFERENCE, region="us-west-2", vllm="0.27.1")
    best = cheapest_per_type(found)
    assert [item.instance_type for item in best] == list(dict.fromkeys(item.instance_type for item in found))
    for item in best:
        assert item.usd_month == min(other.usd_month for other in found if other.instance_type == item.instance_type)


def test_advice_knows_own_prices_and_what_a_region_offers():
    shape = MODELS["llama-3.3-70b-instruct"]
    prices = OwnPrices.model_validate({"date": "2026-07-31", "regions": {"eu-central-1": {"onDemand": {
        "p4d.24xlarge": 25}}}})  # fmt: skip
    found = advise("m", shape, REFERENCE, region="eu-central-1", vllm="0.27.1", prices=prices)
    assert {item.instance_type for item in found} == {"p4d.24xlarge"}
    assert found[0].usd_month == pytest.approx(found[0].nodes * 25 * 730)
    east = advise("m", shape, REFERENCE, region="us-east-1", vllm="0.27.1")
    assert "p6-b300.48xlarge" not in {item.instance_type for item in east}


def test_advice_stays_within_a_node_group():
    crowd = replace(REFERENCE, streams=100_000)
    found = advise("m", MODELS["llama-3.3-70b-instruct"], crowd, region="us-west-2", vllm="0.27.1")
    assert found
    assert max(item.nodes for item in found) <= 450


@pytest.mark.parametrize(
    ("model", "name"),
    [("llama-3.3-70b-instruct", "llama-3-3-70b"), ("7B_Own", "m-7b-own"), ("x" * 60, "x" * 30)],
)
def test_advice_names_a_service_as_a_stack_file_may(model: str, name: str):
    best = advise("m", MODELS["llama-3-70b-instruct"], REFERENCE, region="us-west-2", vllm="0.27.1")[0]
    assert list(yaml.safe_load(best.stack_file(model, "us-west-2", REFERENCE))["services"]) == [name]


def test_stricter_targets_never_get_cheaper():
    shape = MODELS["llama-3.1-8b-instruct"]
    costs = [
        advise("m", shape, replace(REFERENCE, tpot_p99=target), region="us-west-2", vllm="0.27.1")[0].usd_month
        for target in (0.1, 0.05, 0.03)
    ]
    assert costs == sorted(costs)


def test_impossible_targets_give_nothing():
    shape = MODELS["llama-3.3-70b-instruct"]
    assert advise("m", shape, replace(REFERENCE, tpot_p99=0.0001), region="us-west-2", vllm="0.27.1") == []
    assert advise("m", shape, REFERENCE, region="mars-north-1", vllm="0.27.1") == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"streams": 0}, "streams: 0 is not at least 1"), ({"output_tokens": -5}, "output_tokens: -5"),
     ({"longest_prompt": 200_000}, "takes 131,072 at most")],
)  # fmt: skip
def test_absurd_workloads(changes: dict, message: str):
    shape = MODELS["llama-3.3-70b-instruct"]
    with pytest.raises(ValueError, match=message):
        advise("m", shape, replace(REFERENCE, **changes), region="us-west-2", vllm="0.27.1")


# Speed --------------------------------------------------------------------------------------------------------------


def test_fifty_services_are_sized_in_200_ms():
    assert size(fifty_services(), NOW).errors  # some of them do not fit, so suggestions are part of the time
    assert min(seconds(repeats=5)) < 0.2
