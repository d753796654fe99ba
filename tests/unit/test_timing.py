"""One model of time: each limit is above what it waits for, whatever the sizes, requests and nodes."""

import dataclasses
from typing import Any

import pytest

from eks_llm.aws.node_pool import GpuNodePool, PoolSettings
from eks_llm.core import timing
from eks_llm.core.timing import ASSUMED, LIVENESS, STALL_SECONDS, drain, provision, start
from eks_llm.operators.node_autoscaler import NodeAutoscalerSettings, autoscaler_values
from eks_llm.plan.recorder import record
from eks_llm.platform.sum import check, part
from eks_llm.platform.times import node_provision_time
from eks_llm.serving.service import InferenceService, ServiceInputs
from tests.unit.serving import on_cluster
from tests.unit.test_service import service_args

WEIGHTS = [0.5, 15, 132, 700]
"""GiB: a small model, Llama-3-8B, Llama-3.3-70B and DeepSeek-V3 as published."""
NODES = [0, 60, 600, 1800, 3600]
REQUESTS = [1, 59.5, 300, 3600, 24 * 3600]
"""Seconds: the range that `nodes.start` and `limits.requestTimeout` may have."""


# Start --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", NODES)
def test_a_node_is_given_up_later_than_it_is_expected(node: float) -> None:
    assert provision(node) > node
    assert provision(node) > 15 * 60  # cluster-autoscaler's default, main.go: too short for a p4d
    assert NodeAutoscalerSettings().max_node_provision_time >= provision(timing.NODE_START_SECONDS)


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("request_time", REQUESTS)
def test_a_deadline_covers_all_that_it_waits_for(weights: float, node: float, request_time: float) -> None:
    ending = drain(request_time)
    begin = start(weights, ending, node)
    image, fetch = ASSUMED.image_seconds, weights / ASSUMED.fetch_gib_per_second
    assert begin.placed >= max(provision(node), ending.grace)  # in a rollout the old pod holds the GPUs that long
    assert begin.prepared >= image + fetch + begin.load
    assert begin.deadline >= begin.placed + begin.prepared
    assert begin.deadline > begin.for_scaling
    assert begin.prepared > begin.expected
    assert begin.load > weights / ASSUMED.load_gib_per_second + ASSUMED.compile_seconds
    assert timing.startup(begin).limit >= begin.load
    # One by one: every pod but the first waits for the end of its predecessor and its own start.
    assert timing.update_limit(begin, ending, 4) > begin.deadline + 3 * (ending.grace + begin.expected)


def test_larger_weights_get_more_time() -> None:
    # KServe #3869 and a public lab: Llama-3-70B takes 15 to 20 minutes where nothing is cached near the GPU.
    small, large = start(15, drain(300)), start(131, drain(300))
    assert large.load > small.load
    assert large.prepared > 20 * 60
    assert small.load >= 439  # slowest published start of a small model
    assert small.load >= 600  # vLLM's own limit for its engine, VLLM_ENGINE_READY_TIMEOUT_S


def test_measured_rates_replace_the_assumed_ones() -> None:
    measured = dataclasses.replace(ASSUMED, fetch_gib_per_second=4, load_gib_per_second=8, compile_seconds=30)
    assert start(128, drain(300), rates=measured).expected == 128 / 4 + 128 / 8 + 30


def manifests(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Deployment of a service, and its alerts by name."""
    run = record(lambda: InferenceService("llama", service_args(**more), on_cluster()))
    (rules,) = [item.inputs["spec"]["groups"] for item in run.resources if item.type.endswith("PrometheusRule")]
    return run.one("Deployment").inputs, {
        rule["alert"]: rule for group in rules for rule in group["rules"] if "alert" in rule
    }


def test_a_node_that_was_announced_as_slow_is_waited_for_everywhere() -> None:
    pool = PoolSettings.model_validate(
        {"instanceType": "p4d.24xlarge", "zone": "us-west-2b", "nodes": {"min": 0, "max": 1, "start": "60m"}}
    )
    given_up = node_provision_time({"slow": pool})
    values = autoscaler_values(NodeAutoscalerSettings(max_node_provision_time=given_up), "1.35", "main", "us-west-2")
    assert int(values["extraArgs"]["max-node-provision-time"].rstrip("s")) > 3600

    usual, _ = manifests(node_start="10m")
    slow, alerts = manifests(node_start="60m")
    deadline = slow["spec"]["progressDeadlineSeconds"]
    assert deadline > usual["spec"]["progressDeadlineSeconds"]
    assert deadline > 3600 + ASSUMED.image_seconds + 600  # the node, the image, vLLM's own limit of the load
    assert int(slow["metadata"]["annotations"]["pulumi.com/timeoutSeconds"]) > deadline
    assert alerts["LLMReplicasMissing"]["for"] == f"{deadline}s"
    assert alerts["LLMPodPending"]["for"] == "90m"


def test_an_update_of_many_replicas_is_waited_for_to_its_end() -> None:
    """Six replicas whose requests take 5 minutes: each ends within 355 s and starts within 210 s."""
    deployment, _ = manifests(scaling={"min": 6, "max": 6})
    assert int(deployment["metadata"]["annotations"]["pulumi.com/timeoutSeconds"]) > 6 * (355 + 200)


# Probes and watchdog ------------------------------------------------------------------------------------------------


def test_the_watchdog_ends_a_hung_engine_before_the_kubelet_would() -> None:
    # It looks once a second, then kills the workers and the server: seconds, and a busy node may take longer.
    assert LIVENESS.limit >= STALL_SECONDS + 30
    assert STALL_SECONDS >= 60  # a step that compiles a new shape takes tens of seconds
    for probe in (LIVENESS, timing.READINESS):
        assert probe.timeout <= probe.period


# End ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("longest", REQUESTS)
def test_every_step_of_the_end_fits_into_the_next(longest: float) -> None:
    budget = drain(longest)
    assert budget.pre_stop >= 15  # KServe, llm-d: endpoints and proxies need that long to drop a pod
    assert budget.exit_timeout > longest
    # Kubernetes counts preStop in the grace period; vLLM then needs 5 s until it kills its workers.
    assert budget.grace >= budget.pre_stop + budget.exit_timeout + 5
    assert budget.grace > budget.exit_timeout > budget.pre_stop or longest < budget.pre_stop
    assert timing.ENGINE_STOP_SECONDS < timing.STOP_SECONDS


# What the platform grants -------------------------------------------------------------------------------------------


def warned(kind: str = "onDemand", timeout: str = "300s", replicas: int = 1, **model: Any) -> list[str]:
    capacity: dict[str, Any] = {"kind": kind}
    if kind in {"reservation", "capacityBlock"}:
        capacity["id"] = "cr-0123456789abcdef0"
    nodes = {"min": 0 if kind == "capacityBlock" else 1, "max": 2}
    pool = PoolSettings.model_validate(
        {"instanceType": "p4d.24xlarge", "zone": "us-west-2b", "nodes": nodes, "capacity": capacity}
    )
    service = ServiceInputs.model_validate(
        {
            "model": "llama-3.1-8b-instruct",
            "weights": "s3://models/llama-8b/",
            "pool": "a100",
            "runtime": "triton",
            "namespace": "inference",
            "limits": {"requestTimeout": timeout},
            "scaling": {"min": replicas, "max": replicas},
            **model,
        }
    )
    report = check([part(GpuNodePool, "a100", pool), part(InferenceService, "llama", service)])
    return [item.message for item in report.warnings if item.path == "services.llama.limits.requestTimeout"]


def test_what_a_spot_node_cuts_off_is_said_with_both_times() -> None:
    (message,) = warned("spot")
    assert "may take 355 s to end" in message
    assert "interrupted 120 s after its notice" in message  # EC2 user guide
    assert "set 65s or less" in message
    assert not warned("spot", "65s")
    assert warned("spot", "66s")


def test_a_capacity_block_leaves_ten_minutes() -> None:
    """EKS drains 40 minutes before the end, EC2 terminates from 30 minutes before it (their user guides)."""
    assert not warned("capacityBlock")
    assert "end 600 s after EKS drains them" in warned("capacityBlock", "10m")[0]


@pytest.mark.parametrize("kind", ["onDemand", "reservation"])
def test_a_pod_that_takes_longer_than_a_node_update_waits_is_said(kind: str) -> None:
    assert not warned(kind)
    (message,) = warned(kind, "20m")
    assert "may take 1,255 s to end" in message
    assert "after 900 s (PodEvictionFailure)" in message


def test_replicas_that_leave_a_node_one_by_one_count_together() -> None:
    """Eight on one node: seven successors of 210 s each, and the last pod's 355 s, are more than 15 minutes."""
    (message,) = warned(replicas=8)
    assert "8 replicas on a node leave it one by one" in message
    assert "PodEvictionFailure" in message
    assert not warned(replicas=2)
