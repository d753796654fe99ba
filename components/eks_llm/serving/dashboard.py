"""The Grafana dashboard of a service, on the names of metrics.py."""

import hashlib
import json
from typing import Any

from .. import metrics
from ..inputs import Duration
from .observability import Slo
from .workload import Workload

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
