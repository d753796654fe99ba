"""The dashboard to open first: every service against its targets."""

from .. import metrics, thresholds
from .panels import CHOSEN, Board, Figure, Graph, Rows, Table

UID = "llm-overview"
FIRING = f'{metrics.ALERTS}{{alertstate="firing",severity=~"critical|warning"}}'


def _recorded(series: str, more: str = "") -> str:
    return f"max by (namespace, service) ({series}{{{CHOSEN}{more}}})"


def _missed(window: str) -> dict[str, str]:
    return {"{{service}} {{slo}}": f"max by (service, slo) ({metrics.slo_errors(window)}{{{CHOSEN}}})"}


PODS = f'{metrics.UP}{{{CHOSEN},job=~"$namespace/$service"}}'
ROWS: Rows = {
    "Now": [
        Figure(
            "Alerts that fire",
            "short",
            f"count({FIRING}) or vector(0)",
            worse=(1, 1),
            look="They are listed below; each has a runbook.",
        ),
        Figure(
            "Worst attainment, 1h",
            "percentunit",
            f"1 - max({metrics.slo_errors('1h')}{{{CHOSEN}}})",
            worse=(0.99, 0.97),
            decimals=2,
            look="Share of requests within their latency target, of the worst service. The target is 99 %.",
        ),
        Figure(
            "Running", "short", f"sum({metrics.SERVICE_RUNNING}{{{CHOSEN}}})", look="Requests that engines work on."
        ),
        Figure(
            "Waiting",
            "short",
            f"sum({metrics.SERVICE_WAITING}{{{CHOSEN}}})",
            worse=(1, thresholds.WAITING),
            alerts=("LLMRequestsWaiting",),
            look="Requests that no engine has room for.",
        ),
        Figure(
            "Generated tokens",
            "short",
            f"sum({metrics.SERVICE_GENERATION_TOKENS}{{{CHOSEN}}})",
            decimals=0,
            look="Per second, all services.",
        ),
        Figure(
            "Pods not scraped",
            "short",
            f"count({PODS} == 0) or vector(0)",
            worse=(1, 2),
            look="Pods whose metrics Prometheus cannot read, those that start included. The autoscaler does "
            "not see them either.",
            alerts=("LLMAutoscalerBlind",),
        ),
    ],
    "Services": [
        Table(
            "Every service",
            {
                "First token p99": ("s", _recorded(metrics.SERVICE_TTFT, ',quantile="0.99"')),
                "Per token p99": ("s", _recorded(metrics.SERVICE_TPOT, ',quantile="0.99"')),
                "Missed, 1h": ("percentunit", _recorded(metrics.slo_errors("1h"))),
                "Missed, 3d": ("percentunit", _recorded(metrics.slo_errors("3d"))),
                "Running": ("short", _recorded(metrics.SERVICE_RUNNING)),
                "Waiting": ("short", _recorded(metrics.SERVICE_WAITING)),
                "KV cache": ("percentunit", _recorded(metrics.SERVICE_KV_USAGE)),
                "Tokens/s": ("short", _recorded(metrics.SERVICE_GENERATION_TOKENS)),
                "USD per 1M tokens": ("currencyUSD", _recorded(metrics.SERVICE_COST)),
            },
            by=("namespace", "service"),
            look="Latencies of the last five minutes; Missed: share of requests beyond a target, at most 1 %. The "
            "dashboard of a service, in the list at the top right, says more.",
        ),
        Table(
            "Alerts that fire",
            {
                "Series": ("short", f"count by (alertname, severity, namespace, service) ({FIRING})"),
            },
            by=("alertname", "severity", "namespace", "service"),
            look="Empty is good. docs/runbooks/ has a page named like each alert.",
        ),
    ],
    "Targets": [
        Graph(
            "Attainment, 1h",
            "percentunit",
            {"{{service}} {{slo}}": f"1 - max by (service, slo) ({metrics.slo_errors('1h')}{{{CHOSEN}}})"},
            most=1,
            look="Share of requests within the target, which is 99 %. Services without a target are not "
            "here: set slo.ttftP99 and slo.tpotP99.",
        ),
        Graph(
            "Missed, 5m",
            "percentunit",
            _missed("5m"),
            limit=thresholds.MISSES,
            alerts=("LLMSLOBurnSlow",),
            look="The newest view: where a problem starts and ends. Above the red line the budget shrinks.",
        ),
        Graph(
            "Burn rate",
            "short",
            {
                f"{{{{service}}}} {{{{slo}}}} {window}": "max by (service, slo) "
                f"({metrics.slo_errors(window)}{{{CHOSEN}}}) / {thresholds.MISSES}"
                for window in ("1h", "6h")
            },
            limit=thresholds.FAST_BURN,
            alerts=("LLMSLOBurnFast", "LLMSLOBurnSlow"),
            look="How many times faster than allowed the budget is spent. At 1 it lasts the month; 14.4 for an "
            "hour (the red line) spends 2 % of it and pages; 6 for six hours spends 5 %.",
        ),
        Graph(
            "Time to first token, p99",
            "s",
            {"{{service}}": f'max by (service) ({metrics.SERVICE_TTFT}{{{CHOSEN},quantile="0.99"}})'},
            alerts=("LLMFirstTokenSlow",),
            look="One service alone: its load. All at once: nodes or network.",
        ),
        Graph(
            "Time per output token, p99",
            "s",
            {"{{service}}": f'max by (service) ({metrics.SERVICE_TPOT}{{{CHOSEN},quantile="0.99"}})'},
            alerts=("LLMTokensSlow",),
            look="Grows with the batch. A jump without load: a slow or hot GPU.",
        ),
        Graph(
            "KV cache, fullest pod",
            "percentunit",
            {"{{service}}": f"max by (service) ({metrics.SERVICE_KV_USAGE}{{{CHOSEN}}})"},
            most=1,
            limit=thresholds.KV_CACHE,
            alerts=("LLMKVCacheNearlyFull",),
            look="At 100 % requests are preempted and computed again.",
        ),
    ],
    "Load": [
        Graph(
            "Waiting requests",
            "short",
            {"{{service}}": f"sum by (service) ({metrics.SERVICE_WAITING}{{{CHOSEN}}})"},
            stacked=True,
            limit=thresholds.WAITING,
            alerts=("LLMRequestsWaiting",),
            look="A hill while pods start is normal; a plateau is not.",
        ),
        Graph(
            "Running requests",
            "short",
            {"{{service}}": f"sum by (service) ({metrics.SERVICE_RUNNING}{{{CHOSEN}}})"},
            stacked=True,
            look="Flat at the top while others wait: engine.maxNumSeqs or the KV cache is the limit.",
        ),
        Graph(
            "Generated tokens per second",
            "short",
            {"{{service}}": f"sum by (service) ({metrics.SERVICE_GENERATION_TOKENS}{{{CHOSEN}}})"},
            stacked=True,
            look="What the platform is there for.",
        ),
    ],
}
OVERVIEW = Board(
    UID, "LLM overview", "All services against their latency targets. Start here.", ROWS, services_of=metrics.RUNNING
)
