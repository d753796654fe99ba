"""The metric contract: every query of every stack parses, and every metric and label in it exists.

Prometheus' own parser reads the queries. What exists is written down from outside: scrapes of the real servers
(tests/metrics/*.prom; tests/serving holds running ones to them), and what the operators' sources register
(tests/metrics/operators/). A label that a scrape renames is known by its new name only.
"""

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedded.near import opener
from embedded.tools import provide
from tests.known_series import Known, everything
from tests.queries import Query, filled, queries, recorded, recordings

# What queries ask for -----------------------------------------------------------------------------------------------


Parse = Callable[[str], Any]


@pytest.fixture(scope="module")
def parse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parse]:
    """Prometheus' parser, behind its API: the syntax tree of a query; raises `ValueError` with its message."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text("")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    flags = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": url.removeprefix("http://"),
    }
    command = [str(provide("prometheus")), *(f"--{flag}={value}" for flag, value in flags.items())]
    near = opener()

    def ask(path: str) -> bytes:
        try:
            with near.open(f"{url}{path}", timeout=60) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            raise ValueError(json.loads(error.read())["error"]) from None

    def parsed(expr: str) -> Any:
        return json.loads(ask("/api/v1/parse_query?" + urllib.parse.urlencode({"query": expr})))["data"]

    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 120
        while True:
            try:
                ask("/-/ready")
                break
            except (OSError, ValueError):
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.2)
        yield parsed
    finally:
        process.terminate()
        process.wait(30)


def labels_of_selector(node: Any, known: Known, problems: list[str]) -> set[str]:
    """The labels of the series that a selector reads; its name may be a pattern."""
    name = next(matcher for matcher in node["matchers"] if matcher["name"] == "__name__")
    found = [series for series in known if re.fullmatch(name["value"], series)]
    wanted = {matcher["name"] for matcher in node["matchers"]}
    if not found:
        problems.append(f"{name['value']} is exported by nothing")
        return wanted
    has = set.intersection(*(known[series] for series in found)) | {"__name__"}
    problems += [f"{name['value']} has no label {label}" for label in wanted - has]
    return has


def labels_of(node: Any, known: Known, problems: list[str]) -> set[str]:
    """The labels that the result of a part of a query can have; what is missing goes to `problems`."""
    kind = node.get("type") if isinstance(node, dict) else None
    if kind in ("vectorSelector", "matrixSelector"):
        return labels_of_selector(node, known, problems)
    if kind == "aggregation":
        below = labels_of(node["expr"], known, problems)
        if node["without"]:
            return below - set(node["grouping"])
        problems += [f"no series below `by` has the label {label}" for label in set(node["grouping"]) - below]
        return set(node["grouping"])
    if kind == "binaryExpr":
        left, right = (labels_of(node[side], known, problems) for side in ("lhs", "rhs"))
        matching = node["matching"] or {}
        if matching.get("on"):
            missing = set(matching["labels"]) - (left & right)
            problems += [f"a side of {node['op']} has no label {label} of `on`" for label in missing]
        return left | right | set(matching.get("include") or [])
    if kind == "call":
        found = [labels_of(argument, known, problems) for argument in node["args"]]
        below = set[str]().union(*found)
        if node["func"]["name"] == "label_replace":
            target, source = (node["args"][index]["val"] for index in (1, 3))
            if source and source not in below:
                problems.append(f"label_replace reads {source}, which no series has")
            return below | {target}
        return below
    if kind in ("parenExpr", "unaryExpr", "subquery", "stepInvariantExpr"):
        return labels_of(node["expr"], known, problems)
    return set()


def check(query: Query, parse: Parse, known: Known) -> list[str]:
    """What is wrong with a query, each with its place."""
    try:
        tree = parse(filled(query.expr))
    except ValueError as error:
        return [f"{query.where}: {error}: {query.expr}"]
    problems: list[str] = []
    labels = labels_of(tree, known, problems)
    problems += [f"shows the label {label}, which the result has not" for label in query.shown - labels]
    return [f"{query.where}: {problem}: {query.expr}" for problem in problems]


def with_recorded(known: Known, parse: Parse) -> Known:
    """`known` and what the rules record, each series with the labels of its expression and of its rule."""
    everything = dict(known)
    waiting = [rule for recording in recordings().values() for rule in recorded(recording)]
    for _ in range(3):  # rules that read recorded series come after those
        for rule in waiting:
            found = labels_of(parse(rule.expr), everything, [])
            everything[rule.name] = everything.get(rule.name, set()) | found | rule.labels
    return everything


# Tests --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recordings())
def test_every_query_parses_and_asks_for_what_exists(name: str, parse: Parse) -> None:
    known = with_recorded(everything(), parse)
    problems = [problem for query in queries(recordings()[name]) for problem in check(query, parse, known)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("sum((up)", "unclosed left parenthesis"),
        ("sum(vllm:gpu_cache_usage_perc)", "exported by nothing"),  # removed by vLLM in 2025
        ("sum(vllm:num_preemptions)", "exported by nothing"),  # prometheus_client adds _total
        ('vllm:num_requests_running{pool="a"}', "vllm:num_requests_running has no label pool"),
        ("sum by (le) (rate(vllm:generation_tokens_total[5m]))", "has the label le"),
        ('keda_scaler_metrics_value{scaled_object="a"}', "has no label scaled_object"),
        ("up * on (pod) group_left () sum by (node) (kube_pod_info)", "no label pod of `on`"),
        ('label_replace(up, "a", "$1", "deployment", "(.+)")', "reads deployment"),
    ],
)
def test_a_wrong_query_is_found(expr: str, problem: str, parse: Parse) -> None:
    (found,) = check(Query("here", expr), parse, everything())
    assert problem in found


def test_labels_that_a_scrape_renames_are_known_by_their_new_names() -> None:
    """Operator values honorLabels false: the scraped pod's own namespace wins."""
    known = everything()
    assert {"exported_namespace", "namespace"} <= known["keda_scaler_http_requests_total"]
    assert "exported_pod" in known["DCGM_FI_DEV_GPU_UTIL"]
    assert "exported_namespace" not in known["kube_pod_info"]
