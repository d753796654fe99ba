"""The dashboard to open first: every service against its targets."""

from typing import Any

from .. import metrics
from ..rules import RUNBOOKS
from .panels import CHOSEN, MISSES_ALLOWED, board, figure, graph, listing, variables

UID = "llm-overview"
FIRING = f'{metrics.ALERTS}{{alertstate="firing",severity=~"critical|warning"}}'


def overview(runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """The dashboard as JSON. `runbooks`: the web address of docs/runbooks/."""

    def recorded(series: str, more: str = "") -> str:
        return f"max by (namespace, service) ({series}{{{CHOSEN}{more}}})"

    def missed(window: str) -> dict[str, str]:
        return {"{{service}} {{slo}}": f"max by (service, slo) ({metrics.slo_errors(window)}{{{CHOSEN}}})"}

    pods = f'{metrics.UP}{{{CHOSEN},job=~"$namespace/$service"}}'
    groups = {
        "Now": [
            figure("Alerts that fire", "short",
                   f"count({FIRING}) or vector(0)", worse=(1, 1), look="They are listed below; each has a runbook."),
            figure("Worst attainment, 1h", "percentunit", f"1 - max({metrics.slo_errors('1h')}{{{CHOSEN}}})",
                   worse=(0.99, 0.97), decimals=2,
                   look="Share of requests within their latency target, of the worst service. The target is 99 %."),
            figure("Running", "short", f"sum({metrics.SERVICE_RUNNING}{{{CHOSEN}}})",
                   look="Requests that engines work on."),
            figure("Waiting", "short", f"sum({metrics.SERVICE_WAITING}{{{CHOSEN}}})", worse=(1, 10),
                   look="Requests that no engine has room for."),
            figure("Generated tokens", "short", f"sum({metrics.SERVICE_GENERATION_TOKENS}{{{CHOSEN}}})", decimals=0,
                   look="Per second, all services."),
            figure("Pods not scraped", "short", f"count({pods} == 0) or vector(0)", worse=(1, 2),
                   look="Pods whose metrics Prometheus cannot read, those that start included. The autoscaler does "
                   "not see them either.",
                   alerts=("LLMAutoscalerBlind",)),
        ],
        "Services": [
            listing("Every service", {
                "First token p99": ("s", recorded(metrics.SERVICE_TTFT, ',quantile="0.99"')),
                "Per token p99": ("s", recorded(metrics.SERVICE_TPOT, ',quantile="0.99"')),
                "Missed, 1h": ("percentunit", recorded(metrics.slo_errors("1h"))),
                "Missed, 3d": ("percentunit", recorded(metrics.slo_errors("3d"))),
                "Running": ("short", recorded(metrics.SERVICE_RUNNING)),
                "Waiting": ("short", recorded(metrics.SERVICE_WAITING)),
                "KV cache": ("percentunit", recorded(metrics.SERVICE_KV_USAGE)),
                "Tokens/s": ("short", recorded(metrics.SERVICE_GENERATION_TOKENS)),
                "USD per 1M tokens": ("currencyUSD", recorded(metrics.SERVICE_COST)),
            }, by=("namespace", "service"),
                look="Latencies of the last five minutes; Missed: share of requests beyond a target, at most 1 %. The "
                "dashboard of a service, in the list at the top right, says more."),
            listing("Alerts that fire", {
                "Series": ("short", f"count by (alertname, severity, namespace, service) ({FIRING})"),
            }, by=("alertname", "severity", "namespace", "service"),
                look="Empty is good. docs/runbooks/ has a page named like each alert."),
        ],
        "Targets": [
            graph("Attainment, 1h", "percentunit",
                  {"{{service}} {{slo}}": f"1 - max by (service, slo) ({metrics.slo_errors('1h')}{{{CHOSEN}}})"},
                  most=1, look="Share of requests within the target, which is 99 %. Services without a target are not "
                  "here: set slo.ttftP99 and slo.tpotP99."),
            graph("Missed, 5m", "percentunit", missed("5m"), limit=MISSES_ALLOWED,
                  look="The newest view: where a problem starts and ends. Above the red line the budget shrinks."),
            graph("Burn rate", "short", {
                f"{{{{service}}}} {{{{slo}}}} {window}":
                f"max by (service, slo) ({metrics.slo_errors(window)}{{{CHOSEN}}}) / {MISSES_ALLOWED:g}"
                for window in ("1h", "6h")
            }, limit=14.4, alerts=("LLMSLOBurnFast", "LLMSLOBurnSlow"),
                  look="How many times faster than allowed the budget is spent. At 1 it lasts the month; 14.4 for an "
                  "hour (the red line) spends 2 % of it and pages; 6 for six hours spends 5 %."),
            graph("Time to first token, p99", "s",
                  {"{{service}}": f'max by (service) ({metrics.SERVICE_TTFT}{{{CHOSEN},quantile="0.99"}})'},
                  alerts=("LLMFirstTokenSlow",), look="One service alone: its load. All at once: nodes or network."),
            graph("Time per output token, p99", "s",
                  {"{{service}}": f'max by (service) ({metrics.SERVICE_TPOT}{{{CHOSEN},quantile="0.99"}})'},
                  alerts=("LLMTokensSlow",), look="Grows with the batch. A jump without load: a slow or hot GPU."),
            graph("KV cache, fullest pod", "percentunit",
                  {"{{service}}": f"max by (service) ({metrics.SERVICE_KV_USAGE}{{{CHOSEN}}})"}, most=1, limit=0.95,
                  alerts=("LLMKVCacheNearlyFull",), look="At 100 % requests are preempted and computed again."),
        ],
        "Load": [
            graph("Waiting requests", "short",
                  {"{{service}}": f"sum by (service) ({metrics.SERVICE_WAITING}{{{CHOSEN}}})"}, stacked=True, limit=10,
                  alerts=("LLMRequestsWaiting",), look="A hill while pods start is normal; a plateau is not."),
            graph("Running requests", "short",
                  {"{{service}}": f"sum by (service) ({metrics.SERVICE_RUNNING}{{{CHOSEN}}})"}, stacked=True,
                  look="Flat at the top while others wait: engine.maxNumSeqs or the KV cache is the limit."),
            graph("Generated tokens per second", "short",
                  {"{{service}}": f"sum by (service) ({metrics.SERVICE_GENERATION_TOKENS}{{{CHOSEN}}})"}, stacked=True,
                  look="What the platform is there for."),
        ],
    }  # fmt: skip
    return board(
        UID,
        "LLM overview",
        "All services against their latency targets. Start here.",
        groups,
        variables(metrics.RUNNING),
        runbooks,
    )
