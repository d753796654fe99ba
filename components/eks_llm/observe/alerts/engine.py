"""The engine: KV cache, preemptions, requests that hang or fail, pods that cannot be scraped."""

from collections.abc import Iterator

from ...core.timing import STALL_SECONDS
from .. import metrics, thresholds
from ..rules import Alert, Severity, duration
from ..watched import WatchedService


def alerts(of: WatchedService) -> Iterator[Alert]:
    here = of.here
    selector = metrics.selector(*here)
    yield Alert(
        "LLMKVCacheNearlyFull",
        f"max({metrics.KV_USAGE}{{{selector}}}) > {thresholds.KV_CACHE}",
        Severity.WARNING,
        threshold=thresholds.KV_CACHE,
        summary=f"{of.name}: a pod's KV cache is {{{{ $value | humanizePercentage }}}} full",
        description=(
            "Requests will be preempted and computed again. Lower engine.maxNumSeqs or maxModelLen, or add GPUs."
        ),
        fires=f"a pod uses more than {thresholds.KV_CACHE.percent} of its KV cache for a minute",
        meaning=f"A replica has used more than {thresholds.KV_CACHE.percent} of its KV-cache blocks for a minute.",
        impact="The next longer answer preempts another request, which is computed again; new ones wait.",
        after=60,
    )
    preempted, finished = (metrics.rate(name, *here, "10m") for name in (metrics.PREEMPTIONS, metrics.REQUEST_SUCCESS))
    yield Alert(
        "LLMPreemptions",
        f"{preempted} / ({finished} > 0) > {thresholds.PREEMPTIONS}",
        Severity.WARNING,
        threshold=thresholds.PREEMPTIONS,
        summary=f"{of.name}: {{{{ $value | humanizePercentage }}}} of requests are preempted",
        description=(
            "The KV cache is too small for the requests that run at once, so vLLM computes some of them twice. "
            "Lower engine.maxNumSeqs or scaling.kvCacheTarget."
        ),
        fires="more than one preemption per ten requests, for 10 minutes",
        meaning="Over ten minutes there was more than one preemption per ten finished requests.",
        impact=("Preempted requests lose their cache and are computed again: latency rises, and GPU time is wasted."),
        after=600,
    )
    window = duration(STALL_SECONDS + 60)
    tokens = " + ".join(
        f"sum by (pod) (increase({name}{{{selector}}}[{window}]))"
        for name in (metrics.GENERATION_TOKENS, metrics.PROMPT_TOKENS)
    )
    busy = " + ".join(
        f"sum by (pod) (min_over_time({name}{{{selector}}}[{window}]))" for name in (metrics.RUNNING, metrics.WAITING)
    )
    yield Alert(
        "LLMEngineHung",
        f"({busy}) > 0 and on (pod) ({tokens}) == 0",
        Severity.CRITICAL,
        summary=f"{of.name}: {{{{ $labels.pod }}}} holds {{{{ $value }}}} requests and makes no token",
        description=(
            f"The engine hangs, and its watchdog ({STALL_SECONDS} s) has not ended it. Delete the pod; it is replaced."
        ),
        fires="a pod holds requests and makes no token for 3 minutes (the watchdog's 2 and one)",
        meaning=(
            "For three minutes a replica has held requests and has computed no token, neither of a prompt nor of "
            "an answer. The engine's own watchdog should have ended it after two."
        ),
        impact=(
            "Every request on this replica hangs until it times out. The Service still sends it a share of the "
            "new ones."
        ),
        after=60,
    )
    failed = " or ".join((
        f'rate({metrics.HTTP_REQUESTS}{{{selector},status="5xx"}}[5m])',
        f'rate({metrics.TRITON_FAILURE}{{{selector},reason!="CANCELED"}}[5m])',
    ))  # fmt: skip
    asked = " or ".join(
        f"rate({name}{{{selector}}}[5m])"
        for name in (metrics.HTTP_REQUESTS, metrics.TRITON_SUCCESS, metrics.TRITON_FAILURE)
    )
    yield Alert(
        "LLMRequestErrors",
        f"sum({failed}) / (sum({asked}) > 0) > {thresholds.ERRORS}",
        Severity.CRITICAL,
        threshold=thresholds.ERRORS,
        summary=f"{of.name}: {{{{ $value | humanizePercentage }}}} of requests fail",
        description=(
            "The server answers with errors, refusals at its limits included. Look at its log, and at waiting requests."
        ),
        fires=f"more than {thresholds.ERRORS.percent} of requests fail, for 10 minutes",
        meaning=(
            f"Over five minutes, for ten minutes on end, more than {thresholds.ERRORS.percent} of requests failed: "
            "5xx of vLLM's server, or failures of Triton other than cancelled ones. Refusals at "
            "`limits` count, as clients see them."
        ),
        impact="Clients get errors.",
        after=600,
    )
    ready = metrics.pod_selector(*here)
    yield Alert(
        "LLMTargetDown",
        f"max by (pod, endpoint) (up{{{selector}}}) == 0"
        f' and on (pod) max by (pod) ({metrics.POD_READY}{{{ready},condition="true"}}) == 1',
        Severity.WARNING,
        summary=f"{of.name}: {{{{ $labels.pod }}}} serves, but {{{{ $labels.endpoint }}}} cannot be scraped",
        description=(
            "The autoscaler and all alerts miss this pod's requests. Check the NetworkPolicy and the pod's "
            "metrics port."
        ),
        fires="a ready pod cannot be scraped for 3 minutes",
        meaning=(
            "A pod is ready and serves, but Prometheus has not been able to scrape one of its ports for three minutes."
        ),
        impact=(
            "Its requests are missing from the autoscaler's sum, so there may be too few replicas, and from all "
            "alerts and dashboards."
        ),
        after=180,
    )
