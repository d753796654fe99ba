"""Metrics of a service: scraped where they are served, by names that exist, in alerts."""

import re
from typing import Any

import pytest

from eks_llm import metrics
from eks_llm.plan.recorder import Recording, record
from eks_llm.serving.service import InferenceService
from tests.unit.serving import REPOSITORY, service_args

# vLLM 0.27.1 and 0.32.0, vllm/v1/metrics/loggers.py; prometheus_client adds _total, _bucket.
VLLM_NAMES = {
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "num_preemptions_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "request_success_total",
    "time_to_first_token_seconds_bucket",
    "inter_token_latency_seconds_bucket",
    "request_time_per_output_token_seconds_bucket",
    "e2e_request_latency_seconds_bucket",
    "request_queue_time_seconds_bucket",
}


def run(**changes: Any) -> Recording:
    return record(lambda: InferenceService("llama", service_args(**changes)))


def rules(**changes: Any) -> dict[str, dict[str, Any]]:
    groups = run(**changes).one("PrometheusRule").inputs["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def expressions() -> list[str]:
    slo = {"ttftP99": "820ms", "tpotP99": "42ms"}
    return [rule["expr"] for rule in rules(slo=slo).values()]


# Scraping -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "ports"),
    [
        ({"runtime": "openai"}, {"http": 8000}),
        ({"runtime": "triton", "model_repository": REPOSITORY}, {"engine-metrics": 8003, "metrics": 8002}),
    ],
)
def test_prometheus_scrapes_declared_ports_of_the_services_own_pods(
    runtime: dict[str, Any], ports: dict[str, int]
) -> None:
    recording = run(**runtime)
    monitor = recording.one("PodMonitor").inputs["spec"]
    template = recording.one("Deployment").inputs["spec"]["template"]
    declared = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    assert {e["port"]: declared[e["port"]] for e in monitor["podMetricsEndpoints"]} == ports
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_a_scrape_never_takes_longer_than_its_interval() -> None:
    for endpoint in run().one("PodMonitor").inputs["spec"]["podMetricsEndpoints"]:  # the operator refuses more
        assert int(endpoint["scrapeTimeout"][:-1]) <= int(endpoint["interval"][:-1])


def test_series_carry_the_label_that_queries_select_by() -> None:
    endpoint = run().one("PodMonitor").inputs["spec"]["podMetricsEndpoints"][0]
    assert endpoint["relabelings"] == [{"targetLabel": metrics.SERVICE_LABEL, "replacement": "llama"}]


# Names --------------------------------------------------------------------------------------------------------------


def test_every_name_is_one_that_vllm_exports() -> None:
    used = {name for text in expressions() for name in re.findall(r"vllm:(\w+)", text)}
    assert used <= VLLM_NAMES


def test_every_query_of_vllm_metrics_is_of_this_service_alone() -> None:
    for text in expressions():
        selectors = re.findall(r"vllm:\w+(\{[^}]*\})?", text)
        assert set(selectors) <= {'{namespace="inference",service="llama"}'}


# Alerts -------------------------------------------------------------------------------------------------------------


def test_queue_and_kv_cache_alerts_are_those_of_the_specification() -> None:
    waiting, cache = rules()["LLMRequestsWaiting"], rules()["LLMKVCacheNearlyFull"]
    assert (waiting["expr"].endswith("> 10"), waiting["for"], waiting["labels"]["severity"]) == (True, "2m", "critical")
    assert "vllm:num_requests_waiting" in waiting["expr"]
    assert (cache["expr"].endswith("> 0.95"), cache["for"], cache["labels"]["severity"]) == (True, "1m", "warning")
    assert "vllm:kv_cache_usage_perc" in cache["expr"]


def test_somebody_hears_when_the_autoscaler_is_blind_or_at_its_end() -> None:
    found = rules()
    assert "absent(" in found["LLMAutoscalerBlind"]["expr"]
    assert 'status_code!~"2.."' in found["LLMScalerFailing"]["expr"]
    # KEDA names the HPA keda-hpa-<ScaledObject>.
    assert 'horizontalpodautoscaler="keda-hpa-llama"' in found["LLMAtMaxWithQueue"]["expr"]


def test_latency_targets_become_alerts_in_seconds() -> None:
    found = rules(slo={"ttftP99": "820ms"})
    assert found["LLMFirstTokenSlow"]["expr"].endswith("> 0.82")
    assert "LLMTokensSlow" not in found


def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    for rule in rules(slo={"ttftP99": "820ms", "tpotP99": "42ms"}).values():
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning")
