"""Every query that a platform runs, read from the objects that programs register: dashboards, rules, triggers."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eks_llm.plan.program import find_project, run
from eks_llm.plan.recorder import Recording, record
from eks_llm.serving.service import InferenceService
from tests.unit.serving import on_cluster

ROOT = Path(__file__).parents[1]
KEYS = ("expr", "query")
"""Keys under which Grafana, Prometheus' rules and KEDA's triggers have queries."""
FRONT_DOOR = "front_door_requests_total"
"""What the example services' front door counts: a name of the user's, which rules on the front door repeat."""
VARIABLE_KINDS = ("datasource", "constant")
"""Variables of a dashboard whose `query` is no PromQL."""


@dataclass(frozen=True)
class Query:
    where: str
    """The object and the part of it, for messages."""
    expr: str
    shown: frozenset[str] = frozenset()
    """Labels that the legend, the table or the annotations of an alert show."""


@dataclass(frozen=True)
class Recorded:
    """A recording rule: what it makes a new series from."""

    name: str
    expr: str
    labels: frozenset[str]


@cache
def recordings() -> dict[str, Recording]:
    """What each stack of this repository registers, and services with all that a stack file can switch on."""
    project = find_project(ROOT)
    found = {f"stack {stack}": run(project, stack) for stack in project.stacks()}
    for runtime in ("triton", "openai"):
        args: Any = {
            "model": "llama-3-8b-instruct",
            "weights": "s3://acme-models/llama-3-8b/2026-10-01/",
            "pool": "a100",
            "runtime": runtime,
            "namespace": "inference",
            "instance_type": "p4d.24xlarge",
            "prometheus_url": "http://prometheus.monitoring.svc:9090",
            "slo": {"ttft_p99": "820ms", "tpot_p99": "42ms"},
            "scaling": {
                "min": 0,
                "max": 4,
                "front_door": {"query": f"sum(rate({FRONT_DOOR}[1m]))", "requests_per_replica": 2.0},
                "floors": [
                    {"start": "0 8 * * *", "end": "0 18 * * *", "timezone": "Europe/Berlin", "replicas": 2},
                ],
            },
            "usd_per_gpu_hour": 2.74,
        }
        found[f"service {runtime}"] = record(lambda args=args: InferenceService("example", args, on_cluster()))
    return found


def boards(recording: Recording) -> Iterator[dict[str, Any]]:
    """The dashboards of a recording."""
    for item in recording.of("ConfigMap"):
        if (item.inputs.get("metadata") or {}).get("labels", {}).get("grafana_dashboard") == "1":
            for text in item.inputs["data"].values():
                yield json.loads(text)


def of_board(board: dict[str, Any]) -> Iterator[Query]:
    name = f"dashboard {board['uid']}"
    for panel in board["panels"]:
        for target in panel.get("targets") or []:
            labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
            yield Query(f"{name}, panel {panel['title']!r}", target["expr"], frozenset([*labels, *_columns(panel)]))
    for variable in board["templating"]["list"]:
        if variable["type"] not in VARIABLE_KINDS:
            match = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"])
            assert match, f"{name}: variable {variable['name']} is no label_values(…)"
            yield Query(f"{name}, variable {variable['name']}", match[1])


def _columns(panel: dict[str, Any]) -> list[str]:
    """Labels that are columns of a table."""
    for step in panel.get("transformations") or []:
        if step["id"] == "organize":
            return [name for name in step["options"]["includeByName"] if not name.startswith("Value")]
    return []


def of_rules(recording: Recording) -> Iterator[Query]:
    for rule in rules(recording):
        texts = " ".join(rule.get("annotations", {}).values())
        shown = frozenset(re.findall(r"\$labels\.(\w+)", texts)) - rule.get("labels", {}).keys()
        yield Query(f"rule {rule.get('alert') or rule['record']}", rule["expr"], shown)


def of_triggers(recording: Recording) -> Iterator[Query]:
    for item in recording.of("ScaledObject"):
        for trigger in item.inputs["spec"]["triggers"]:
            if "query" in trigger["metadata"]:
                where = f"trigger {trigger['name']} of {item.name}"
                yield Query(where, trigger["metadata"]["query"])


def queries(recording: Recording) -> list[Query]:
    """All of a recording."""
    of_boards = [query for board in boards(recording) for query in of_board(board)]
    return [*of_boards, *of_rules(recording), *of_triggers(recording)]


def rules(recording: Recording) -> Iterator[dict[str, Any]]:
    for item in recording.of("PrometheusRule"):
        for group in item.inputs["spec"]["groups"]:
            yield from group["rules"]


def recorded(recording: Recording) -> Iterator[Recorded]:
    """The series that a recording's rules make."""
    for rule in rules(recording):
        if "record" in rule:
            yield Recorded(rule["record"], rule["expr"], frozenset(rule.get("labels", {})))


def anywhere(value: Any, key: str = "") -> Iterator[str]:
    """Every text under one of `KEYS`, at any depth, also in texts that are JSON: what a collector could have missed."""
    if isinstance(value, dict):
        if value.get("type") in VARIABLE_KINDS:
            return
        for name, item in value.items():
            yield from anywhere(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from anywhere(item, key)
    elif isinstance(value, str):
        if key in KEYS:
            yield value
        elif value.lstrip().startswith("{"):
            try:
                yield from anywhere(json.loads(value))
            except json.JSONDecodeError:
                return


def filled(expr: str, namespace: str = ".+", service: str = ".+") -> str:
    """A dashboard's query with the variables of its choosers put in, as Grafana does before it asks."""
    return expr.replace("$namespace", namespace).replace("$service", service)


def names_in(texts: Iterable[str], known: Iterable[str]) -> set[str]:
    """Those of the `known` names that occur in the texts."""
    words = {word for text in texts for word in re.findall(r"[a-zA-Z_:][\w:]*", text)}
    return words & set(known)
