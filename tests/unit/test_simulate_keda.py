"""KEDA's part, and the queries of its triggers. Sources: KEDA v2.20.2 and Prometheus' promql/functions.go."""

import datetime
from typing import Any

import numpy as np
import pytest

from eks_llm.core.cron import Schedule
from eks_llm.observe import metrics
from eks_llm.serving.scaling import Scaling, spec
from eks_llm.simulate.keda import Autoscaler, PolicyError, autoscaler
from eks_llm.simulate.promql import QueryError, Store, compile_query, evaluate

MONDAY = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
RUNNING, WAITING, KV = metrics.RUNNING, metrics.WAITING, metrics.KV_USAGE


def store(*scrapes: dict[str, list[float]], live: list[bool] | None = None, interval: float = 10) -> Store:
    """Two pods, scraped every `interval` seconds from 0."""
    kept = Store(2, interval)
    for number, values in enumerate(scrapes):
        pods = {name: np.array(value) for name, value in values.items()}
        kept.scrape(number * interval, np.array(live or [True, True]), pods, {})
    return kept


def ask(query: str, kept: Store, now: float = 0.0, ignore_nulls: bool = False) -> float | None:
    return evaluate(compile_query(query), kept, now, ignore_nulls)


# PromQL -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"sum({RUNNING})", 30),
        (f'sum({RUNNING}{{namespace="a",service="b"}}) + sum({WAITING}{{namespace="a"}})', 37),
        (f"sum({RUNNING} + {WAITING})", 37),
        (f"max({KV})", 0.9),
        (f"avg({KV}) * 100", 65),
        (f"sum({KV}) * 100 / 2 - 5", 60),
        (f"2 * (sum({RUNNING}) - 10)", 40),
        (f"count({RUNNING} > 15)", 1),
        (f"clamp_max(sum({RUNNING}), 12)", 12),
        (f"sum(clamp_min({WAITING}, 5))", 12),
        (f"sum({RUNNING} > 100) or sum({WAITING})", 7),
        ("vector(3)", 3),
        (f"scalar(sum({RUNNING})) + 1", 31),
    ],
)
def test_queries(query: str, expected: float) -> None:
    assert ask(query, store({RUNNING: [10, 20], WAITING: [0, 7], KV: [0.4, 0.9]})) == pytest.approx(expected)


def test_several_elements_none_and_nan_are_errors_unless_nulls_are_ignored() -> None:
    kept = store({RUNNING: [10, 20]})
    assert ask(RUNNING, kept, ignore_nulls=True) is None
    assert ask(f"sum({WAITING})", kept) is None
    assert ask(f"sum({WAITING})", kept, ignore_nulls=True) == 0
    assert ask(f"sum({RUNNING}) / (sum({RUNNING}) - 30)", kept) is None  # infinite
    assert ask(f"10 - sum({RUNNING})", kept) == 0  # KEDA takes negative values for 0


def test_pods_that_are_gone_or_not_yet_there_do_not_count() -> None:
    assert ask(f"sum({RUNNING})", store({RUNNING: [10, 20]}, live=[True, False])) == 10
    assert ask(f"sum({RUNNING})", store({RUNNING: [10, 20]}, live=[False, False])) is None


def test_what_was_scraped_after_the_full_second_is_not_seen() -> None:
    """KEDA sends `time` in RFC 3339, without fractions of a second (prometheus_scaler.go)."""
    counter = metrics.REQUEST_SUCCESS
    kept = store({RUNNING: [10, 0], counter: [0, 0]}, {RUNNING: [20, 0], counter: [9, 0]}, interval=10.4)
    for query, before, after in ((f"sum({RUNNING})", 10, 20), (f"sum(max_over_time({counter}[1m]))", 0, 9)):
        metadata = {"query": query, "threshold": "1"}
        made = {"kind": "ScaledObject", "spec": {"triggers": [{"type": "prometheus", "metadata": metadata}]}}
        (trigger,) = autoscaler(made, MONDAY).triggers
        assert [trigger.read(kept, now) for now in (10.3, 10.4, 10.9, 11.0)] == [before, before, before, after]
        assert ask(query, kept, now=-1) is None


def test_rate_extrapolates_as_prometheus_does() -> None:
    """Samples 0, 10 … 60 s, 5 more each: (30 - 5) over 50 s within [1m] at 60, and 10 s to the window's begin."""
    counter = metrics.REQUEST_SUCCESS
    kept = store(*({counter: [5.0 * number, 0.0]} for number in range(7)))
    assert ask(f"sum(rate({counter}[1m]))", kept, 60) == pytest.approx(25 * (50 + 10) / 50 / 60)
    # [25s] at 60 sees 40, 50 and 60: 10 over 20 s, and 5 s more to the begin of the window.
    assert ask(f"sum(increase({counter}[25s]))", kept, 60) == pytest.approx(12.5)


def test_a_counter_is_not_extrapolated_below_zero() -> None:
    counter = metrics.REQUEST_SUCCESS
    kept = store({counter: [0, 0]}, {counter: [10, 0]}, {counter: [20, 0]})
    # 20 over 20 s; the counter was 0 at the first sample, so nothing is added before it.
    assert ask(f"sum(increase({counter}[1m]))", kept, 20) == pytest.approx(20)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sum(rate(vllm:request_success_total[1m]))", 7.138888888888889e-01),
        ("sum(increase(vllm:request_success_total[25s]))", 22.5),
        ("sum(deriv(vllm:num_requests_running[1m]))", 0.3),
        ("sum(delta(vllm:num_requests_running[45s]))", 29.25),
        ("clamp_max(sum(vllm:num_requests_running), scalar(vector(0) / vector(0))) >= 0 or vector(7)", 7),
        ("2 * sum(vllm:num_requests_running) - 10 / 4", 57.5),
        ("sum(vllm:num_requests_running + vllm:request_success_total)", 60),
    ],
)
def test_answers_are_those_of_promtool(query: str, expected: float) -> None:
    """Asked of `promtool test rules` 3.14.0 with the same two pods, the second of which comes after 30 s."""
    missing = float("nan")
    kept = store(
        *(
            {metrics.REQUEST_SUCCESS: [5.0 * number, other], RUNNING: [running, missing]}
            for number, (running, other) in enumerate(
                zip([3, 9, 4, 20, 11, 7, 30], [missing] * 3 + [100, 103, 111, 111], strict=True)
            )
        )
    )
    assert ask(query, kept, 60) == pytest.approx(expected)


def test_slopes_and_averages_over_time() -> None:
    kept = store(*({RUNNING: [number * 4.0, 10.0]} for number in range(4)))
    assert ask(f"sum(deriv({RUNNING}[1m]))", kept, 30) == pytest.approx(0.4)
    assert ask(f"sum(avg_over_time({RUNNING}[1m]))", kept, 30) == pytest.approx(6 + 10)
    assert ask(f"max(max_over_time({RUNNING}[1m]))", kept, 30) == 12


def test_a_new_pod_in_an_old_slot_begins_new_series() -> None:
    kept = store({metrics.REQUEST_SUCCESS: [50, 0]}, {metrics.REQUEST_SUCCESS: [60, 0]})
    kept.forget(0)
    kept.scrape(20, np.array([True, True]), {metrics.REQUEST_SUCCESS: np.array([1.0, 0.0])}, {})
    assert ask(f"sum(rate({metrics.REQUEST_SUCCESS}[1m]))", kept, 20) == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("sum(nv_inference_queue_duration_us)", "nv_inference_queue_duration_us is not simulated"),
        (f"sum by (pod) ({RUNNING})", "a trigger needs one element"),
        (f"sum({RUNNING}", "expected ')', found 'the end'"),
        (f"rate({RUNNING})", "needs a range"),
        (f"rate({RUNNING}[1h])", "up to 300 s"),
        (f"sum({RUNNING}) ? 1", "cannot read '? 1'"),
        ("", "expected a metric"),
    ],
)
def test_queries_that_cannot_be_simulated_say_why(query: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        compile_query(query)
    assert message in str(error.value)


# ScaledObjects ------------------------------------------------------------------------------------------------------


def scaled_object(**changes: Any) -> dict[str, Any]:
    trigger = {"type": "prometheus", "metadata": {"query": f"sum({RUNNING})", "threshold": "10"}}
    return {"kind": "ScaledObject", "spec": {"minReplicaCount": 1, "triggers": [trigger], **changes}}


def scaler(**changes: Any) -> Autoscaler:
    return autoscaler(scaled_object(**changes), MONDAY)


def test_defaults_are_kedas() -> None:
    plain = autoscaler({"kind": "ScaledObject", "spec": {"triggers": scaled_object()["spec"]["triggers"]}}, MONDAY)
    assert (plain.min, plain.max, plain.polling, plain.cooldown) == (0, 100, 30, 300)
    assert plain.hpa.spec.min == 1  # KEDA gives its HPA a minimum of 1 and owns 0 itself
    assert plain.hpa.spec.up is None


def test_what_a_behaviour_leaves_out_is_the_hpas_default() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 90}]}}
    spec_ = scaler(advanced={"horizontalPodAutoscalerConfig": {"behavior": behavior}}).hpa.spec
    assert spec_.up
    assert spec_.down
    assert (spec_.up.window, spec_.up.policies[0].period) == (0, 90)
    assert (spec_.down.window, spec_.down.policies[0].value) == (300, 100)


def test_a_sleeping_service_wakes_by_polls_and_sleeps_after_the_cooldown() -> None:
    sleepy = scaler(minReplicaCount=0, cooldownPeriod=100)
    busy, idle = store({RUNNING: [0, 3]}), store({RUNNING: [0, 0]})
    assert sleepy.poll(0, busy, 0) == 1
    assert sleepy.poll(30, idle, 1) == 1
    assert sleepy.poll(100, idle, 1) == 1
    assert sleepy.poll(101, idle, 1) == 0
    assert sleepy.sync(105, busy, 0, 0) == 0  # the HPA leaves 0 alone


def test_activation_is_strictly_above() -> None:
    trigger = scaled_object()["spec"]["triggers"][0]
    trigger["metadata"]["activationThreshold"] = "3"
    sleepy = scaler(minReplicaCount=0, triggers=[trigger])
    assert sleepy.poll(0, store({RUNNING: [0, 3]}), 0) == 0
    assert sleepy.poll(1, store({RUNNING: [1, 3]}), 0) == 1


@pytest.mark.parametrize(
    ("behavior", "expected"),
    [
        ("static", 2),
        ("currentReplicas", 5),
        ("currentReplicasIfHigher", 5),
        ("currentReplicasIfLower", 2),
    ],
)
def test_fallback_replaces_a_signal_that_failed_more_often_than_its_threshold(behavior: str, expected: int) -> None:
    trigger = scaled_object()["spec"]["triggers"][0]
    trigger["metadata"]["ignoreNullValues"] = "false"
    blind = scaler(triggers=[trigger], fallback={"failureThreshold": 3, "replicas": 2, "behavior": behavior})
    empty = store({})
    seen = [blind.sync(now, empty, 5, 5) for now in (0, 15, 30)]
    assert seen == [5, 5, 5]  # errors, so the HPA does nothing
    blind.hpa.recommendations.clear()
    assert blind.sync(45, empty, 5, 5) in (expected, 5)
    assert blind.hpa.recommendations[-1][1] == expected


def test_a_floor_on_a_schedule_holds_in_its_time() -> None:
    cron = {
        "type": "cron",
        "metadata": {
            "timezone": "Europe/Berlin",
            "start": "0 8 * * 1-5",
            "end": "0 18 * * 1-5",
            "desiredReplicas": "4",
        },
    }
    office = scaler(triggers=[cron])
    empty, hour = store({}), 3600
    # Berlin is one hour ahead of UTC in January.
    assert office.triggers[0].read(empty, 7 * hour - 1) == 0
    assert office.triggers[0].read(empty, 7 * hour) == 4
    assert office.triggers[0].read(empty, 17 * hour - 1) == 4
    assert office.triggers[0].read(empty, 17 * hour) == 0
    assert office.triggers[0].read(empty, (5 * 24 + 9) * hour) == 0  # Saturday


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"triggers": []}, "spec.triggers: none"),
        ({"triggers": [{"type": "kafka"}]}, "'kafka' is not simulated"),
        ({"maxReplicaCount": 0}, "spec.maxReplicaCount: 0"),
        ({"minReplicaCount": "1"}, "spec.minReplicaCount: '1': write a whole number, such as 2, without quotes"),
        ({"fallback": {"failureThreshold": 3}}, "spec.fallback.replicas: required, but missing"),
        ({"triggers": ["a"]}, "spec.triggers[0]: 'a': write a mapping of keys"),
        (
            {"triggers": [{"type": "cron", "metadata": {"desiredReplicas": 2}}]},
            'spec.triggers[0].metadata.desiredReplicas: 2 is not text; write it in quotes, such as "2"',
        ),
        (
            {
                "advanced": {
                    "horizontalPodAutoscalerConfig": {"behavior": {"scaleUp": {"policies": [{"type": "Pods"}]}}}
                }
            },
            "spec.advanced.horizontalPodAutoscalerConfig.behavior.scaleUp.policies[0].periodSeconds: required, but",
        ),
        ({"idleReplicaCount": 0}, "spec.idleReplicaCount"),
        ({"advanced": {"scalingModifiers": {"formula": "a"}}}, "formulas are not simulated"),
        (
            {"triggers": [{"type": "prometheus", "metadata": {"query": f"sum({RUNNING})", "threshold": "x"}}]},
            "spec.triggers[0].metadata.threshold: 'x' is not a number",
        ),
        (
            {"triggers": [{"type": "prometheus", "metadata": {"query": "sum(up)", "threshold": "1"}}]},
            "spec.triggers[0].metadata.query: up is not simulated",
        ),
        (
            {"triggers": [{"type": "cron", "metadata": {"timezone": "Mars/Olympus", "start": "0 8 * * *"}}]},
            "spec.triggers[0].metadata",
        ),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as error:
        scaler(**changes)
    assert message in str(error.value)


def test_every_policy_that_serving_makes_can_be_simulated() -> None:
    rich = Scaling.model_validate(
        {
            "min": 0,
            "max": 9,
            "capacity": {"requestsPerSecond": 2, "inFlight": 40},
            "frontDoor": {"query": 'sum(rate(envoy_http_downstream_rq_total{listener="llama"}[1m]))'},
            "floors": [{"start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "timezone": "UTC", "replicas": 3}],
        }
    )
    made = autoscaler(
        {"kind": "ScaledObject", "spec": spec("n", "s", rich, 28, pod_start=120, prometheus_url="http://p")}, MONDAY
    )
    assert [trigger.name for trigger in made.triggers] == ["demand", "kv-cache", "front-door", "floor-1"]
    assert [trigger.target for trigger in made.triggers] == [28, 80, 1.6, 1]


# Cron ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("*/15 * * * *", "2026-01-05T00:07", "2026-01-05T00:15"),
        ("0 8 * * MON-FRI", "2026-01-02T08:00", "2026-01-05T08:00"),
        ("30 7 1 * *", "2026-01-05T00:00", "2026-02-01T07:30"),
        ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 12 13 * 5", "2026-02-10T00:00", "2026-02-13T12:00"),  # both days given: either is enough
        ("0 12 20 * 5", "2026-02-10T00:00", "2026-02-13T12:00"),
    ],
)
def test_schedules(schedule: str, after: str, expected: str) -> None:
    moment = datetime.datetime.fromisoformat(after)
    assert Schedule.parse(schedule).next(moment) == datetime.datetime.fromisoformat(expected)


@pytest.mark.parametrize("text", ["0 8 * *", "60 * * * *", "0 8 * * FUNDAY", "5-1 * * * *", "*/0 * * * *"])
def test_refuses_schedules(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a|fields"):
        Schedule.parse(text)


@pytest.mark.parametrize("text", ["0 8 31 2 *", "0 8 30 FEB *", "0 8 31 4,6,9,11 *", "0 8 30-31 2 ?", "0 8 31 2 */1"])
def test_refuses_days_that_no_year_has(text: str) -> None:
    with pytest.raises(ValueError, match="never comes"):
        Schedule.parse(text)


@pytest.mark.parametrize("text", ["0 8 29 2 *", "0 8 31 1,2 *", "0 8 31 2 1", "0 8 */31 2 *", "0 8 31 2 */2"])
def test_takes_days_that_some_year_has_and_weekdays_beside_those_that_none_has(text: str) -> None:
    assert Schedule.parse(text).next(datetime.datetime(2026, 1, 1))
