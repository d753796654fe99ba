"""Metrics of a service: scraped where they are served, and named after it."""

from typing import Any

import pytest

from eks_llm.observe import metrics
from eks_llm.plan.recorder import Recording, record
from eks_llm.serving.service import InferenceService
from tests.unit.serving import REPOSITORY, on_cluster, service_args


def run(**changes: Any) -> Recording:
    return record(lambda: InferenceService("llama", service_args(**changes), on_cluster()))


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
