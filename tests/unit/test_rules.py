"""Recording rules and alerts as the components make them: thresholds from settings, texts, runbooks, documentation.

That each fires and is silent when it should, promtool says: tests/rules/test_rules.py.
"""

import dataclasses
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from eks_llm.core import timing
from eks_llm.core.problems import InvalidArgs
from eks_llm.observe import metrics
from eks_llm.observe.alerts import of_service
from eks_llm.observe.rules import Alert, Severity, duration
from eks_llm.observe.watched import EXAMPLE
from eks_llm.operators.gpu_operator import DCGM_METRICS
from eks_llm.operators.monitoring import Monitoring
from eks_llm.plan.recorder import record
from eks_llm.serving.service import InferenceService
from eks_llm.serving.triton import ENGINE_METRICS_PORT, METRICS_PORT
from eks_llm.serving.workload import HTTP_PORT
from tests.unit.serving import on_cluster, service_args

DOCS = Path(__file__).parents[2] / "docs"
RUNBOOKS = DOCS / "runbooks"
SLO = {"ttftP99": "820ms", "tpotP99": "42ms"}
METRICS_PORTS = {ENGINE_METRICS_PORT, METRICS_PORT, HTTP_PORT}
"""Of Triton with our model, and of vLLM's OpenAI server, which has one port for all."""
WIKI = "https://wiki.example.com/runbooks/"


def alerts(**changes: Any) -> dict[str, dict[str, Any]]:
    """Alerts of a service by name; of two with one name the first."""
    spec = (
        record(lambda: InferenceService("llama", service_args(**changes), on_cluster()))
        .one("PrometheusRule")
        .inputs["spec"]
    )
    found = [rule for group in spec["groups"] for rule in group["rules"] if "alert" in rule]
    return {rule["alert"]: rule for rule in reversed(found)}


def recorded(**changes: Any) -> list[dict[str, Any]]:
    spec = (
        record(lambda: InferenceService("llama", service_args(**changes), on_cluster()))
        .one("PrometheusRule")
        .inputs["spec"]
    )
    return [rule for group in spec["groups"] for rule in group["rules"] if "record" in rule]


def platform_alerts(**changes: Any) -> dict[str, dict[str, Any]]:
    args: Any = {"grafana_admin_password": "x", **changes}
    spec = record(lambda: Monitoring("monitoring", args, on_cluster())).one("PrometheusRule").inputs["spec"]
    return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"]}


def every_alert() -> dict[str, dict[str, Any]]:
    service = alerts(slo=SLO, scaling={"min": 2, "max": 4})
    platform = platform_alerts(capacity_blocks={"a100": "2026-12-14T11:30:00Z"})
    assert not service.keys() & platform.keys()
    return {**service, **platform}


def message(make: Any) -> str:
    with pytest.raises(InvalidArgs) as caught:
        record(make)
    return str(caught.value)


# Thresholds ---------------------------------------------------------------------------------------------------------


def test_queue_and_kv_cache_alerts_are_those_of_the_specification() -> None:
    waiting, cache = alerts()["LLMRequestsWaiting"], alerts()["LLMKVCacheNearlyFull"]
    assert (waiting["expr"].endswith("> 10"), waiting["for"], waiting["labels"]["severity"]) == (True, "2m", "critical")
    assert "vllm:num_requests_waiting" in waiting["expr"]
    assert (cache["expr"].endswith("> 0.95"), cache["for"], cache["labels"]["severity"]) == (True, "1m", "warning")
    assert "vllm:kv_cache_usage_perc" in cache["expr"]


def test_the_minimum_and_the_budget_are_the_policys() -> None:
    found = alerts(scaling={"min": 3, "max": 5})
    assert found["LLMBelowMinimum"]["expr"].endswith("< 3")
    assert "GPU budget of 5 replicas" in found["LLMReplicasAtMax"]["annotations"]["summary"]


def test_what_a_policy_cannot_have_is_not_watched() -> None:
    fixed = alerts(scaling={"min": 1, "max": 1})
    assert "LLMReplicasAtMax" not in fixed  # always at its maximum
    assert "LLMBelowMinimum" not in fixed  # LLMNoReadyReplica is the same
    assert not {name for name in fixed if "SLO" in name or name.endswith("Slow")} - {"LLMPodStartSlow"}


def test_waiting_times_follow_from_the_size_of_the_weights() -> None:
    """2 x 16 GB of Llama-3-8B are 15 GiB, Llama-3.3-70B is 132 GiB in bfloat16; 1 GiB/s to the disk and to the GPU."""
    small = alerts(scaling={"min": 2, "max": 4})
    large = alerts(scaling={"min": 2, "max": 4}, model="llama-3.3-70b-instruct", tensor_parallel=8)
    assert small["LLMBelowMinimum"]["for"] == duration(180 + 2 * 15)
    assert duration(180 + 2 * 131) <= large["LLMBelowMinimum"]["for"] <= duration(180 + 2 * 133)
    # A new node within 30 min, the image within 10, three times the transfer, the engine's own limit.
    assert small["LLMReplicasMissing"]["for"] == duration(1800 + 600 + 45 + 600)
    assert int(large["LLMReplicasMissing"]["for"][:-1]) > int(small["LLMReplicasMissing"]["for"][:-1])


def test_a_node_that_takes_longer_is_waited_for_longer() -> None:
    assert alerts()["LLMPodPending"]["for"] == "30m"
    assert alerts(node_start="25m")["LLMPodPending"]["for"] == duration(1.5 * 25 * 60)


@pytest.mark.parametrize(
    ("target", "edge", "said"),
    [
        ("820ms", "1.0", "counted above 1 s, the nearest edge of vLLM's histogram above 0.82 s"),
        ("1s", "1.0", "counted above 1 s. "),
        ("1001ms", "2.5", "counted above 2.5 s, the nearest edge"),
        ("2560s", "2560.0", "counted above 2560 s. "),
    ],
)
def test_a_miss_is_counted_at_the_nearest_edge_above_the_target(target: str, edge: str, said: str) -> None:
    slo = {"ttftP99": target}
    ratios = [rule["expr"] for rule in recorded(slo=slo) if "slo_errors" in rule["record"]]
    assert len(ratios) == 5
    assert all(f'le="{edge}"' in expr for expr in ratios)
    assert said in alerts(slo=slo)["LLMSLOBurnFast"]["annotations"]["description"]


def test_tokens_have_edges_of_their_own() -> None:
    ratios = [rule["expr"] for rule in recorded(slo={"tpotP99": "42ms"}) if "slo_errors" in rule["record"]]
    assert all("request_time_per_output_token_seconds_bucket" in e and 'le="0.05"' in e for e in ratios)


def test_burn_rates_are_those_of_the_sre_workbook() -> None:
    """Table "Recommended time windows and burn rates" for 99.9 %, here with a budget of 1 %."""
    found = alerts(slo={"ttftP99": "1s"})
    fast = re.findall(r"ratio_rate(\w+)\{[^}]*\} > ([\d.]+)", found["LLMSLOBurnFast"]["expr"])
    slow = re.findall(r"ratio_rate(\w+)\{[^}]*\} > ([\d.]+)", found["LLMSLOBurnSlow"]["expr"])
    assert fast == [("1h", "0.144"), ("5m", "0.144"), ("6h", "0.06"), ("30m", "0.06")]
    assert slow == [("3d", "0.01"), ("6h", "0.01")]


@pytest.mark.parametrize(("key", "value", "end"), [("ttft_p99", "3000s", "2560s"), ("tpot_p99", "81s", "80s")])
def test_a_target_beyond_the_histogram_is_refused(key: str, value: str, end: str) -> None:
    said = message(lambda: InferenceService("llama", service_args(slo={key: value}), on_cluster()))
    assert f"vLLM's histogram ends at {end}, so nothing could alert on a longer time" in said
    assert f"slo.{key}" in said


def test_cost_is_recorded_where_a_price_is_known() -> None:
    assert metrics.SERVICE_COST not in {rule["record"] for rule in recorded()}
    rule = next(rule for rule in recorded(usd_per_gpu_hour=2.74) if rule["record"] == metrics.SERVICE_COST)
    assert "* 2 * 2.74 / 3600" in rule["expr"]  # two GPUs per replica
    said = message(lambda: InferenceService("llama", service_args(usd_per_gpu_hour=0), on_cluster()))
    assert "usd_per_gpu_hour" in said
    assert "greater than 0" in said


def test_a_capacity_block_ends_when_the_stack_file_says() -> None:
    found = platform_alerts(capacity_blocks={"a100": "2026-12-14T11:30:00Z"})
    # date --utc --date 2026-12-14T11:30:00Z +%s
    assert found["CapacityBlockEndsSoon"]["expr"] == "(vector(1797247800) - time() < 86400) > 0"
    assert found["CapacityBlockEnding"]["labels"] == {
        "severity": "critical",
        "namespace": "monitoring",
        "pool": "a100",
    }
    assert "CapacityBlockEnding" not in platform_alerts()


def test_an_end_without_a_zone_is_refused() -> None:
    args: Any = {"grafana_admin_password": "x", "capacity_blocks": {"a100": "2026-12-14T11:30:00"}}
    said = message(lambda: Monitoring("monitoring", args, on_cluster()))
    assert "capacity_blocks.a100" in said
    assert "timezone" in said


# Series -------------------------------------------------------------------------------------------------------------


def test_every_query_of_vllm_metrics_is_of_this_service_alone() -> None:
    for rule in [*alerts(slo=SLO, scaling={"min": 2, "max": 4}).values(), *recorded(slo=SLO, usd_per_gpu_hour=1)]:
        for labels in re.findall(r"\b(?:vllm:|nv_|http_)\w+(\{[^}]*\}|)", rule["expr"]):
            assert labels.startswith('{namespace="inference",service="llama"')


def test_pods_of_a_service_are_told_by_their_name() -> None:
    pattern = re.search(r'pod=~"([^"]+)"', metrics.pod_selector("inference", "llama"))
    assert pattern
    # The names that the Deployment controller gives: hash of the template, five letters.
    assert re.fullmatch(pattern[1], "llama-6d5f7c9b8d-x2k4j")
    assert re.fullmatch(pattern[1], "llama-77c8f9-x2k4j")
    for other in (
        "llama-8b-6d5f7c9b8d-x2k4j",
        "llama-instruct-6d5f7c9b8d-x2k4j",
        "my-llama-6d5f7c9b8d-x2k4j",
        "llama-0",
    ):
        assert not re.fullmatch(pattern[1], other)


def test_every_gpu_metric_of_an_alert_is_exported() -> None:
    text = " ".join(rule["expr"] for rule in platform_alerts().values())
    assert set(re.findall(r"DCGM_\w+", text)) <= {name for name, _, _ in DCGM_METRICS}


def test_kube_state_metrics_may_read_what_tells_of_a_fallback() -> None:
    args: Any = {"grafana_admin_password": "x"}
    releases = record(lambda: Monitoring("monitoring", args, on_cluster())).of("Release")
    values = next(item.inputs["values"] for item in releases if item.inputs["name"] == "kube-prometheus-stack")
    settings = values["kube-state-metrics"]
    (resource,) = settings["customResourceState"]["config"]["spec"]["resources"]
    (metric,) = resource["metrics"]
    # kube-state-metrics puts kube_customresource_ before the names of custom resources.
    assert f"kube_customresource_{metric['name']}" == metrics.SCALED_OBJECT_CONDITION
    assert resource["groupVersionKind"] == {"group": "keda.sh", "version": "v1alpha1", "kind": "ScaledObject"}
    assert {(rule["apiGroups"][0], rule["resources"][0]) for rule in settings["rbac"]["extraRules"]} == {
        ("keda.sh", "scaledobjects"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    }


# Texts and runbooks -------------------------------------------------------------------------------------------------


def test_every_alert_says_what_it_means_what_to_do_and_where_to_read_on() -> None:
    for name, rule in every_alert().items():
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert all(rule["annotations"].values())
        assert rule["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{name}.md")
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
    for rule in alerts(slo=SLO).values():
        assert rule["labels"]["namespace"] == "inference"
        assert rule["labels"]["service"] == "llama"
        assert rule["annotations"]["summary"].startswith("llama: ")


def test_runbooks_may_be_elsewhere() -> None:
    assert alerts(runbooks=WIKI)["LLMEngineHung"]["annotations"]["runbook_url"] == f"{WIKI}LLMEngineHung.md"
    assert platform_alerts(runbooks=WIKI)["KedaDown"]["annotations"]["runbook_url"] == f"{WIKI}KedaDown.md"
    args: Any = {"grafana_admin_password": "x", "runbooks": "wiki/runbooks"}
    said = message(lambda: Monitoring("monitoring", args, on_cluster()))
    assert "runbooks" in said
    assert "not a web address such as https://wiki.example.com/runbooks" in said


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == every_alert().keys()


@pytest.mark.parametrize("name", sorted(every_alert()))
def test_a_page_has_what_somebody_at_night_needs(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n\nSeverity: {every_alert()[name]['labels']['severity']}.")
    sections = ["Meaning", "Impact", "First look", "Causes", "What to do", "Silence"]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == sections
    assert f"amtool silence add alertname={name} " in text
    for linked in re.findall(r"\]\((\w+)\.md\)", text):
        assert (RUNBOOKS / f"{linked}.md").exists()
    for port in re.findall(r"localhost:(\d+)/metrics", text):
        assert int(port) in METRICS_PORTS


def test_pages_say_of_alerts_what_the_alerts_say() -> None:
    """Heads of runbooks, and the tables of all alerts."""
    for page, text in runpy.run_path(str(RUNBOOKS / "build.py"))["pages"]().items():
        assert page.read_text(encoding="utf-8") == text, "run: .venv/bin/python docs/runbooks/build.py"


def test_tables_list_every_alert_that_a_stack_can_have() -> None:
    builder = runpy.run_path(str(RUNBOOKS / "build.py"))
    listed = [alert.name for alert in (*builder["of_a_service"](), *builder["of_the_platform"]())]
    assert sorted(listed) == sorted(every_alert())


def test_words_about_an_alert_hold_for_every_service() -> None:
    """Pages are written once, so they may not say what one service's settings are."""
    other = dataclasses.replace(
        EXAMPLE,
        name="other",
        namespace="elsewhere",
        gpus_per_replica=8,
        min_replicas=3,
        max_replicas=9,
        start=timing.start(weights_gib=130, ending=timing.drain(1200), node_start=3600),
        ttft_p99=2.5,
        tpot_p99=0.3,
    )
    for one, two in zip(of_service(EXAMPLE), of_service(other), strict=True):
        assert (one.name, one.fires, one.meaning, one.impact) == (two.name, two.fires, two.meaning, two.impact)


def test_the_page_names_every_recorded_series() -> None:
    text = (DOCS / "observability.md").read_text()
    for rule in recorded(slo=SLO, usd_per_gpu_hour=1):
        name = rule["record"]
        assert f"`{name}`" in text or f"`…{name.removeprefix('service:llm_slo_errors_per_request:ratio_rate')}`" in text


# Forms --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(30, "30s"), (90, "90s"), (120, "2m"), (5400, "90m"), (7200, "2h"), (172800, "2d"), (0.4, "0s")],
)
def test_durations_are_those_of_prometheus(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_alert_without_a_wait_fires_at_once() -> None:
    assert "for" not in Alert(
        "A", "up == 0", Severity.INFO, summary="s", description="d", fires="f", meaning="m", impact="i"
    ).rule({}, WIKI)
