"""The simulator's arithmetic against records of real KEDA, a real HPA controller and a real Prometheus.

benchmarks/closed_loop.py made the records in benchmarks/results/closed_loop/: five loads, our own ScaledObjects.
"""

import copy
import datetime
import itertools
import math
from typing import Any

import pytest

from benchmarks.closed_loop import SCRIPTS, apart, records, replay
from eks_llm.observe.metrics import WAITING
from eks_llm.simulate.hpa import SYNC_SECONDS
from eks_llm.simulate.keda import autoscaler

RECORDS = {record["name"]: record for record in records()}
each = pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())


def series(record: dict[str, Any]) -> tuple[list[float], list[int]]:
    """Times and desired replicas of the HPA's turns."""
    return [turn["at"] for turn in record["turns"]], [turn["desired"] for turn in record["turns"]]


@each
def test_the_same_series_within_one_turn(record: dict[str, Any]) -> None:
    """From the scrapes alone, at the times of the HPA's turns."""
    times, recorded = series(record)
    assert apart(recorded, replay(record, times)) == []


@each
def test_the_same_decisions_on_what_the_controller_saw(record: dict[str, Any]) -> None:
    """On the signals that the HPA itself reports, without queries.

    It reports them per replica, rounded up to thousandths. A window that ends within milliseconds of a turn may hold
    for it or not, so one turn of shift is let be here too.
    """
    scaler = autoscaler(record["manifest"], datetime.datetime.fromisoformat(record["date"]))
    names = [f"s{index}-prometheus" for index in range(len(scaler.triggers))]
    found = [record["turns"][0]["current"]]
    for turn in record["turns"]:
        values = [max(0.0, turn["perReplica"][name] - 0.001) * turn["current"] for name in names]
        found.append(scaler.hpa.sync(turn["at"], found[-1], turn["current"], values))
    assert apart(series(record)[1], found[1:]) == []


@each
def test_a_record_shows_what_it_is_for(record: dict[str, Any]) -> None:
    """It rises and falls, the HPA had a turn about every 15 s, and pods took their time to start."""
    times, recorded = series(record)
    assert max(recorded) >= recorded[0] + 2
    assert times[0] <= 0
    assert times[-1] >= 330
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert sorted(gaps)[len(gaps) // 2] == pytest.approx(SYNC_SECONDS, abs=1)
    assert record["versions"]["kubernetes"].startswith("v1.36")
    script = next(script for script in SCRIPTS if script.name == record["name"])
    assert record["podStart"] == script.pod_start
    asked = next(turn["at"] for turn in record["turns"] if turn["desired"] > recorded[0])
    ready = next(at for at, count in record["ready"] if at > asked and count > recorded[0])
    assert ready - asked == pytest.approx(script.pod_start, abs=5)


def test_the_comparison_sees_a_wrong_policy() -> None:
    """Without the window upwards, or with another target, the series differ by more than a turn."""
    record = copy.deepcopy(RECORDS["bursts"])
    times, recorded = series(record)
    behavior = record["manifest"]["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    behavior["scaleUp"]["stabilizationWindowSeconds"] = 0
    assert apart(recorded, replay(record, times))
    record = copy.deepcopy(RECORDS["step"])
    times, recorded = series(record)
    record["manifest"]["spec"]["triggers"][0]["metadata"]["threshold"] = "12"
    assert apart(recorded, replay(record, times))


def test_three_times_the_load_is_not_overshot_while_pods_start() -> None:
    """Pods take 90 s; two replicas are right before the step, and six after it."""
    record = RECORDS["slow"]
    (_, before), (_, after) = record["worth"][0], record["worth"][-1]
    assert after == 3 * before
    need = math.ceil(after)
    _, recorded = series(record)
    assert need <= max(recorded) <= need + 1
    assert max(replay(record, series(record)[0])) <= need + 1


def test_nothing_waits_once_the_needed_pods_are_ready() -> None:
    record = RECORDS["slow"]
    there = next(at for at, count in record["ready"] if count >= 6)
    scraped = list(zip(record["scrapes"]["at"], record["scrapes"][WAITING], strict=True))
    assert max(count for at, count in scraped if 60 < at < there) > 0
    assert [count for at, count in scraped if at > there + 15] == [0] * sum(at > there + 15 for at, _ in scraped)


def test_series_that_are_apart() -> None:
    assert apart([1, 1, 3, 3], [1, 3, 3, 3]) == []  # one turn earlier
    assert apart([1, 1, 1, 3], [1, 3, 3, 3]) == [1, 2]  # two
    assert apart([1, 2, 3, 3], [1, 1, 3, 3]) == [1]  # a value that the other never has
