"""Queries for a front door: read as Prometheus reads them, and refused where KEDA gets no single element."""

import pytest

from eks_llm.core.promql import SWITCHED_OFF, one_element_problem
from tests.queries_of_users import READABLE, UNREADABLE


@pytest.mark.parametrize(("query", "why"), READABLE.items())
def test_one_element_is_taken_and_more_or_a_scalar_refused(query: str, why: str | None) -> None:
    problem = one_element_problem(query)
    assert problem is None if why is None else why in (problem or "")


@pytest.mark.parametrize("query", UNREADABLE)
def test_what_prometheus_cannot_read_is_refused_with_the_parsers_reason(query: str) -> None:
    assert (one_element_problem(query) or "").startswith("not a query that Prometheus can read (")


@pytest.mark.parametrize("query", ["sum(info(x))", "limitk(2, x)", "sum(mad_over_time(x[5m]))"])
def test_experiments_that_are_switched_off_are_refused(query: str) -> None:
    assert "is an experiment of Prometheus, which is off" in (one_element_problem(query) or "")
    assert any(name in query for name in SWITCHED_OFF)
