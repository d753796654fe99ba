"""Recording rules and alerts, evaluated by the real promtool: each fires when it should, and is silent when not.

The files *.yaml here are promtool's own test files, but for `$NAME` in series, which stands for the labels that a
scrape adds (`LABELS`), and for annotations: of these only the summary is compared, as the others are constant text.
"""

import datetime
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from eks_llm.observe.platform_rules import platform_rules
from eks_llm.plan.recorder import record
from eks_llm.serving.service import InferenceService
from tests.unit.serving import on_cluster, service_args

TESTS = sorted(Path(__file__).parent.glob("*.yaml"))


def _pod(service: str, pod: str, address: str) -> str:
    return (
        f'namespace="inference",service="{service}",job="inference/{service}",pod="{pod}",container="server",'
        f'endpoint="http",instance="{address}:8000",engine="0",model_name="{service}"'
    )


LABELS = {
    # Two replicas of the service `llama`, and one of a service whose name begins alike.
    "A": _pod("llama", "llama-6d5f7c9b8d-x2k4j", "10.20.1.7"),
    "B": _pod("llama", "llama-6d5f7c9b8d-p7q9z", "10.20.1.8"),
    "OTHER": _pod("llama-8b", "llama-8b-7c9d5f6b8d-m4n6v", "10.20.1.9"),
    # What kube-state-metrics and KEDA say of those, with the labels of their own scrape.
    "KSM": 'job="kube-state-metrics",service="kube-prometheus-stack-kube-state-metrics",instance="10.20.0.4:8080"',
    "POD_A": 'namespace="inference",pod="llama-6d5f7c9b8d-x2k4j",uid="6f1c0b5e",job="kube-state-metrics"',
    "POD_B": 'namespace="inference",pod="llama-6d5f7c9b8d-p7q9z",uid="9a2d7c41",job="kube-state-metrics"',
    "POD_OTHER": 'namespace="inference",pod="llama-8b-7c9d5f6b8d-m4n6v",uid="d03b8e77",job="kube-state-metrics"',
    "KEDA": 'namespace="keda",exported_namespace="inference",job="keda-operator",pod="keda-operator-5b8c-x7z2q"',
    "GPU": (
        'gpu="3",UUID="GPU-5fd4a1b2",pci_bus_id="00000000:A0:1C.0",device="nvidia3",modelName="NVIDIA A100-SXM4-40GB",'
        'hostname="ip-10-20-1-7",namespace="gpu-operator",pod="nvidia-dcgm-exporter-t4w8z",job="nvidia-dcgm-exporter"'
    ),
    "AUTOSCALER": 'namespace="kube-system",job="cluster-autoscaler",pod="cluster-autoscaler-7d9f-k2m4p"',
}


def rule_files() -> dict[str, dict[str, Any]]:
    """Rules of a fixed service, of one that may rest, and of the platform."""

    def service(name: str, **changes: Any) -> dict[str, Any]:
        args = service_args(slo={"ttftP99": "820ms", "tpotP99": "42ms"}, **changes)
        return record(lambda: InferenceService(name, args, on_cluster())).one("PrometheusRule").inputs["spec"]

    front_door = {"query": 'sum(rate(envoy_http_downstream_rq_total{service="rest"}[1m]))', "requestsPerReplica": 5}
    block = datetime.datetime(1970, 1, 3, tzinfo=datetime.UTC)  # promtool's clock begins in 1970
    return {
        "llama.yaml": service("llama", scaling={"min": 2, "max": 4}, usd_per_gpu_hour=3.0),
        "rest.yaml": service("rest", scaling={"min": 0, "max": 2, "frontDoor": front_door}),
        "platform.yaml": platform_rules("monitoring", capacity_blocks={"a100": block})["spec"],
    }


def rules(kind: str) -> set[str]:
    """Names of all rules, `alert` or `record`."""
    return {rule[kind] for file in rule_files().values() for g in file["groups"] for rule in g["rules"] if kind in rule}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules and the tests as promtool reads them."""
    path = tmp_path_factory.mktemp("rules")
    for name, content in rule_files().items():
        for rule in (rule for group in content["groups"] for rule in group["rules"]):
            if annotations := rule.get("annotations"):
                rule["annotations"] = {"summary": annotations["summary"]}
        (path / name).write_text(yaml.safe_dump(content))
    for test in TESTS:
        (path / f"test_{test.name}").write_text(Template(test.read_text()).substitute(LABELS))
    return path


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(folder: Path, promtool: Path) -> Run:
    """Runs promtool where the rules are."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [promtool, *arguments]
        return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=600)

    return run


@pytest.mark.parametrize("name", [test.name for test in TESTS])
def test_rules(run: Run, name: str) -> None:
    done = run("test", "rules", f"test_{name}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_expectation_fails(folder: Path, run: Run) -> None:
    text = (folder / "test_service_demand.yaml").read_text()
    (folder / "wrong.yaml").write_text(text.replace("llama: 12 requests wait", "llama: 13 requests wait"))
    done = run("test", "rules", "wrong.yaml")
    assert done.returncode != 0
    assert "llama: 13 requests wait" in done.stdout + done.stderr


def test_every_query_parses(run: Run) -> None:
    done = run("check", "rules", *rule_files())
    assert done.returncode == 0, done.stdout + done.stderr


# Nothing is left untested -------------------------------------------------------------------------------------------


def cases() -> list[dict[str, Any]]:
    return [case for test in TESTS for case in yaml.safe_load(test.read_text())["tests"]]


def test_every_alert_has_a_firing_and_a_silent_case() -> None:
    tested = [item for case in cases() for item in case.get("alert_rule_test", [])]
    firing = {item["alertname"] for item in tested if item["exp_alerts"]}
    silent = {item["alertname"] for item in tested if not item["exp_alerts"]}
    assert firing == rules("alert")
    assert silent == rules("alert")


def test_every_recorded_series_has_a_case() -> None:
    expressions = [item["expr"] for case in cases() for item in case.get("promql_expr_test", []) if item["exp_samples"]]
    assert {name for text in expressions for name in re.findall(r"service:\w+:\w+", text)} == rules("record")
