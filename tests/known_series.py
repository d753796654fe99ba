"""What exists: the series that servers, operators and nodes export, with their labels, as Prometheus stores them.

Written down from outside: scrapes of the real servers (tests/metrics/*.prom; tests/serving holds running ones to them),
and what the operators' sources register (tests/metrics/operators/). A label that a scrape renames is known by its new
name only.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from eks_llm.operators.gpu_operator import DCGM_METRICS
from eks_llm.operators.monitoring import MonitoringSettings, monitoring_values
from tests.queries import FRONT_DOOR, ROOT

METRICS = ROOT / "tests" / "metrics"
TARGET_LABELS = {"namespace", "pod", "container", "endpoint", "instance", "job", "service"}
"""What the Prometheus operator gives every series of a pod or service that it scrapes; our PodMonitor sets `service`.
Where labels are not honoured, those that a series brings become `exported_…`."""

Known = dict[str, set[str]]
"""Labels by the name of a series, as Prometheus stores it."""


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
