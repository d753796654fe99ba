"""The metric contract: every query of every stack parses, and every metric and label in it exists.

Prometheus' own parser reads the queries. What exists is written down from outside: scrapes of the real servers
(tests/metrics/*.prom; tests/serving holds running ones to them), and what the operators' sources register
(tests/metrics/operators/). A label that a scrape renames is known by its new name only.
"""

import ast
import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eks_llm.observe import metrics
from eks_llm.operators.gpu_operator import DCGM_METRICS
from eks_llm.operators.monitoring import MonitoringSettings, monitoring_values
from embedded.near import opener
from embedded.tools import provide
from tests.queries import FRONT_DOOR, ROOT, Query, filled, queries, recorded, recordings

METRICS = ROOT / "tests" / "metrics"
TARGET_LABELS = {"namespace", "pod", "container", "endpoint", "instance", "job", "service"}
"""What the Prometheus operator gives every series of a pod or service that it scrapes; our PodMonitor sets `service`.
Where labels are not honoured, those that a series brings become `exported_…`."""

Known = dict[str, set[str]]
"""Labels by the name of a series, as Prometheus stores it."""


# What exists --------------------------------------------------------------------------------------------------------


def series_of(name: str, kind: str) -> set[str]:
    """Names under which Prometheus stores a metric."""
    endings = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("", "_count", "_sum")}
    return {f"{name}{ending}" for ending in endings.get(kind, ("",))}


def scraped(file: Path) -> Known:
    known: Known = {}
    for name, labels in re.findall(
        r"^([a-zA-Z_:][\w:]*)(\{.*\})? \S+$", file.read_text(encoding="utf-8"), re.MULTILINE
    ):
        known.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return known


def published(file: Path) -> Known:
    """What a source of an operator lists, as it arrives in Prometheus."""
    source = yaml.safe_load(file.read_text(encoding="utf-8"))
    known: Known = {}
    for name, facts in source["metrics"].items():
        labels = {*facts["labels"], *source.get("labels", [])}
        if not source["honorLabels"]:
            labels = {f"exported_{label}" if label in TARGET_LABELS else label for label in labels}
        if facts["type"] == "histogram":
            labels.add("le")
        for series in series_of(name, facts["type"]):
            known[series] = labels | TARGET_LABELS
    return known


def everything() -> Known:
    known: Known = {}
    for file in METRICS.glob("*.prom"):
        for name, labels in scraped(file).items():
            known.setdefault(name, set()).update(labels | TARGET_LABELS)
    for file in (METRICS / "operators").glob("*.yaml"):
        known |= published(file)
    dcgm = yaml.safe_load((METRICS / "operators" / "dcgm-exporter.yaml").read_text())["labels"]
    labels = {f"exported_{label}" if label in TARGET_LABELS else label for label in dcgm}
    for name, _, _ in DCGM_METRICS:
        known.setdefault(name, set()).update(labels | TARGET_LABELS)
    return known | scaled_object_states() | {FRONT_DOOR: set(TARGET_LABELS)}


def scaled_object_states() -> Known:
    """What kube-state-metrics makes of the custom-resource state that `Monitoring` gives it.

    Source: kube-state-metrics v2.20.0, docs/metrics/extend/customresourcestate-metrics.md: prefix, and three labels.
    """
    values: Any = monitoring_values(MonitoringSettings())["kube-state-metrics"]["customResourceState"]["config"]
    known: Known = {}
    for resource in values["spec"]["resources"]:
        common = {"customresource_group", "customresource_version", "customresource_kind", *resource["labelsFromPath"]}
        for metric in resource["metrics"]:
            own = metric["each"]["gauge"]["labelsFromPath"]
            known[f"kube_customresource_{metric['name']}"] = {*common, *own, *TARGET_LABELS}
    return known


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


def test_every_name_is_written_once() -> None:
    """Sources name metrics by the constants of metrics.py; the list of what dcgm-exporter exports is its own source."""
    exporters = re.compile(r"(vllm:|kube_|keda_|DCGM_|cluster_autoscaler_|nv_|container_|node_)\w")
    values = [value for value in vars(metrics).values() if isinstance(value, str) and exporters.match(value)]
    names = re.compile("|".join(map(re.escape, values)))
    package = ROOT / "components" / "eks_llm"
    for room in ("dashboards", "operators", "serving", "aws"):
        for file in (package / room).glob("*.py"):
            if file.name != "gpu_operator.py":
                found = [text for text in literals(ast.parse(file.read_text(encoding="utf-8"))) if names.search(text)]
                assert not found, f"{room}/{file.name}"


def literals(tree: ast.Module) -> Iterator[str]:
    """Texts in the code, docstrings left out."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value
