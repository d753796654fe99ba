"""What the package thinks of PromQL is what Prometheus' own parser thinks of it."""

import subprocess
from pathlib import Path

import pytest

from eks_llm.core.promql import SWITCHED_OFF, one_element_problem
from tests.queries import queries, recordings
from tests.queries_of_users import READABLE, UNREADABLE


def readable(promtool: Path, query: str) -> bool:
    command = [promtool, "promql", "format", "--experimental", "--", query]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 or "parse error" in ran.stderr, ran.stderr
    return ran.returncode == 0


@pytest.mark.parametrize("query", [*READABLE, *UNREADABLE])
def test_the_verdict_is_promtools(promtool: Path, query: str) -> None:
    thought = "not a query that Prometheus can read" not in (one_element_problem(query) or "")
    assert thought is readable(promtool, query) is (query in READABLE)


def test_the_platforms_own_queries_are_read(promtool: Path) -> None:
    found = {
        query.expr.replace("$namespace", "a").replace("$service", "b") for query in queries(recordings()["stack dev"])
    }
    bad = [query for query in found if "Prometheus can read" in (one_element_problem(query) or "")]
    assert found
    assert not bad


@pytest.mark.parametrize("name", sorted(SWITCHED_OFF))
def test_what_is_switched_off_is_refused_by_promtool_too(promtool: Path, name: str) -> None:
    calls = [f"{name}({args})" for args in ("", "x", "x[5m]", "2, x", "x[5m], 0.5, 0.5", 'x, "a"', 'x, "a", 0.5, 0.9')]
    assert not any(readable(promtool, call) for call in calls)
