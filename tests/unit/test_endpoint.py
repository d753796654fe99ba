"""`InferenceService.endpoint` is held to the objects that are registered: it names what is really there."""

from typing import Any

import pytest

from eks_llm import InferenceService
from eks_llm.plan.recorder import Recording, record
from eks_llm.serving.endpoint import Endpoint
from tests.unit.serving import REPOSITORY, on_cluster, service_args

KEYED = {"api_key_secret": "key", "api_key": "not-a-real-one", "client_namespaces": ["team-a"]}
TRITON = {"runtime": "triton", "model_repository": REPOSITORY, "engine": {"loraAdapters": {"sql": "adapters/sql"}}}
BOTH = pytest.mark.parametrize("changes", [KEYED, TRITON], ids=["openai", "triton"])


def made(changes: dict[str, Any]) -> tuple[Recording, Endpoint]:
    services: list[InferenceService] = []
    recording = record(lambda: services.append(InferenceService("llama", service_args(**changes), on_cluster())))
    return recording, services[0].endpoint


@BOTH
def test_names_and_ports_are_those_of_the_services_and_the_network_policy(changes: dict[str, Any]) -> None:
    recording, endpoint = made(changes)
    for child, name in (("llama-service", endpoint.name), ("llama-pods", endpoint.pods_name)):
        found = recording.one("Service", child).inputs
        assert (found["metadata"]["name"], found["metadata"]["namespace"]) == (name, endpoint.namespace)
        ports = {port["name"]: port["port"] for port in found["spec"]["ports"]}
        assert {**endpoint.ports, **endpoint.metrics_ports}.items() <= ports.items()
    clients, prometheus = recording.one("NetworkPolicy").inputs["spec"]["ingress"]
    assert {port["port"] for port in clients["ports"]} == set(endpoint.ports.values())
    assert {port["port"] for port in prometheus["ports"]} == set(endpoint.metrics_ports.values())
    assert clients["from"][0]["podSelector"]["matchLabels"] == endpoint.client_labels
    admitted = [peer["namespaceSelector"]["matchExpressions"][0]["values"] for peer in clients["from"][1:]]
    assert [name for names in admitted for name in names] == list(endpoint.client_namespaces)


@BOTH
def test_pods_and_series_are_told_by_its_labels_and_drain_as_long(changes: dict[str, Any]) -> None:
    recording, endpoint = made(changes)
    template = recording.one("Deployment").inputs["spec"]["template"]
    assert endpoint.pod_labels.items() <= template["metadata"]["labels"].items()
    assert endpoint.drain_s == template["spec"]["terminationGracePeriodSeconds"]
    monitor = recording.one("PodMonitor")
    scraped = monitor.inputs["spec"]["podMetricsEndpoints"]
    assert [item["port"] for item in scraped] == list(endpoint.metrics_ports)
    named = {rule["targetLabel"]: rule["replacement"] for item in scraped for rule in item["relabelings"]}
    assert named.items() <= endpoint.metric_labels.items()


def test_it_names_adapters_and_the_secret_of_the_key() -> None:
    assert made(TRITON)[1].models == ("llama", "sql")
    assert made(TRITON)[1].api_key is None
    recording, endpoint = made(KEYED)
    secret = recording.one("Secret").inputs
    assert endpoint.api_key is not None
    assert secret["metadata"]["name"] == endpoint.api_key.name
    variables = recording.one("Deployment").inputs["spec"]["template"]["spec"]["containers"][0]["env"]
    (reference,) = [item["valueFrom"]["secretKeyRef"] for item in variables if item["name"] == "EKS_LLM_API_KEYS"]
    assert reference == {"name": endpoint.api_key.name, "key": endpoint.api_key.key}


def test_it_is_an_output_in_plain_json() -> None:
    recording, endpoint = made(KEYED)
    outputs = recording.outputs[recording.one("InferenceService").urn]
    assert outputs["url"] == "http://llama.inference.svc:8000"
    assert outputs["endpoint"]["podsHost"] == "llama-pods.inference.svc" == endpoint.pods_host
    assert outputs["endpoint"]["protocols"] == ["openai"]
    assert "not-a-real-one" not in str(outputs)
