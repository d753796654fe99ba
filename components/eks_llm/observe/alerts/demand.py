"""More demand than replicas."""

from collections.abc import Iterator

from .. import metrics, thresholds
from ..rules import Alert, Severity
from ..watched import WatchedService

AT_MAX_SECONDS = 1800


def alerts(of: WatchedService) -> Iterator[Alert]:
    here = of.here
    waiting = metrics.total(metrics.WAITING, *here)
    hpa = metrics.hpa_selector(*here)
    at_max = f"max({metrics.HPA_DESIRED}{{{hpa}}}) >= max({metrics.HPA_MAX}{{{hpa}}})"
    yield Alert(
        "LLMRequestsWaiting",
        f"{waiting} > {thresholds.WAITING}",
        Severity.CRITICAL,
        threshold=thresholds.WAITING,
        summary=f"{of.name}: {{{{ $value }}}} requests wait",
        description=(
            "Replicas are full. With LLMAtMaxWithQueue: raise scaling.max and the pool. Else pods are starting."
        ),
        fires=f"more than {thresholds.WAITING} requests wait for 2 minutes",
        meaning=(
            f"More than {thresholds.WAITING} requests have waited for two minutes, summed over the replicas: "
            "every replica runs as many as its KV cache or `engine.maxNumSeqs` allows."
        ),
        impact="New requests get their first token late. At the limits of `limits` they are refused.",
        after=120,
    )
    yield Alert(
        "LLMAtMaxWithQueue",
        f"{at_max} and {waiting} > 0",
        Severity.WARNING,
        summary=f"{of.name}: all {{{{ $value }}}} replicas run and are not enough",
        description=(
            "Requests wait and no replica may be added. Raise scaling.max (and the pool's nodes.max), or lower "
            "the load."
        ),
        fires="`scaling.max` replicas are wanted and requests wait, for 10 minutes",
        meaning="For ten minutes the HPA has wanted `scaling.max` replicas and requests wait.",
        impact="The queue grows as long as the load stays; latency targets are missed.",
        after=600,
    )
    if of.min_replicas < of.max_replicas:
        yield Alert(
            "LLMReplicasAtMax",
            at_max,
            Severity.INFO,
            summary=f"{of.name}: at its GPU budget of {of.max_replicas} replicas",
            description=(
                "More load will queue: scaling.max is what the pool's GPUs allow. Plan more nodes if this is usual."
            ),
            fires="`scaling.max` replicas are wanted for 30 minutes; not where `min` is `max`",
            meaning=(
                "The HPA has wanted `scaling.max` replicas for half an hour. Nobody waits yet, or "
                "[LLMAtMaxWithQueue](LLMAtMaxWithQueue.md) fires as well."
            ),
            impact="None so far: the next increase of load will queue.",
            after=AT_MAX_SECONDS,
        )
