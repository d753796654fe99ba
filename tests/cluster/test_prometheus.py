"""Real Prometheus, configured from PodMonitor and PrometheusRule objects as the operator would."""

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from eks_llm.observe.metrics import SCALED_OBJECT_CONDITION
from embedded.api import Api, Manifest
from embedded.keda import Keda
from embedded.kube_state_metrics import KubeStateMetrics
from embedded.process import PlatformError
from embedded.prometheus import Prometheus, scrape_jobs
from embedded.runner import PodRunner
from tests.cluster.metrics_server import metrics_server
from tests.cluster.test_controlplane import gpu_deployment
from tests.cluster.test_keda import scaled_object

pytestmark = pytest.mark.cluster

EXPORTER = r"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Type", "text/plain; charset=utf-8"); self.end_headers()
        self.wfile.write(b'vllm:num_requests_waiting{model_name="chat"} 14\n')
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8003), Handler).serve_forever()
"""


def monitor(namespace: str, **endpoint: Any) -> Manifest:
    relabelings = [{"targetLabel": "service", "replacement": "chat"}]
    defaults = {"port": "engine-metrics", "interval": "1s", "scrapeTimeout": "1s", "relabelings": relabelings}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": "chat"}},
            "podMetricsEndpoints": [{**defaults, **endpoint}],
        },
    }


def rule(namespace: str) -> Manifest:
    alert = {"alert": "Waiting", "expr": "vllm:num_requests_waiting > 10", "labels": {"severity": "critical"}}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": {"groups": [{"name": "chat", "interval": "1s", "rules": [alert]}]},
    }


def exporter(namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "exporter", "namespace": namespace, "labels": {"app.kubernetes.io/name": "chat"}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"eks-llm.dev/pool": "local"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "server",
                    "image": "exporter",
                    "command": ["python3", "-c", EXPORTER],
                    "ports": [
                        {"name": "http", "containerPort": 8000},
                        {"name": "engine-metrics", "containerPort": 8003},
                    ],
                }
            ],
        },
    }


def ask(prometheus: Prometheus, path: str) -> Any:
    with urllib.request.urlopen(f"{prometheus.url}{path}", timeout=60) as response:
        return json.load(response)["data"]


def series(prometheus: Prometheus, query: str) -> list[Manifest]:
    return ask(prometheus, f"/api/v1/query?query={urllib.parse.quote(query)}")["result"]


def test_a_pod_is_scraped_with_the_operators_labels_and_alerts(
    prometheus: Prometheus, runner: PodRunner, api: Api, namespace: str
) -> None:
    api.apply(exporter(namespace))
    api.apply(monitor(namespace))
    api.apply(rule(namespace))
    (found,) = api.wait("the series", lambda: series(prometheus, "vllm:num_requests_waiting"))
    assert found["value"][1] == "14"
    labels = {key: found["metric"][key] for key in ("namespace", "pod", "container", "endpoint", "job", "service")}
    # Prometheus operator documentation, "PodMonitor": namespace, pod, container, endpoint; job is namespace/name.
    assert labels == {
        "namespace": namespace,
        "pod": "exporter",
        "container": "server",
        "endpoint": "engine-metrics",
        "job": f"{namespace}/chat",
        "service": "chat",
    }
    firing = 'ALERTS{alertname="Waiting",alertstate="firing"}'
    (alert,) = api.wait("the alert", lambda: series(prometheus, firing))
    assert alert["metric"]["severity"] == "critical"

    api.delete(monitor(namespace))
    jobs = lambda: {target["scrapePool"] for target in ask(prometheus, "/api/v1/targets")["activeTargets"]}  # noqa: E731
    api.wait("the job to go", lambda: f"podMonitor/{namespace}/chat/0" not in jobs())


def test_the_state_of_objects_and_of_scalers_is_scraped_with_the_labels_of_its_charts(
    prometheus: Prometheus, kube_state_metrics: KubeStateMetrics, keda: Keda, api: Api, namespace: str
) -> None:
    """Names and labels: kube-state-metrics, `docs/metrics`; KEDA, "Integrate with Prometheus"."""
    with metrics_server() as demand:
        demand.values["waiting"] = 9  # 5 per replica: two
        api.apply(gpu_deployment(namespace, replicas=1))
        api.apply(scaled_object(namespace, demand.url))

        def value(query: str) -> str:
            found = api.wait(query, lambda: series(prometheus, query))
            return found[0]["value"][1]

        hpa = f'{{namespace="{namespace}",horizontalpodautoscaler="keda-hpa-gpu"}}'
        own = f'namespace="{namespace}",deployment="gpu",job="kube-state-metrics"'
        assert value(f"kube_horizontalpodautoscaler_status_desired_replicas{hpa} > 1") == "2"
        assert value(f"kube_horizontalpodautoscaler_status_current_replicas{hpa} > 1") == "2"
        assert value(f"kube_horizontalpodautoscaler_spec_max_replicas{hpa}") == "3"
        assert value(f"kube_deployment_status_replicas_ready{{{own}}} > 1") == "2"
        assert value(f'sum(kube_pod_status_phase{{namespace="{namespace}",phase="Running"}}) > 1') == "2"
        scaler = f'namespace="keda",exported_namespace="{namespace}",scaledObject="gpu"'
        assert value(f"keda_scaler_metrics_value{{{scaler}}}") == "9"
        condition = f'{SCALED_OBJECT_CONDITION}{{namespace="{namespace}",scaledobject="gpu"'
        assert value(f'{condition},type="Ready"}}') == "1"
        assert value(f'{condition},type="Fallback"}}') == "0"


def test_an_invalid_rule_leaves_the_rest_in_force(prometheus: Prometheus, api: Api, namespace: str) -> None:
    bad = rule(namespace)
    bad["spec"]["groups"][0]["rules"][0]["expr"] = "sum(("
    api.apply(bad)
    log = prometheus.plane.home / "logs" / "prometheus-configuration.log"
    api.wait("the refusal", lambda: "Prometheus refuses the configuration" in log.read_text())
    assert series(prometheus, "up")
    api.delete(bad)


def test_what_is_not_emulated_is_refused() -> None:
    with pytest.raises(
        PlatformError, match=r"PodMonitor a/chat: spec.podMetricsEndpoints\[0\]: tlsConfig is not emulat"
    ):
        scrape_jobs(monitor("a", tlsConfig={}), Path("kubeconfig"))
