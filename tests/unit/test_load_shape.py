"""The arithmetic of `./dev load`: arrivals against the theory of Poisson processes, the ramp, percentiles."""

import itertools
import math
import random
import statistics
from collections.abc import Callable

import pytest

from embedded.load.run import PER_PROCESS, Plan, tasks
from embedded.load.shape import Ramp, arrivals, part, percentile, prompt, scaled
from embedded.telemetry import Service

RAMP = Ramp(first=1, last=120, rise=60, duration=180)


def kolmogorov(values: list[float], distribution: Callable[[float], float]) -> float:
    """The Kolmogorov-Smirnov statistic, in units of its 1 % critical value 1.628 / √n."""
    values, count = sorted(values), len(values)
    distance = max(
        max((index + 1) / count - distribution(value), distribution(value) - index / count)
        for index, value in enumerate(values)
    )
    return distance * math.sqrt(count) / 1.628


@pytest.mark.parametrize("seed", range(5))
def test_arrivals_at_a_constant_rate_are_a_poisson_process(seed: int) -> None:
    found = list(arrivals(random.Random(seed), lambda _: 50.0, 50.0, 200.0))
    assert abs(len(found) - 10_000) < 4 * math.sqrt(10_000)  # mean and variance of the count are rate × time
    gaps = [after - before for before, after in itertools.pairwise([0.0, *found])]
    assert kolmogorov(gaps, lambda gap: 1 - math.exp(-50 * gap)) < 1
    counts = [sum(second <= time < second + 1 for time in found) for second in range(200)]
    dispersion = statistics.variance(counts) / statistics.mean(counts)
    assert abs(dispersion - 1) < 4 * math.sqrt(2 / 199)  # of χ² with 199 degrees of freedom


@pytest.mark.parametrize("seed", range(5))
def test_arrivals_of_a_ramp_have_its_rate(seed: int) -> None:
    """Time measured in expected arrivals makes any Poisson process one of rate 1: uniform, given the count."""
    ramp, peak = Ramp(first=0, last=100, rise=100, duration=300), 40.0
    found = list(arrivals(random.Random(seed), ramp.rate(peak), peak, ramp.duration))
    expected = peak * 100 / 2 + peak * 200
    assert abs(len(found) - expected) < 4 * math.sqrt(expected)

    def until(time: float) -> float:
        return peak * time**2 / 200 if time < 100 else peak * 50 + peak * (time - 100)

    assert kolmogorov(found, lambda time: until(time) / expected) < 1


def test_a_seed_repeats_its_arrivals() -> None:
    first, again, other = (list(arrivals(random.Random(seed), lambda _: 5.0, 5.0, 60.0)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("time", "connections"),
    [(-1, 0), (0, 1), (0.5, 1), (30, 60), (59.99, 119), (60, 120), (179.9, 120), (180, 0)],
)
def test_connections_climb_in_a_straight_line(time: float, connections: int) -> None:
    assert RAMP.connections(time) == connections


def test_connections_open_when_the_line_reaches_them() -> None:
    for number in range(RAMP.last):
        opens = RAMP.opens(number)
        assert opens is not None
        assert RAMP.connections(opens + 1e-6) == number + 1
        assert RAMP.connections(opens - 1e-6) == (number if number else 0)
    assert RAMP.opens(RAMP.last) is None


def test_a_load_that_ends_while_it_climbs_opens_fewer() -> None:
    ramp = Ramp(first=1, last=101, rise=100, duration=50)
    assert sum(ramp.opens(number) is not None for number in range(101)) == 50  # the 51st opens as it ends


def test_without_a_climb_all_open_at_once() -> None:
    ramp = Ramp(first=1, last=8, rise=0, duration=10)
    assert ramp.connections(0) == 8
    assert [ramp.opens(number) for number in range(8)] == [0.0] * 8


def test_rates_climb_with_the_connections() -> None:
    rate = RAMP.rate(240.0)
    assert [rate(0), rate(60), rate(170)] == [2.0, 240.0, 240.0]
    assert rate(30) == pytest.approx(121.0)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.05, 15), (0.3, 20), (0.4, 20), (0.5, 35), (1.0, 50), (0.0, 15), (0.99, 50)]
)
def test_percentile_by_nearest_rank(share: float, expected: float) -> None:
    """The worked example of the nearest-rank method in Wikipedia's article `Percentile`."""
    assert percentile([50, 15, 40, 20, 35], share) == expected


def test_no_values_have_no_percentile() -> None:
    assert percentile([], 0.5) is None


def test_the_reference_is_scaled() -> None:
    assert scaled(1) == (1024, 256)
    assert scaled(8) == (128, 32)
    assert scaled(1000) == (1, 1)


def test_prompts_differ() -> None:
    dice = random.Random(0)
    found = [prompt(dice, 128) for _ in range(100)]
    assert {len(text) for text in found} == {127}  # and the token that begins a text
    assert len(set(found)) == 100


@pytest.mark.parametrize(("total", "parts"), [(120, 2), (121, 2), (7, 3), (1, 1), (2, 3)])
def test_parts_are_even_and_sum_up(total: int, parts: int) -> None:
    found = [part(total, index, parts) for index in range(parts)]
    assert sum(found) == total
    assert max(found) - min(found) <= 1


@pytest.mark.parametrize("last", [1, 60, 61, 120, 500])
def test_processes_share_connections_and_rate(last: int) -> None:
    service = Service("inference", "tiny", triton=True, desired=1, ready=1, scaling=None)
    found = tasks(Plan(Ramp(1, last, 60, 180), rate=30.0), "http://127.0.0.1:8000", service)
    assert sum(task.ramp.last for task in found) == last
    assert sum(task.ramp.first for task in found) == 1
    assert all(task.ramp.last <= PER_PROCESS for task in found)
    assert sum(task.rate for task in found) == pytest.approx(30.0)
    assert len({task.seed for task in found}) == len(found)  # parts with equal dice would arrive together
