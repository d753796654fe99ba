"""How a service is watched: PodMonitor, alerts and a Grafana dashboard, on the names of metrics.py."""

import hashlib
import json
from typing import Any, NotRequired, TypedDict

from pydantic import field_validator

from ..inputs import Duration, Model
from . import metrics
from .workload import Workload

# Arguments ----------------------------------------------------------------------------------------------------------


class SloArgs(TypedDict):
    ttft_p99: NotRequired[str]
    """Time to first token that 99 % of requests must stay below, e.g. `820ms`. Default: no alert."""
    tpot_p99: NotRequired[str]
    """Time per further token of a request, likewise, e.g. `42ms`. Default: no alert."""


LEAST_SLO = 0.001
"""Seconds; faster is no answer of a network."""


class Slo(Model):
    ttft_p99: Duration | None = None
    tpot_p99: Duration | None = None

    @field_validator("ttft_p99", "tpot_p99")
    @classmethod
    def _some_time(cls, value: Duration | None) -> Duration | None:
        if value is not None and value < LEAST_SLO:
            raise ValueError("an SLO is at least 1ms; leave it out for no alert")
        return value


# Builders -----------------------------------------------------------------------------------------------------------

SCRAPE_INTERVAL = "10s"
"""The autoscaler acts on a signal as old as this and its own 15 s."""
WAITING_LIMIT = 10
KV_LIMIT = 0.95


def pod_monitor(work: Workload) -> dict[str, Any]:
    """Scrapes every metrics port of the pods, and names the service on each series."""
    endpoint = {
        "path": "/metrics",
        "interval": SCRAPE_INTERVAL,
        "scrapeTimeout": SCRAPE_INTERVAL,
        "relabelings": [{"targetLabel": metrics.SERVICE_LABEL, "replacement": work.name}],
    }
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": work.metadata(),
        "spec": {
            "selector": {"matchLabels": work.selector},
            "podMetricsEndpoints": [{"port": port, **endpoint} for port in work.server.metrics_ports],
        },
    }


def prometheus_rule(work: Workload, slo: Slo) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": work.metadata(),
        "spec": {"groups": [{"name": f"{work.namespace}.{work.name}", "rules": alerts(work, slo)}]},
    }


def alerts(work: Workload, slo: Slo) -> list[dict[str, Any]]:
    """The alerts of a service; each says what it means and what to do."""
    here = (work.namespace, work.name)
    waiting = metrics.total(metrics.WAITING, *here)
    selector = metrics.selector(*here)
    hpa = metrics.hpa_selector(*here)

    def alert(name: str, expr: str, *, after: str, severity: str, summary: str, todo: str) -> dict[str, Any]:
        return {
            "alert": name,
            "expr": expr,
            "for": after,
            "labels": {"severity": severity, "namespace": work.namespace, "service": work.name},
            "annotations": {"summary": f"{work.name}: {summary}", "description": todo},
        }

    rules = [
        alert(
            "LLMRequestsWaiting",
            f"{waiting} > {WAITING_LIMIT}",
            after="2m",
            severity="critical",
            summary="{{ $value }} requests wait",
            todo="Replicas are full. With LLMAtMaxWithQueue: raise scaling.max and the pool. Else pods are starting.",
        ),
        alert(
            "LLMKVCacheNearlyFull",
            f"max({metrics.KV_USAGE}{{{selector}}}) > {KV_LIMIT}",
            after="1m",
            severity="warning",
            summary="a pod's KV cache is {{ $value | humanizePercentage }} full",
            todo="Requests will be preempted and computed again. Lower engine.maxNumSeqs or maxModelLen, or add GPUs.",
        ),
        alert(
            "LLMAutoscalerBlind",
            f"absent({metrics.WAITING}{{{selector}}}) or absent({metrics.KV_USAGE}{{{selector}}})",
            after="3m",
            severity="critical",
            summary="its metrics are missing",
            todo="No pod is scraped, so KEDA holds the replica count. Check the pods, PodMonitor and NetworkPolicy.",
        ),
        # KEDA's own label `namespace` may be renamed on scraping; names of services are unique in a cluster here.
        alert(
            "LLMScalerFailing",
            f'sum(rate({metrics.KEDA_HTTP_REQUESTS}{{scaled_resource="{work.name}",status_code!~"2.."}}[5m])) > 0',
            after="5m",
            severity="warning",
            summary="KEDA cannot query Prometheus",
            todo="The fallback keeps the current replicas. Check the operator's log and its way to Prometheus.",
        ),
        alert(
            "LLMAtMaxWithQueue",
            f"max({metrics.HPA_DESIRED}{{{hpa}}}) >= max({metrics.HPA_MAX}{{{hpa}}}) and {waiting} > 0",
            after="10m",
            severity="warning",
            summary="all replicas run and {{ $value }} are not enough",
            todo="Raise scaling.max (and the pool's nodes.max), or lower the load.",
        ),
    ]
    for name, limit, metric, key in (
        ("LLMFirstTokenSlow", slo.ttft_p99, metrics.TTFT, "ttftP99"),
        ("LLMTokensSlow", slo.tpot_p99, metrics.TPOT, "tpotP99"),
    ):
        if limit is not None:
            rules.append(
                alert(
                    name,
                    f"{metrics.quantile(0.99, metric, *here)} > {float(limit):g}",
                    after="10m",
                    severity="warning",
                    summary=f"p99 is {{{{ $value | humanizeDuration }}}}, above slo.{key} {limit}",
                    todo="Look at waiting requests, prompt lengths and preemptions on the service's dashboard.",
                )
            )
    return rules


# Dashboard ----------------------------------------------------------------------------------------------------------

PANEL_WIDTH, PANEL_HEIGHT = 12, 8


def dashboard_config_map(work: Workload, slo: Slo) -> dict[str, Any]:
    """A ConfigMap that Grafana's sidecar loads into the folder `LLM serving`."""
    metadata = work.metadata(f"{work.name}-dashboard", annotations={"grafana_folder": "LLM serving"})
    metadata["labels"] = {**work.labels, "grafana_dashboard": "1"}
    text = json.dumps(dashboard(work, slo), indent=1, sort_keys=True)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {f"{work.name}.json": text}}


def dashboard(work: Workload, slo: Slo) -> dict[str, Any]:
    """The dashboard of one service."""
    here = (work.namespace, work.name)
    selector, hpa = metrics.selector(*here), metrics.hpa_selector(*here)
    deployment = f'namespace="{work.namespace}",deployment="{work.name}"'

    def latency(title: str, metric: str, limit: Duration | None = None) -> dict[str, Any]:
        series = {f"p{share * 100:g}": metrics.quantile(share, metric, *here) for share in (0.5, 0.9, 0.99)}
        if limit is not None:
            series["SLO p99"] = f"vector({float(limit):g})"
        return _panel(title, "s", series)

    panels = [
        _panel("Requests", "short", {
            "running": metrics.total(metrics.RUNNING, *here), "waiting": metrics.total(metrics.WAITING, *here),
        }),
        _panel("KV cache in use", "percentunit", {"{{pod}}": f"{metrics.KV_USAGE}{{{selector}}}"}, most=1),
        latency("Time to first token", metrics.TTFT, slo.ttft_p99),
        latency("Time per output token, by request", metrics.TPOT, slo.tpot_p99),
        latency("Gap between tokens", metrics.INTER_TOKEN),
        latency("Whole request", metrics.E2E),
        latency("Time in queue", metrics.QUEUE_TIME),
        _panel("Tokens per second", "short", {
            "prompt": metrics.rate(metrics.PROMPT_TOKENS, *here),
            "generated": metrics.rate(metrics.GENERATION_TOKENS, *here),
        }),
        _panel("Finished requests per second", "reqps", {
            "{{finished_reason}}": metrics.rate(metrics.REQUEST_SUCCESS, *here, by="finished_reason"),
        }),
        _panel("Prefix cache hits", "percentunit", {
            "hits": f"{metrics.rate(metrics.PREFIX_HITS, *here)} / {metrics.rate(metrics.PREFIX_QUERIES, *here)}",
        }, most=1),
        _panel("Preemptions per second", "short", {"preemptions": metrics.rate(metrics.PREEMPTIONS, *here)}),
        _panel("Replicas", "short", {
            "ready": f"max({metrics.DEPLOYMENT_READY}{{{deployment}}})",
            "desired": f"max({metrics.HPA_DESIRED}{{{hpa}}})",
            "max": f"max({metrics.HPA_MAX}{{{hpa}}})",
        }),
    ]  # fmt: skip
    return {
        "uid": "llm-" + hashlib.sha256("/".join(here).encode()).hexdigest()[:16],
        "title": f"LLM {work.name}",
        "tags": ["eks-llm"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "panels": [{**panel, "id": i + 1, "gridPos": _position(i)} for i, panel in enumerate(panels)],
    }


def _panel(title: str, unit: str, series: dict[str, str], most: float | None = None) -> dict[str, Any]:
    datasource = {"type": "prometheus", "uid": "prometheus"}
    limits = {} if most is None else {"max": most}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": datasource,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, **limits}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": datasource, "expr": expr, "legendFormat": legend}
            for i, (legend, expr) in enumerate(series.items())
        ],
    }


def _position(index: int) -> dict[str, int]:
    row, column = divmod(index, 2)
    return {"x": column * PANEL_WIDTH, "y": row * PANEL_HEIGHT, "w": PANEL_WIDTH, "h": PANEL_HEIGHT}
