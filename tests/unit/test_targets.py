"""What a replica is meant to carry: from the SLO to the autoscaler's target and the queue, by arithmetic."""

import itertools
import json
from typing import Any

import pytest

from eks_llm.aws.node_pool import GpuNodePool, PoolSettings
from eks_llm.core.problems import InvalidArgs
from eks_llm.plan.recorder import record
from eks_llm.platform.sum import check, part
from eks_llm.platform.times import node_idle_time, node_start
from eks_llm.serving.limits import Limits
from eks_llm.serving.observability import Slo
from eks_llm.serving.scaling import Scaling
from eks_llm.serving.service import InferenceService, ServiceInputs, ServiceSettings
from eks_llm.serving.targets import problems, targets
from eks_llm.sizing.replica import Replica, capacity, unreachable
from eks_llm.sizing.report import Report
from tests.unit.serving import on_cluster, service_args

REPLICA = Replica(
    prompt_tokens=1000, output_tokens=250, prefill=0.1, step=0.01, step_per_request=0.0005, max_running=64,
    kv_tokens=1_000_000,
)  # fmt: skip
"""One request decodes 250 tokens in 250 x 10.5 ms; 64 in a batch take 42 ms a token, and prefill halts them."""


def slo(ttft: str | None = None, tpot: str | None = None) -> Slo:
    return Slo.model_validate({key: value for key, value in (("ttftP99", ttft), ("tpotP99", tpot)) if value})


def of(slo: Slo, scaling: dict[str, Any] | None = None, limits: Limits | None = None) -> Any:
    return targets(Scaling.model_validate(scaling or {}), limits or Limits(), slo, 64, REPLICA)


# Arithmetic ---------------------------------------------------------------------------------------------------------


def test_the_target_is_a_share_of_what_keeps_the_slo() -> None:
    """n running: rate = n / (250 (10 + n / 2) ms + n 100 ms), and a token takes (10 + n / 2) ms / (1 - rate 100 ms).

    n = 40: rate = 40 / (7.5 + 4) = 3.478/s, 30 ms / 0.652 = 46.0 ms. n = 41: 41 / (7.625 + 4.1) = 3.497, 30.5 / 0.650 =
    46.9 ms. So 46 ms admit 40, of which 70 % are 28.
    """
    found = of(slo(tpot="46ms"))
    assert found.capacity.in_flight == 40
    assert found.capacity.requests_per_second == pytest.approx(3.478, abs=0.001)
    assert found.in_flight == 28
    assert found.in_flight_why == (
        "70% of 40, the most at once within tpotP99 46ms (by estimate 46ms), 1,000 tokens in and 250 out"
    )


def test_the_queue_is_what_is_answered_within_the_first_token() -> None:
    """A second, less 110 ms for the first token itself, at the 3.478 requests/s of 40 at once: three may wait."""
    found = of(slo(ttft="1s", tpot="46ms"))
    assert found.max_queued == 3
    assert found.max_queued_why == "3.48 requests/s for the 890ms that ttftP99 1s leaves beside a first token of 110ms"


def test_first_tokens_limit_a_replica_too() -> None:
    """Prompts of others delay a first token: 110 ms alone, and 4.6 mean waits of busy x 100 ms / 2 (1 - busy)."""
    tight = capacity(REPLICA, ttft=0.2, tpot=None)
    rate = tight.requests_per_second
    assert 0.11 + 4.6 * rate * 0.1 * 0.1 / (2 * (1 - rate * 0.1)) <= 0.2
    assert tight.in_flight < capacity(REPLICA, ttft=1.0, tpot=None).in_flight


def test_what_is_known_better_wins() -> None:
    both = slo("1s", "46ms")
    stated = of(both, {"inFlightPerReplica": 50}, Limits(max_queued_requests=7))
    assert (stated.in_flight, stated.max_queued, stated.max_queued_why) == (50, 7, "as stated")
    measured = of(both, {"capacity": {"requestsPerSecond": 5.0, "inFlight": 60}})
    assert (measured.in_flight, measured.in_flight_why) == (42, "70% of capacity.inFlight 60")
    assert measured.max_queued == 4  # 890 ms at the measured 5 a second
    unknown = of(slo())
    assert (unknown.in_flight, unknown.max_queued) == (48, 128)


LIMITS = ["1ms", "12ms", "20ms", "30ms", "46ms", "80ms", "200ms", "900ms", "3s", "75s"]


@pytest.mark.parametrize("key", ["ttft", "tpot"])
def test_a_stricter_slo_never_gives_a_higher_target(key: str) -> None:
    for other in (None, "1ms", "50ms", "2s"):
        rest = "tpot" if key == "ttft" else "ttft"
        series = [of(slo(**{key: limit, rest: other})) for limit in LIMITS]
        for strict, loose in itertools.pairwise(series):
            assert strict.in_flight <= loose.in_flight
            assert strict.capacity.in_flight <= loose.capacity.in_flight
            if key == "ttft" and other is None:
                assert strict.max_queued <= loose.max_queued
        assert all(1 <= found.in_flight <= 64 and 0 <= found.max_queued <= 128 for found in series)


def test_an_slo_that_one_request_misses_is_said() -> None:
    """Alone, a first token takes 100 + 10 ms and a further one 10.5 ms."""
    assert unreachable(REPLICA, 0.1, 0.01) == {"ttft": pytest.approx(0.11), "tpot": pytest.approx(0.0105)}
    assert not unreachable(REPLICA, 0.111, 0.011)
    hard = slo("100ms", "10ms")
    said = dict(problems(Scaling(), hard, of(hard), load_stated=False))
    assert "100ms cannot be met by adding replicas: by estimate a first token takes 110ms" in said["slo.ttftP99"]
    assert "10ms cannot be met by adding replicas: by estimate a token takes 10.5ms" in said["slo.tpotP99"]
    assert of(hard).in_flight == 1


def test_a_stated_target_above_what_keeps_the_slo_is_said() -> None:
    scaling = Scaling.model_validate({"inFlightPerReplica": 50, "max": 4})
    stated = of(slo(tpot="46ms"), {"inFlightPerReplica": 50, "max": 4})
    assert stated.in_flight_why == "as stated; by estimate 40 keep the slo, 1,000 tokens in and 250 out"
    (found,) = problems(scaling, slo(tpot="46ms"), stated, load_stated=True)
    assert not problems(scaling, slo(tpot="46ms"), stated, load_stated=False)  # then the estimate is of a guess
    assert found[0] == "scaling.inFlightPerReplica"
    assert "50 is more than the 40 that a replica carries within the SLO (the estimate)" in found[1]
    assert "70% would be 28" in found[1]


# Services -----------------------------------------------------------------------------------------------------------


def settings(**changes: Any) -> ServiceSettings:
    given = {
        k: v for k, v in service_args(**changes).items() if k not in ("namespace", "instance_type", "prometheus_url")
    }
    return ServiceSettings.model_validate(given)


def pool(**changes: Any) -> PoolSettings:
    base = {"instanceType": "p4d.24xlarge", "zone": "us-west-2b", "nodes": {"min": 1, "max": 2}}
    return PoolSettings.model_validate({**base, **changes})


def sized(a100: PoolSettings, **changes: Any) -> Report:
    """The report on one service on the pool a100."""
    service = ServiceInputs.model_validate({**settings(**changes).args(), "namespace": "inference"})
    return check([part(GpuNodePool, "a100", a100), part(InferenceService, "llama", service)])


def scaler_of(**changes: Any) -> Any:
    return (
        record(lambda: InferenceService("llama", service_args(**changes), on_cluster()))
        .one("ScaledObject")
        .inputs["spec"]
    )


def test_the_deployed_threshold_and_the_plan_are_the_same_number() -> None:
    wanted = {"slo": {"ttftP99": "1s", "tpotP99": "30ms"}, "scaling": {"min": 1, "max": 4}}
    threshold = scaler_of(**wanted)["triggers"][0]["metadata"]["threshold"]
    report = sized(pool(), **wanted)
    (policy,) = report.policies
    assert policy.in_flight == int(threshold) < 192  # three quarters of 256, without an SLO
    assert "the most at once within tpotP99 30ms" in policy.in_flight_why


def test_a_measured_rate_replaces_the_estimated_one() -> None:
    slow = settings(expected={"tokensPerRequest": 2000, "tokensPerSecond": 500})
    found = slow.estimate("p4d.24xlarge")
    assert found is not None
    assert found.throughput(found.slots) == pytest.approx(1.0)  # 500 tokens per second, 500 per answer


def test_the_queue_of_a_triton_pod_follows_from_the_slo() -> None:
    def queued(**more: Any) -> int:
        run = record(lambda: InferenceService("llama", service_args(runtime="triton", **more), on_cluster()))
        (config,) = [item for item in run.resources if "engine.json" in item.inputs.get("data", {})]
        return json.loads(config.inputs["data"]["engine.json"])["limits"]["maxQueuedRequests"]

    assert queued() == 512
    assert queued(slo={"ttftP99": "500ms"}) < queued(slo={"ttftP99": "5s"}) < 512
    assert queued(slo={"ttftP99": "500ms"}, limits={"maxQueuedRequests": 99}) == 99


# Nodes --------------------------------------------------------------------------------------------------------------


def test_a_new_node_counts_into_a_pods_start_where_the_pool_grows() -> None:
    assert node_start(pool()) == 600
    assert node_start(pool(nodes={"min": 1, "max": 3, "start": "7m"})) == 420
    assert node_start(pool(nodes={"min": 2, "max": 2})) == 0

    def wave(**more: Any) -> int:
        behavior = scaler_of(scaling={"max": 4}, **more)["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert (
            behavior["scaleDown"]["stabilizationWindowSeconds"] >= behavior["scaleUp"]["policies"][0]["periodSeconds"]
        )
        return behavior["scaleUp"]["policies"][0]["periodSeconds"]

    assert wave(node_start="10m") == wave() + 600


def test_a_node_stays_as_long_as_the_policy_waits() -> None:
    """8 GB of weights start in some 200 s; with a new node of 20 minutes the window is longer than the 10 m default."""
    services = {"llama": settings(scaling={"max": 4})}
    assert node_idle_time({"a100": pool(nodes={"min": 1, "max": 1})}, services) == 600
    slow = node_idle_time({"a100": pool(nodes={"min": 1, "max": 2, "start": "20m"})}, services)
    assert 1200 + 180 < slow < 1200 + 300
    assert node_idle_time({"a100": pool()}, {"llama": settings(scaling={"max": 4, "scaleDownWindow": "40m"})}) == 2400


def test_doubts_about_a_policy_are_warnings_with_their_key_path() -> None:
    block = {"kind": "capacityBlock", "id": "cr-0123456789abcdef0", "endsAt": "2100-12-14T11:30:00Z"}
    report = sized(
        pool(nodes={"min": 0, "max": 1}, capacity=block),
        scaling={"max": 4, "scaleDownWindow": "1m"},
        slo={"tpotP99": "1ms"},
    )
    paths = {finding.path: finding.message for finding in report.warnings}
    assert "60 s is shorter than the 810 s" in paths["services.llama.scaling.scaleDownWindow"]
    assert "2100-12-14 10:50 UTC" in paths["services.llama.scaling.min"]  # 40 minutes before the block ends
    assert "1ms cannot be met" in paths["services.llama.slo.tpotP99"]


def test_more_replicas_than_gpus_are_refused() -> None:
    report = sized(pool(nodes={"min": 1, "max": 1}), scaling={"max": 5})
    (error,) = report.errors
    assert error.path == "gpuPools.a100.nodes.max"
    assert "1 node(s) hold 8 GPUs; the services ask for 10 at their maximum (llama 5 x 2)" in error.message


# Priority -----------------------------------------------------------------------------------------------------------


def test_a_service_of_higher_priority_gets_gpus_first() -> None:
    run = record(lambda: InferenceService("llama", service_args(priority=100), on_cluster()))
    made = run.one("PriorityClass")
    assert made.inputs["value"] == 100
    pod = run.one("Deployment").inputs["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == made.inputs["metadata"]["name"] == "inference-llama-100"
    assert made.urn in run.one("Deployment").dependencies


def test_without_a_priority_there_is_no_class() -> None:
    run = record(lambda: InferenceService("llama", service_args(), on_cluster()))
    assert not [item for item in run.resources if "PriorityClass" in item.type]
    assert "priorityClassName" not in run.one("Deployment").inputs["spec"]["template"]["spec"]


@pytest.mark.parametrize("value", [-1, 2_000_000])
def test_a_priority_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(InvalidArgs, match=f"priority: {value}"):
        record(lambda: InferenceService("llama", service_args(priority=value), on_cluster()))


@pytest.mark.parametrize("start", ["0s", "2h"])
def test_a_node_start_out_of_range_is_refused(start: str) -> None:
    with pytest.raises(ValueError, match="a node takes 1s to 60m"):
        pool(nodes={"min": 1, "max": 2, "start": start})
