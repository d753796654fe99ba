"""The ScaledObject: signals, windows and what happens when the signal is lost."""

import math
import re
from typing import Any

import pytest

from eks_llm.inputs import InvalidArgs
from eks_llm.plan.recorder import Recording, record
from eks_llm.serving.service import InferenceService
from tests.unit.serving import service_args

CONTROL_LOOP = 15
"""Seconds between two questions of the HPA. Source: kube-controller-manager."""


def scaled(scaling: dict[str, Any], **more: Any) -> dict[str, Any]:
    run = record(lambda: InferenceService("llama", service_args(scaling=scaling, **more)))
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
    run: Recording = record(lambda: InferenceService("llama", service_args()))
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
            "scaling.in_flight_per_replica: 300 is more than a replica runs at once (engine.maxNumSeqs 256)",
        ),
        ({"maximum": 3}, "scaling.maximum: unknown key"),
    ],
)
def test_refuses(scaling: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgs) as error:
        scaled(scaling)
    assert message in str(error.value)
