"""Alerts of a service, on the names of metrics.py."""

from typing import Any

from .. import metrics
from .observability import Slo
from .workload import Workload

WAITING_LIMIT = 10
KV_LIMIT = 0.95


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
