"""Latency targets of a service.

Burn rates count what is above an edge of vLLM's histogram; the quantile, interpolated, sees what the edge hides.
"""

from collections.abc import Iterator

from .. import metrics, slo
from ..rules import Alert, Severity
from ..thresholds import FAST_BURN, MISSES, Threshold
from ..watched import WatchedService


def alerts(of: WatchedService) -> Iterator[Alert]:
    for target in slo.targets(of):
        yield _slow(of, target)
        yield _burns_fast(of, target)
        yield _burns_slowly(of, target)


def _slow(of: WatchedService, target: slo.Target) -> Alert:
    limit = Threshold(target.limit)
    if target.key == "ttftP99":
        name, fires = "LLMFirstTokenSlow", "p99 of the first token above `slo.ttftP99` for 10 minutes"
        meaning = (
            "The 99th percentile of time to first token, over five minutes, has been above `slo.ttftP99` for ten "
            "minutes. The value is interpolated within a bucket of vLLM's histogram, so it also sees misses that "
            "[LLMSLOBurnFast](LLMSLOBurnFast.md) cannot count."
        )
        impact = "One request in a hundred or more starts later than promised."
    else:
        name, fires = "LLMTokensSlow", "p99 of time per output token above `slo.tpotP99` for 10 minutes"
        meaning = (
            "The 99th percentile of time per output token of a request, over five minutes, has been above "
            "`slo.tpotP99` for ten minutes."
        )
        impact = "Text streams slower than promised."
    return Alert(
        name,
        f"{metrics.quantile(0.99, target.metric, *of.here)} > {limit}",
        Severity.WARNING,
        threshold=limit,
        summary=f"{of.name}: p99 is {{{{ $value | humanizeDuration }}}}, above slo.{target.key} {limit}s",
        description="Look at waiting requests, prompt lengths and preemptions on the service's dashboard.",
        fires=fires,
        meaning=meaning,
        impact=impact,
        after=600,
    )


def _burns_fast(of: WatchedService, target: slo.Target) -> Alert:
    return Alert(
        "LLMSLOBurnFast",
        slo.burning(of, target, *slo.FAST),
        Severity.CRITICAL,
        threshold=FAST_BURN,
        summary=_missed(of, target),
        description=f"A month's misses are used up within days; {_counted(target)}",
        fires=f"misses burn a month's budget at {FAST_BURN} times (1 h and 5 min) or 6 times (6 h and 30 min) the rate",
        meaning=(
            "So many requests miss a latency target that a month's budget (1 % of requests) would be gone within two "
            "to five days: above 14.4 % over the last hour and the last five minutes, or above 6 % over six hours and "
            "thirty minutes. `slo` names the target. A miss is counted at an edge of vLLM's histogram, the nearest at "
            "or above the target; the description names it. Windows with fewer than "
            f"{slo.ENOUGH_REQUESTS} requests do not count."
        ),
        impact="Users notice now. Left alone, the month's target is lost.",
        after=120,
        labels={"slo": target.key},
    )


def _burns_slowly(of: WatchedService, target: slo.Target) -> Alert:
    return Alert(
        "LLMSLOBurnSlow",
        slo.burning(of, target, *slo.SLOW),
        Severity.WARNING,
        threshold=MISSES,
        summary=_missed(of, target),
        description=f"The target will not hold over the month; {_counted(target)}",
        fires="misses burn it faster than it lasts (3 d and 6 h), for an hour",
        meaning=(
            f"Over three days more than {MISSES.percent} of requests missed a latency target, and still do over the "
            "last six hours. `slo` names the target."
        ),
        impact="The target will not hold over 30 days. Nobody has to get up at night for it.",
        after=3600,
        labels={"slo": target.key},
    )


def _missed(of: WatchedService, target: slo.Target) -> str:
    return f"{of.name}: {{{{ $value | humanizePercentage }}}} of requests miss slo.{target.key}, 1% may"


def _counted(target: slo.Target) -> str:
    return f"misses are {target.counted}. Look at waiting requests and replicas first."
