"""What the autoscaler of a service knows and does.

KEDA's own label `namespace` is renamed on scraping; names of services are unique in a cluster here. An alert whose
condition is normal while a service rests at 0 replicas is limited to when it should run.
"""

from collections.abc import Iterator

from .. import metrics
from ..rules import Alert, Severity, duration
from ..watched import WatchedService

PAUSED_SECONDS = 4 * 3600
"""A ScaledObject that is paused for longer was probably forgotten."""


def alerts(of: WatchedService) -> Iterator[Alert]:
    """What the autoscaler knows and does. KEDA's own label `namespace` is renamed on scraping; names of services are
    unique in a cluster here.
    """
    here = of.here
    selector, hpa = metrics.selector(*here), metrics.hpa_selector(*here)
    blind = f"absent({metrics.WAITING}{{{selector}}}) or absent({metrics.KV_USAGE}{{{selector}}})"
    signals = [_when_wanted(of, blind)]
    if of.front_door_query:
        signals.append(f"absent({of.front_door_query})")
    # Shorter than the alert waits, so that one empty answer, as in a restart of Prometheus, is no alarm.
    signals.append(f'sum(increase({metrics.KEDA_EMPTY}{{scaledResource="{of.name}"}}[2m])) > 0')
    yield Alert(
        "LLMAutoscalerBlind",
        f"max({' or '.join(signals)})",
        Severity.CRITICAL,
        summary=f"{of.name}: the autoscaler's metrics are missing",
        description=(
            "KEDA holds the replica count. Check the pods, the PodMonitor, the NetworkPolicy and the front door's"
            " metrics."
        ),
        fires="a signal of the autoscaler is missing for 3 minutes",
        meaning=(
            "For three minutes a signal of the autoscaler has been missing: no pod reports waiting requests or "
            "KV-cache use, the front door's query has no answer, or KEDA says that its query found nothing. A "
            "service at 0 replicas has no pods to report, and does not count."
        ),
        impact=(
            "KEDA keeps the replicas that run (`fallback: currentReplicasIfHigher`) and adds none, whatever the load."
        ),
        after=180,
    )
    yield Alert(
        "LLMScalerFailing",
        f'sum(rate({metrics.KEDA_HTTP_REQUESTS}{{scaled_resource="{of.name}",status_code!~"2.."}}[5m])) > 0',
        Severity.WARNING,
        summary=f"{of.name}: KEDA cannot query Prometheus",
        description="The fallback keeps the current replicas. Check the operator's log and its way to Prometheus.",
        fires="KEDA's queries to Prometheus fail for 5 minutes",
        meaning=(
            "KEDA's queries to Prometheus have failed for five minutes: no connection, a time-out, or an answer "
            "other than 2xx."
        ),
        impact="After a minute the fallback keeps the current replicas; nothing is added.",
        after=300,
    )
    condition = f'namespace="{of.namespace}",scaledobject="{of.name}"'
    yield Alert(
        "LLMScalerFallback",
        f'max({metrics.SCALED_OBJECT_CONDITION}{{{condition},type="Fallback"}}) == 1',
        Severity.CRITICAL,
        summary=f"{of.name}: KEDA's fallback keeps the replicas",
        description=(
            "The signals fail, so demand changes nothing. KEDA's error counters stand still meanwhile: read its log."
        ),
        fires="KEDA's fallback holds the replicas for 2 minutes",
        meaning=(
            "The ScaledObject's condition Fallback has been true for two minutes: KEDA got no value for about a "
            "minute and now reports made-up ones that keep the replicas. KEDA's error counters stand still "
            "meanwhile, so that [LLMScalerErrors](LLMScalerErrors.md) is silent."
        ),
        impact="Demand changes nothing: neither more replicas nor fewer.",
        after=120,
    )
    yield Alert(
        "LLMScalerErrors",
        f'sum(increase({metrics.KEDA_ERRORS}{{scaledObject="{of.name}"}}[10m])) > 0',
        Severity.WARNING,
        summary=f"{of.name}: KEDA has failed {{{{ $value | humanize }}}} times within 10 minutes",
        description=(
            "A trigger of the ScaledObject fails. While one does, nothing scales down. Read the operator's log."
        ),
        fires="a trigger of the ScaledObject fails for 10 minutes",
        meaning="KEDA has counted errors of this ScaledObject within ten minutes, for ten minutes on end.",
        impact="While one trigger fails the HPA scales up by the others, and never down: GPUs cost money.",
        after=600,
    )
    yield Alert(
        "LLMScalingInactive",
        _when_wanted(of, f'max({metrics.HPA_CONDITION}{{{hpa},condition="ScalingActive",status="false"}}) == 1'),
        Severity.CRITICAL,
        summary=f"{of.name}: its HPA cannot scale",
        description=(
            "The HPA gets no metric at all. See its condition, KEDA's metrics server and the external metrics API."
        ),
        fires="the HPA computes nothing for 5 minutes",
        meaning=(
            "The HPA's condition ScalingActive has been false for five minutes: it could not compute anything. A "
            "service at 0 replicas is so by right, and does not count."
        ),
        impact="Replicas stay as they are.",
        after=300,
    )
    yield Alert(
        "LLMScalerPaused",
        f'max({metrics.KEDA_PAUSED}{{scaledObject="{of.name}"}}) == 1',
        Severity.WARNING,
        summary=f"{of.name}: scaling has been paused for {duration(PAUSED_SECONDS)}",
        description=(
            "An annotation autoscaling.keda.sh/paused… is still there. Remove it when the work it was for is done."
        ),
        fires="scaling is paused for 4 hours",
        meaning="Somebody paused scaling by annotation four hours ago or longer.",
        impact="Replicas do not follow the load, in either direction.",
        after=PAUSED_SECONDS,
    )


def _when_wanted(of: WatchedService, expr: str) -> str:
    """`expr`, but not while a service that may rest has no replica."""
    if of.min_replicas:
        return expr
    wanted = f"max({metrics.DEPLOYMENT_WANTED}{{{metrics.deployment_selector(*of.here)}}}) > 0"
    return f"({expr}) and on () ({wanted})"
