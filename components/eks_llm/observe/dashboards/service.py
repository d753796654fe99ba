"""The dashboard of one service: does it keep its promise, and if not, where the time goes."""

import hashlib
from collections.abc import Mapping

from .. import metrics, thresholds
from ..watched import WatchedService
from .panels import Board, Figure, Graph, Panel

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def uid(namespace: str, name: str) -> str:
    """Grafana's name of the dashboard, the same in every stack: 20 characters of the 40 that it allows."""
    return "llm-" + hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:16]


def service(of: WatchedService) -> Board:
    return Board(
        uid(*of.here),
        f"LLM service {of.name}",
        f"Service {of.name} in namespace {of.namespace}: latency against its targets, load, KV cache and replicas.",
        {
            "Now": _now(of),
            "Latency": _latency(of),
            "Load": _load(of),
            "KV cache": _kv_cache(of),
            "Replicas": _replicas(of),
        },
    )


def _now(of: WatchedService) -> list[Panel]:
    here = of.here
    select = metrics.selector(*here)
    return [
        Figure(
            "Running",
            "short",
            metrics.total(metrics.RUNNING, *here),
            look="Requests that the engines work on, over all pods.",
        ),
        Figure(
            "Waiting",
            "short",
            metrics.total(metrics.WAITING, *here),
            worse=(1, thresholds.WAITING),
            look="Requests that no engine has room for. More than a few for minutes: replicas are missing.",
            alerts=("LLMRequestsWaiting",),
        ),
        Figure("Ready replicas", "short", _ready(of), look="Pods that answer. Compare with desired in Replicas below."),
        Figure(
            "First token, p99",
            "s",
            metrics.quantile(0.99, metrics.TTFT, *here),
            look="Of the last five minutes. Long while Waiting is 0: long prompts; else the queue.",
            worse=(0.8 * of.ttft_p99, of.ttft_p99) if of.ttft_p99 else None,
            alerts=("LLMFirstTokenSlow",) if of.ttft_p99 else (),
        ),
        Figure(
            "Generated tokens",
            "short",
            metrics.rate(metrics.GENERATION_TOKENS, *here),
            decimals=0,
            look="Per second, over all pods. Falls at full load when requests are preempted.",
        ),
        Figure(
            "USD per 1M output tokens",
            "currencyUSD",
            f"max({metrics.SERVICE_COST}{{{select}}})",
            decimals=2,
            look="Of the GPUs that the replicas hold, over the last hour. High at night: replicas idle. Empty "
            "where no price of the GPU is known.",
        ),
    ]


def _latency(of: WatchedService) -> list[Panel]:
    return [
        Graph(
            "Time to first token",
            "s",
            _shares(of, metrics.TTFT),
            "p99 above the red line breaks the target. Compare with Time in queue: the rest is the prompt.",
            limit=of.ttft_p99,
            alerts=("LLMFirstTokenSlow",) if of.ttft_p99 else (),
        ),
        Graph(
            "Time per output token, by request",
            "s",
            _shares(of, metrics.TPOT),
            "Rises with the number of running requests: batches grow. Above the red line: lower "
            "engine.maxNumSeqs or scaling.inFlightPerReplica.",
            limit=of.tpot_p99,
            alerts=("LLMTokensSlow",) if of.tpot_p99 else (),
        ),
        Graph(
            "Gap between tokens",
            "s",
            _shares(of, metrics.INTER_TOKEN),
            "What readers of a stream see. p99 far above p50: long prompts or preemptions stall the others.",
        ),
        Graph(
            "Time in queue",
            "s",
            _shares(of, metrics.QUEUE_TIME),
            "Until an engine takes a request. Anything beyond a step of the engine is a missing replica.",
        ),
        Graph(
            "Prompt processing",
            "s",
            _shares(of, metrics.PREFILL_TIME),
            "From the queue to the first token. Grows with prompt length; falls with prefix cache hits.",
        ),
        Graph(
            "Whole request",
            "s",
            _shares(of, metrics.E2E),
            "Grows with the length of answers: read it beside Answer length.",
        ),
        *_misses(of),
    ]


def _load(of: WatchedService) -> list[Panel]:
    here = of.here
    select = metrics.selector(*here)
    return [
        Graph(
            "Requests",
            "short",
            {"running": metrics.total(metrics.RUNNING, *here), "waiting": metrics.total(metrics.WAITING, *here)},
            stacked=True,
            alerts=("LLMRequestsWaiting",),
            look="The sum is what scaling follows. Waiting grows while pods start; after that it must fall.",
        ),
        Graph(
            "Requests per replica",
            "short",
            {"running and waiting": f"({metrics.demand(*here)}) / {_ready(of)}"},
            limit=of.in_flight,
            look="Scaling aims at the red line (scaling.inFlightPerReplica). Above it for longer than a pod's "
            "start: at scaling.max, or no GPU is free.",
        ),
        Graph(
            "Why requests wait",
            "short",
            {"{{reason}}": f"sum by (reason) ({metrics.WAITING_BY_REASON}{{{select}}})"},
            stacked=True,
            look="capacity: no room in the batch or the KV cache. deferred: held back by a constraint, such as "
            "a grammar or an adapter that loads; more replicas do not help.",
        ),
        Graph(
            "Tokens per second",
            "short",
            {
                "prompt": metrics.rate(metrics.PROMPT_TOKENS, *here),
                "generated": metrics.rate(metrics.GENERATION_TOKENS, *here),
            },
            look="A flat top under load is the capacity of the replicas.",
        ),
        Graph(
            "Finished requests per second",
            "reqps",
            {"{{finished_reason}}": metrics.rate(metrics.REQUEST_SUCCESS, *here, by="finished_reason")},
            stacked=True,
            look="stop: the model ended. length: cut at max_tokens. abort: the client left or a limit ended it; "
            "many of them mean that answers come too late. error: see the pod's log.",
        ),
        Graph(
            "Prompt length, tokens",
            "short",
            _shares(of, metrics.PROMPT_LENGTH),
            "A change here explains most changes of latency.",
        ),
        Graph(
            "Answer length, tokens",
            "short",
            _shares(of, metrics.ANSWER_LENGTH),
            "Longer answers hold the KV cache for longer.",
        ),
    ]


def _kv_cache(of: WatchedService) -> list[Panel]:
    here = of.here
    select = metrics.selector(*here)
    return [
        Graph(
            "KV cache in use, by pod",
            "percentunit",
            {"{{pod}}": f"{metrics.KV_USAGE}{{{select}}}"},
            most=1,
            limit=of.kv_cache_target,
            alerts=("LLMKVCacheNearlyFull",),
            look="Scaling aims at the red line (scaling.kvCacheTarget). At 100 % requests are preempted. Pods "
            "far apart: the load is not spread.",
        ),
        Graph(
            "Preemptions per second",
            "short",
            {"preemptions": metrics.rate(metrics.PREEMPTIONS, *here)},
            alerts=("LLMPreemptions",),
            look="Each throws away the KV cache of a request, which is then computed again. Should be 0: lower "
            "engine.maxNumSeqs or maxModelLen, or add replicas.",
        ),
        Graph(
            "Prefix cache hits",
            "percentunit",
            {
                "of prompt tokens": f"{metrics.rate(metrics.PREFIX_HITS, *here)} / "
                f"{metrics.rate(metrics.PREFIX_QUERIES, *here)}",
            },
            most=1,
            look="Share of prompt tokens that need no computing. Falls when prompts stop sharing a "
            "beginning, or when the cache is too small for all of them.",
        ),
    ]


def _replicas(of: WatchedService) -> list[Panel]:
    here = of.here
    pods = metrics.pod_selector(*here)
    hpa = metrics.hpa_selector(*here)
    return [
        Graph(
            "Replicas",
            "short",
            {
                "ready": _ready(of),
                "desired": f"max({metrics.HPA_DESIRED}{{{hpa}}})",
                "max": f"max({metrics.HPA_MAX}{{{hpa}}})",
            },
            alerts=("LLMAtMaxWithQueue", "LLMReplicasMissing"),
            look="ready below desired for longer than a pod's start: see the dashboard Cold start. desired at "
            "max with requests waiting: raise scaling.max and the pool.",
        ),
        Graph(
            "Restarts in an hour",
            "short",
            {"{{pod}} {{container}}": f"increase({metrics.RESTARTS}{{{pods}}}[1h]) > 0"},
            alerts=("LLMPodRestarts", "LLMPodOOMKilled"),
            look="Empty is good. The container's last state says why: `kubectl describe pod`.",
        ),
        Graph(
            "Memory of the server, of its limit",
            "percentunit",
            {
                "{{pod}}": f'max by (pod) ({metrics.MEMORY_WORKING_SET}{{{pods},container="server"}}) / '
                f'max by (pod) ({metrics.POD_LIMITS}{{{pods},container="server",resource="memory"}})',
            },
            most=1,
            look="Near 100 % the kernel ends the server. It rises while weights load through page cache, "
            "which counts here and is given back.",
        ),
        Graph(
            "GPUs busy, by pod",
            "percent",
            {"{{exported_pod}}": f"avg by (exported_pod) ({metrics.GPU_UTILISATION}{{{_of_gpus(*here)}}})"},
            most=100,
            alerts=("LLMEngineHung",),
            look="Time with a kernel running: high does not mean fast. Near 0 while requests run: the engine "
            "hangs or waits for the CPU.",
        ),
    ]


def _misses(of: WatchedService) -> list[Panel]:
    """Nothing for a service without targets."""
    select = metrics.selector(*of.here)
    errors = {
        f"{slo} {window}": f'max({metrics.slo_errors(window)}{{{select},slo="{slo}"}})'
        for slo, _ in of.targets()
        for window in ("5m", "1h")
    }
    graph = Graph(
        "Requests that miss a target",
        "percentunit",
        errors,
        look="A target for p99 allows 1 % to miss it (the red line). A short spike spends little of a month's budget; "
        "the 1h line above 14 % spends 2 % of it in that hour.",
        limit=thresholds.MISSES,
        alerts=("LLMSLOBurnFast", "LLMSLOBurnSlow"),
    )
    return [graph] if errors else []


def _ready(of: WatchedService) -> str:
    return f"max({metrics.DEPLOYMENT_READY}{{{metrics.deployment_selector(*of.here)}}})"


def _shares(of: WatchedService, histogram: str) -> Mapping[str, str]:
    """Quantiles of a histogram by their names."""
    return {label: metrics.quantile(share, histogram, *of.here) for label, share in SHARES.items()}


def _of_gpus(namespace: str, name: str) -> str:
    """Label matchers of a service's pods on GPU series, which name the pod that has the GPU as `exported_…`."""
    return (
        metrics.pod_selector(namespace, name)
        .replace("namespace=", "exported_namespace=")
        .replace("pod=~", "exported_pod=~")
    )
