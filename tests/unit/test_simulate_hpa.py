"""The HPA's arithmetic, against Kubernetes' own tables.

Numbers marked "table" are inputs and results of pkg/controller/podautoscaler/horizontal_test.go of Kubernetes v1.36.3
(TestScalingWithRules, TestNormalizeDesiredReplicasWithBehavior, TestCalculateScale*Limit*); the others are worked out
by hand from replica_calculator.go, and from the examples of kubernetes.io/docs (HorizontalPodAutoscaler, behavior).
"""

import pytest

from eks_llm.simulate.hpa import Hpa, MetricType, Policy, PolicyType, Rules, SelectPolicy, Spec

AVERAGE, VALUE = MetricType.AVERAGE_VALUE, MetricType.VALUE
NONE = Rules(0, (Policy(PolicyType.PERCENT, 100000, 15),))
"""A behaviour that limits nothing."""


def pods(value: int, period: int) -> Policy:
    return Policy(PolicyType.PODS, value, period)


def percent(value: int, period: int) -> Policy:
    return Policy(PolicyType.PERCENT, value, period)


def hpa(target: float = 10, kind: MetricType = AVERAGE, up: Rules | None = NONE, down: Rules | None = NONE) -> Hpa:
    return Hpa(Spec(1, 1000, ((target, kind),), up, down))


# One metric ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "current", "expected"),
    [
        (100, 5, 10),  # 100 / 10
        (101, 5, 11),  # rounded up
        (55, 5, 5),  # ratio 1.1: within the tolerance
        (55.1, 5, 6),  # ratio 1.102
        (45, 5, 5),  # ratio 0.9
        (44.9, 5, 5),  # ratio 0.898 is outside, and ceil(4.49) is 5 all the same
        (40, 5, 4),
        (0, 5, 0),
        (11, 1, 1),
        (11.002, 1, 2),
    ],
)
def test_average_value_is_the_sum_by_the_target(value: float, current: int, expected: int) -> None:
    assert hpa().recommend(current, ready=0, values=[value]) == expected  # unready pods change nothing


@pytest.mark.parametrize(
    ("value", "ready", "expected"),
    [
        (20, 4, 8),  # ratio 2 of 4 ready pods
        (20, 2, 4),  # half of them start: the same load asks for half as many
        (20, 0, 0),
        (11, 2, 4),  # tolerated: all 4 stay
    ],
)
def test_value_multiplies_the_ready_pods(value: float, ready: int, expected: int) -> None:
    assert hpa(kind=VALUE).recommend(4, ready, [value]) == expected


def test_the_largest_proposal_of_several_metrics_wins() -> None:
    several = Hpa(Spec(1, 100, ((10, AVERAGE), (80, AVERAGE), (5, AVERAGE)), NONE, NONE))
    assert several.recommend(2, 2, [35, 300, 6]) == 4  # 4, 4 and 2
    assert several.recommend(2, 2, [35, 401, 6]) == 6


def test_a_failed_metric_forbids_scaling_down_only() -> None:
    two = Hpa(Spec(1, 100, ((10, AVERAGE), (10, AVERAGE)), NONE, NONE))
    assert two.recommend(4, 4, [10, None]) is None
    assert two.recommend(4, 4, [80, None]) == 8
    assert two.recommend(4, 4, [None, None]) is None
    assert two.sync(0, 4, 4, [10, None]) == 4


def test_tolerance_may_differ_by_direction() -> None:
    eager = hpa(up=Rules(0, NONE.policies, tolerance=0.0), down=Rules(0, NONE.policies, tolerance=0.3))
    assert eager.recommend(5, 5, [51]) == 6
    assert eager.recommend(5, 5, [36]) == 5  # ratio 0.72
    assert eager.recommend(5, 5, [34]) == 4


def test_limits_hold_at_once_and_zero_means_off() -> None:
    small = Hpa(Spec(2, 8, ((10, AVERAGE),), Rules(600, (pods(1, 60),)), NONE))
    assert small.sync(0, 1, 1, [10]) == 2
    assert small.sync(15, 9, 9, [1000]) == 8
    assert small.sync(30, 0, 0, [1000]) == 0


# Policies: table ----------------------------------------------------------------------------------------------------

UP_CASES = [
    # current, wanted, events of the last 120 s, max, policies, result
    (10, 50, [], 1000, (pods(4, 15), percent(100, 15)), 20),  # the default
    (10, 500, [], 1000, (pods(100, 60), percent(100, 60)), 110),
    (10, 500, [], 1000, (pods(2, 60), percent(100, 60)), 20),
    (10, 50, [], 1000, (pods(30, 60),), 40),
    (10, 50, [], 1000, (percent(200, 60),), 30),
    (3, 1000, [], 2000, (percent(1, 60),), 4),  # one percent of 3 is rounded up
    (100, 500, [1, 5, 9], 200, (pods(300, 60),), 200),
    (100, 500, [1, 5, 9], 1000, (pods(5, 120),), 100),  # 100 - 15 + 5 is below what there is
    (100, 500, [1, 5, 9], 1000, (pods(150, 120),), 235),
    (100, 500, [1, 5, 9], 1000, (percent(200, 120),), 255),
]
DOWN_CASES = [
    (100, 2, [], (pods(20, 60), percent(1, 60)), 80),
    (100, 2, [], (pods(2, 60), percent(1, 60)), 98),
    (10, 2, [], (pods(5, 60),), 5),
    (10, 5, [], (percent(50, 60),), 5),
    (100, 0, [1, 5, 9], (pods(115, 120),), 1),  # no less than the minimum
    (100, 2, [1, 5, 9], (pods(5, 120),), 100),
    (100, 0, [2, 4, 6], (percent(50, 120),), 56),  # (100 + 12) / 2
    (100, 0, [10, 10, 10], (percent(10, 120),), 100),
]


def spread(changes: list[int], period: float = 120) -> list[tuple[float, int]]:
    """Events in the middle of equal parts of the last `period` seconds before 0."""
    part = period / max(1, len(changes))
    return [(-period + part * (number + 0.5), change) for number, change in enumerate(changes)]


@pytest.mark.parametrize(("current", "wanted", "events", "most", "policies", "expected"), UP_CASES)
def test_scale_up_policies(
    current: int, wanted: int, events: list[int], most: int, policies: tuple[Policy, ...], expected: int
) -> None:
    controller = Hpa(Spec(1, most, ((1, AVERAGE),), Rules(0, policies), NONE), ups=spread(events))
    assert controller.sync(0, current, current, [wanted]) == expected


@pytest.mark.parametrize(("current", "wanted", "events", "policies", "expected"), DOWN_CASES)
def test_scale_down_policies(
    current: int, wanted: int, events: list[int], policies: tuple[Policy, ...], expected: int
) -> None:
    controller = Hpa(Spec(1, 1000, ((1, AVERAGE),), NONE, Rules(0, policies)), downs=spread(events))
    assert controller.sync(0, current, current, [wanted]) == expected


def test_changes_of_both_directions_count_into_the_start_of_a_period() -> None:
    up = Hpa(Spec(1, 1000, ((1, AVERAGE),), Rules(0, (percent(300, 300),)), NONE), ups=[(-60, 4)], downs=[(-60, 2)])
    assert up.sync(0, 6, 6, [24]) == 16  # (6 - 4 + 2) x 4
    down = Hpa(Spec(1, 1000, ((1, AVERAGE),), NONE, Rules(0, (percent(50, 180),))), ups=[(-60, 2)], downs=[(-60, 4)])
    assert down.sync(0, 10, 10, [1]) == 6  # (10 - 2 + 4) / 2


def test_select_policy() -> None:
    both = (pods(2, 60), percent(50, 60))
    assert Hpa(Spec(1, 99, ((1, AVERAGE),), Rules(0, both, SelectPolicy.MIN), NONE)).sync(0, 1, 1, [50]) == 2
    assert Hpa(Spec(1, 99, ((1, AVERAGE),), NONE, Rules(0, both, SelectPolicy.MIN))).sync(0, 5, 5, [0]) == 3
    assert Hpa(Spec(1, 99, ((1, AVERAGE),), Rules(0, both, SelectPolicy.DISABLED), NONE)).sync(0, 5, 5, [50]) == 5


def test_documented_example_ten_percent_or_four_pods_a_minute_down_from_80() -> None:
    """kubernetes.io: with 80 replicas and 10 % or 4 pods per minute, the first minute removes 8, later ones fewer."""
    controller = Hpa(Spec(1, 100, ((1, AVERAGE),), NONE, Rules(0, (pods(4, 60), percent(10, 60)))))
    replicas, now, removed = 80, 0, []
    while replicas > 10 and now < 1800:
        wanted = controller.sync(now, replicas, replicas, [10])
        removed.append(replicas - wanted)
        replicas, now = wanted, now + 60
    # 10 % of 80 is 8; int(72 x 0.9) = 64, and so on; below 40 replicas 4 pods are more than 10 %.
    assert removed[:3] == [8, 8, 7]
    assert removed[-5:-1] == [4, 4, 4, 4]
    assert replicas == 10


# Windows: table -----------------------------------------------------------------------------------------------------

MINUTE = 60.0


@pytest.mark.parametrize(
    ("history", "current", "wanted", "up", "down", "expected"),
    [
        ([], 100, 5, 0, 0, 5),
        ([(-2, 4), (-1, 5)], 100, 3, 0, 180, 5),
        ([(-2, 4), (-1, 5)], 1, 7, 300, 0, 4),
        ([(-2, 1), (-1, 2)], 100, 3, 300, 0, 3),
        ([(-2, 4), (-1, 5)], 1, 3, 0, 300, 3),
        ([(-10, 10), (-9, 9)], 100, 3, 0, 0, 3),
        ([(-10, 10), (-1, 4), (-2, 5), (-9, 9)], 100, 3, 0, 180, 5),
        ([(-100, 10), (-1, 6), (-2, 5), (-3, 9)], 1, 100, 300, 0, 5),
        ([(-100, 2), (-3, 3)], 2, 1, 300, 300, 2),
        ([(-100, 2), (-3, 1)], 2, 3, 300, 300, 2),
    ],
)
def test_stabilisation(
    history: list[tuple[float, int]], current: int, wanted: int, up: int, down: int, expected: int
) -> None:
    spec = Spec(1, 1000, ((1, AVERAGE),), Rules(up, NONE.policies), Rules(down, NONE.policies))
    controller = Hpa(spec, recommendations=[(minutes * MINUTE, value) for minutes, value in history])
    assert controller.sync(0, current, current, [wanted]) == expected


def test_replicas_at_the_first_sync_count_as_a_recommendation() -> None:
    controller = hpa(up=Rules(60, NONE.policies))
    assert controller.sync(0, 2, 2, [100]) == 2
    assert [controller.sync(now, 2, 2, [100]) for now in (15, 30, 45)] == [2, 2, 2]
    assert controller.sync(60, 2, 2, [100]) == 10  # the 2 of time 0 is no longer within 60 s


# Without a behaviour ------------------------------------------------------------------------------------------------


def test_without_a_behaviour_replicas_double_and_fall_after_five_minutes() -> None:
    plain = hpa(up=None, down=None)
    assert plain.sync(0, 1, 1, [1000]) == 4
    assert plain.sync(15, 4, 4, [1000]) == 8
    # The 100 of 15 s ago still counts, and is approached: stabilizeRecommendation comes before the limits.
    assert plain.sync(30, 8, 8, [10]) == 16
    assert plain.sync(331, 16, 16, [10]) == 1
