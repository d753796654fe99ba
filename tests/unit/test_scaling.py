"""The ScaledObject: signals, windows and what happens when the signal is lost."""

import datetime
import math
import re
from typing import Any

import pytest

from eks_llm.core.problems import InvalidArgs
from eks_llm.plan.recorder import Recording, record
from eks_llm.serving.scaling import Floor, Scaling, block_warnings, warnings
from eks_llm.serving.service import InferenceService
from tests.unit.serving import on_cluster, service_args

CONTROL_LOOP = 15
"""Seconds between two questions of the HPA. Source: kube-controller-manager."""


def scaled(scaling: dict[str, Any], **more: Any) -> dict[str, Any]:
    run = record(lambda: InferenceService("llama", service_args(scaling=scaling, **more), on_cluster()))
    return run.one("ScaledObject").inputs


def trigger(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in manifest["spec"]["triggers"] if item["name"] == name)


def desired(manifest: dict[str, Any], sums: dict[str, float]) -> int:
    """What an HPA wants of AverageValue metrics: ceil(sum / target), the largest of all."""
    targets = {item["name"]: float(item["metadata"]["threshold"]) for item in manifest["spec"]["triggers"]}
    return max(math.ceil(sums[name] / target) for name, target in targets.items())


def test_replicas_follow_requests_in_flight_and_kv_cache_whichever_asks_for_more() -> None:
    manifest = scaled({"min": 1, "max": 8, "inFlightPerReplica": 48, "kvCacheTarget": 0.85})
    assert desired(manifest, {"demand": 48, "kv-cache": 80}) == 1
    assert desired(manifest, {"demand": 49, "kv-cache": 80}) == 2
    assert desired(manifest, {"demand": 48, "kv-cache": 3 * 90}) == 4  # three pods at 90 % against a target of 85 %


def test_every_query_gives_one_element_of_one_service() -> None:
    for item in scaled({"min": 1, "max": 2})["spec"]["triggers"]:
        query = item["metadata"]["query"]
        assert item["metricType"] == "AverageValue"
        selectors = re.findall(r"vllm:\w+(\{[^}]*\})", query)
        assert selectors
        assert set(selectors) == {'{namespace="inference",service="llama"}'}
        assert query.count("sum(") == len(selectors)


def test_gpu_use_and_tritons_durations_are_never_a_signal() -> None:
    queries = " ".join(item["metadata"]["query"] for item in scaled({})["spec"]["triggers"])
    assert not re.search(r"nv_|DCGM|gpu_cache_usage", queries)


def test_a_lost_signal_is_an_error_and_keeps_the_replicas() -> None:
    spec = scaled({"min": 2, "max": 6})["spec"]
    assert {item["metadata"]["ignoreNullValues"] for item in spec["triggers"]} == {"false"}
    fallback = spec["fallback"]
    assert (fallback["behavior"], fallback["replicas"]) == ("currentReplicasIfHigher", 2)
    # KEDA counts failures of its own poll and of the HPA's questions.
    seconds = fallback["failureThreshold"] / (1 / spec["pollingInterval"] + 1 / CONTROL_LOOP)
    assert 45 <= seconds <= 120


def test_scale_down_waits_until_the_last_wave_of_pods_serves() -> None:
    behavior = scaled({"min": 1, "max": 8, "scaleUpPods": 3})["spec"]["advanced"]["horizontalPodAutoscalerConfig"][
        "behavior"
    ]
    up, down = behavior["scaleUp"], behavior["scaleDown"]
    assert up["policies"] == [{"type": "Pods", "value": 3, "periodSeconds": up["policies"][0]["periodSeconds"]}]
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 120}]
    assert down["stabilizationWindowSeconds"] >= up["policies"][0]["periodSeconds"]
    assert 30 <= up["stabilizationWindowSeconds"] <= 60


@pytest.mark.parametrize("model", ["llama-3-8b-instruct", "deepseek-r1"])
def test_periods_stay_within_what_the_api_allows(model: str) -> None:
    more = {"model": model, "tensor_parallel": 8, "instance_type": "p5en.48xlarge"}
    behavior = scaled({}, **more)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    for side in behavior.values():
        assert side["policies"][0]["periodSeconds"] <= 1800
        assert side["stabilizationWindowSeconds"] <= 3600


def test_larger_weights_make_longer_waves() -> None:
    def wave(model: str) -> int:
        behavior = scaled({}, model=model, tensor_parallel=8)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
        return behavior["behavior"]["scaleUp"]["policies"][0]["periodSeconds"]

    assert wave("llama-3.3-70b-instruct") > wave("llama-3-8b-instruct")


def test_three_quarters_of_the_running_requests_are_the_default_target() -> None:
    manifest = scaled({}, engine={"maxNumSeqs": 100})
    assert trigger(manifest, "demand")["metadata"]["threshold"] == "75"


def test_pulumi_waits_until_keda_calls_it_ready_and_keda_finds_the_deployment() -> None:
    run: Recording = record(lambda: InferenceService("llama", service_args(), on_cluster()))
    scaler = run.one("ScaledObject")
    assert scaler.inputs["metadata"]["annotations"]["pulumi.com/waitFor"] == "condition=Ready"
    assert run.one("Deployment").urn in scaler.dependencies
    assert scaler.inputs["spec"]["scaleTargetRef"]["name"] == run.one("Deployment").inputs["metadata"]["name"]


def test_max_is_min_by_default() -> None:
    spec = scaled({"min": 3})["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (3, 3)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"min": 0}, "scaling.min: 0: at least 1"),
        ({"min": 3, "max": 2}, "scaling.max: 2: less than min 3"),
        ({"kvCacheTarget": 1.5}, "scaling.kv_cache_target: 1.5"),
        ({"kvCacheTarget": 0}, "scaling.kv_cache_target: 0"),
        (
            {"inFlightPerReplica": 300},
            "scaling.in_flight_per_replica: 300 is more than a replica runs at once (engine.max_num_seqs 256)",
        ),
        ({"maximum": 3}, "scaling.maximum: unknown key"),
    ],
)
def test_refuses(scaling: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgs) as error:
        scaled(scaling)
    assert message in str(error.value)


# More signals -------------------------------------------------------------------------------------------------------

FRONT_DOOR = {"query": "sum(rate(envoy_http_downstream_rq_total[1m]))", "requestsPerReplica": 1.2}
OFFICE = {"start": "0 7 * * 1-5", "end": "0 19 * * 1-5", "timezone": "Europe/Berlin", "replicas": 3}


def test_a_front_door_counts_what_full_pods_refuse() -> None:
    manifest = scaled({"min": 1, "max": 8, "inFlightPerReplica": 48, "frontDoor": FRONT_DOOR})
    full = {"demand": 48.0, "kv-cache": 80.0}
    assert desired(manifest, {**full, "front-door": 1.2}) == 1
    assert desired(manifest, {**full, "front-door": 7.0}) == 6  # 7 / 1.2
    item = trigger(manifest, "front-door")
    assert (item["metricType"], item["metadata"]["ignoreNullValues"]) == ("AverageValue", "false")


def test_thresholds_follow_from_the_capacity_of_a_replica() -> None:
    """70 % of the requests in flight and 80 % of the rate, for the HPA's tolerance of 10 % and the start of a pod."""
    manifest = scaled(
        {
            "max": 4,
            "capacity": {"requestsPerSecond": 1.45, "inFlight": 68},
            "frontDoor": {"query": "sum(rate(x_total[1m]))"},
        }
    )
    assert trigger(manifest, "demand")["metadata"]["threshold"] == "47"
    assert trigger(manifest, "front-door")["metadata"]["threshold"] == "1.16"


def test_a_floor_is_a_cron_trigger() -> None:
    item = trigger(scaled({"min": 1, "max": 4, "floors": [OFFICE]}), "floor-1")
    assert item["type"] == "cron"
    assert item["metadata"] == {
        "timezone": "Europe/Berlin",
        "start": "0 7 * * 1-5",
        "end": "0 19 * * 1-5",
        "desiredReplicas": "3",
    }


def test_replicas_double_per_start_of_a_pod_and_triple_where_the_front_door_is_known() -> None:
    def policies(**more: Any) -> list[tuple[str, int]]:
        behavior = scaled({"min": 1, "max": 8, **more})["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        return [(policy["type"], policy["value"]) for policy in behavior["scaleUp"]["policies"]]

    assert policies() == [("Pods", 2), ("Percent", 100)]
    assert policies(frontDoor=FRONT_DOOR) == [("Pods", 2), ("Percent", 200)]
    assert policies(scaleUpPods=1) == [("Pods", 1)]


def test_scale_down_may_be_faster_with_a_front_door_but_waits_for_a_pods_start() -> None:
    def window(**more: Any) -> int:
        behavior = scaled({"min": 1, "max": 8, **more})["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        return behavior["scaleDown"]["stabilizationWindowSeconds"]

    start = scaled({"max": 2})["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleUp"]["policies"][
        0
    ]["periodSeconds"]
    assert window() == 600
    assert start <= window(frontDoor=FRONT_DOOR) < 600
    assert window(scaleDownWindow="15m") == 900


def test_a_service_may_sleep_behind_a_front_door() -> None:
    spec = scaled({"min": 0, "max": 2, "frontDoor": FRONT_DOOR})["spec"]
    assert spec["minReplicaCount"] == 0
    assert spec["cooldownPeriod"] >= 120
    # With 0 KEDA would take a failing signal for idleness (scale_scaledobjects.go).
    assert spec["fallback"]["replicas"] == 1


def warned(
    scaling: dict[str, Any], pod_start: float = 180, in_flight: int = 48, most: float = math.inf
) -> dict[str, str]:
    return dict(warnings(Scaling.model_validate(scaling), pod_start, in_flight, most))


def test_warnings_show_the_arithmetic() -> None:
    assert warned({"scaleDownWindow": "1m"})["scaleDownWindow"].startswith("60 s is shorter than the 180 s")
    sleepy = warned({"min": 0, "max": 1, "frontDoor": FRONT_DOOR})["min"]
    assert "waits about 195 s (15 s until KEDA looks, 180 s until a pod is ready)" in sleepy
    assert warned({}) == {}


def test_a_pod_that_takes_longer_than_an_hpa_can_look_back_is_warned_of() -> None:
    """autoscaling/v2: periodSeconds at most 1800, stabilizationWindowSeconds at most 3600."""
    slow = warned({"min": 1, "max": 4}, pod_start=4000)
    assert "an HPA looks back 3600 s at most" in slow["scaleDownWindow"]
    assert "counted per 1800 s" in slow["scaleUpPods"]


def test_a_threshold_that_replicas_cannot_pass_is_warned_of() -> None:
    """An HPA leaves 10 % above a target alone, so 1 / 0.95 = 1.05 asks for nothing, and 1 / 0.9 = 1.11 does."""
    some = {"min": 1, "max": 4}
    assert "1 / 0.95 = 1.05 of it" in warned({**some, "kvCacheTarget": 0.95})["kvCacheTarget"]
    assert not warned({**some, "kvCacheTarget": 0.9})
    assert "1.1 x 64 = 70.4" in warned(some, in_flight=64, most=70)["inFlightPerReplica"]
    assert not warned(some, in_flight=64, most=71)
    assert not warned({"min": 2, "kvCacheTarget": 0.95})  # it does not scale
    measured = {"requestsPerSecond": 1.0, "inFlight": 40}
    busy = warned({**some, "capacity": measured, "frontDoor": FRONT_DOOR})["frontDoor.requestsPerReplica"]
    assert "1.2 is more than the 1 requests/s that a replica answers" in busy
    assert "0.8 would be 80%" in busy


def test_groups_within_a_front_doors_sum_are_one_element() -> None:
    query = "sum(max(rate(x_total[1m])) by (route))"
    assert Scaling.model_validate({"max": 2, "frontDoor": {**FRONT_DOOR, "query": query}}).front_door


def test_a_floor_below_the_minimum_changes_nothing() -> None:
    found = warned({"min": 3, "max": 4, "floors": [OFFICE]})
    assert found == {"floors[0].replicas": "3 is not above min 3, so it changes nothing"}


def test_a_floor_that_outlives_its_capacity_block_is_warned_of() -> None:
    """EKS takes the nodes away at 11:30 UTC, a Monday: 12:30 in Berlin, within office hours."""
    stops = datetime.datetime(2026, 12, 14, 11, 30, tzinfo=datetime.UTC)
    office = Scaling.model_validate({"min": 0, "max": 4, "frontDoor": FRONT_DOOR, "floors": [OFFICE]})
    found = dict(block_warnings(office, stops, 345))["floors[0].end"]
    assert "3 replicas are still held at 2026-12-14 11:30 UTC" in found
    assert "end it by 2026-12-14 12:24 Europe/Berlin, e.g. '24 12 14 12 *'" in found
    in_time = {**OFFICE, "start": "0 7 14 12 *", "end": "24 12 14 12 *"}
    assert not list(block_warnings(office.model_copy(update={"floors": [Floor.model_validate(in_time)]}), stops, 345))
    assert "min" in dict(block_warnings(Scaling(), stops, 345))


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"min": 0, "max": 2}, "scaling.min: 0: at least 1 without front"),
        ({"min": -1}, "scaling.min: -1"),
        ({"min": 0, "frontDoor": FRONT_DOOR}, "scaling.max: 0: at least 1"),
        (
            {"frontDoor": {"query": "sum(rate(x_total[1m]))"}},
            "scaling.front_door.requests_per_replica: required without capacity",
        ),
        (
            {"frontDoor": {"query": "rate(x_total[1m])", "requestsPerReplica": 1}},
            "scaling.front_door.query: 'rate(x_total[1m])': KEDA takes one element, and `rate(x_total[1m])` may give "
            "several; begin with sum(…)",
        ),
        (
            {"frontDoor": {"query": "sum(rate(x_total[1m])) by (route)", "requestsPerReplica": 1}},
            "gives one per group; leave the grouping out",
        ),
        ({"frontDoor": {**FRONT_DOOR, "requestsPerReplica": 0}}, "scaling.front_door.requests_per_replica: 0"),
        ({"max": 2, "floors": [OFFICE]}, "3 replicas are more than max 2"),
        ({"frontDoor": {**FRONT_DOOR, "requestsPerReplica": 1e308}}, "front_door.requests_per_replica: 1e+308"),
        ({"frontDoor": {**FRONT_DOOR, "requestsPerReplica": 1e-300}}, "front_door.requests_per_replica: 1e-300"),
        (
            {"frontDoor": {"query": "sum(rate())", "requestsPerReplica": 1}},
            "scaling.front_door.query: 'sum(rate())': not a query that Prometheus can read (expected 1 argument(s)",
        ),
        (
            {"max": 4, "floors": [{**OFFICE, "start": "0 25 * * *"}]},
            "floors[0].start: '0 25 * * *': '25' is not a hour",
        ),
        (
            {"max": 4, "floors": [{**OFFICE, "start": "0 8 31 2 *"}]},
            "floors[0].start: '0 8 31 2 *': '0 8 31 2 *' never comes: no month that it names has a day 31",
        ),
        (
            {"max": 4, "floors": [{**OFFICE, "end": "0 8 * * 7"}]},
            "floors[0].end: '0 8 * * 7': '7' is not a weekday within 0 and 6; 0 is Sunday",
        ),
        ({"max": 4, "floors": [{**OFFICE, "timezone": "localtime"}]}, "'localtime': not a time zone of the IANA"),
        ({"max": 4, "floors": [{**OFFICE, "timezone": "europe/berlin"}]}, "did you mean 'Europe/Berlin'?"),
        ({"max": 4, "floors": [{**OFFICE, "timezone": ""}]}, "timezone: '': not a time zone"),
        (
            {"max": 4, "floors": [{**OFFICE, "timezone": "Berlin"}]},
            "floors[0].timezone: 'Berlin': not a time zone of the IANA database",
        ),
        (
            {"max": 4, "floors": [{**OFFICE, "start": "7:00"}]},
            "scaling.floors[0].start: '7:00': not a cron expression of",
        ),
        (
            {"max": 4, "floors": [{**OFFICE, "end": OFFICE["start"]}]},
            "scaling.floors[0].end: '0 7 * * 1-5': the same as start",
        ),
        ({"scaleDownWindow": "2h"}, "an HPA looks back 60m at most"),
        ({"capacity": {"requestsPerSecond": 0, "inFlight": 5}}, "scaling.capacity.requests_per_second: 0"),
    ],
)
def test_refuses_more(scaling: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgs) as error:
        scaled(scaling)
    assert message in str(error.value)
