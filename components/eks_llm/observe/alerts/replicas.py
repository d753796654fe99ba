"""Replicas of a service against those that should be ready."""

from collections.abc import Iterator

from .. import metrics
from ..rules import Alert, Severity, duration
from ..watched import WatchedService


def alerts(of: WatchedService) -> Iterator[Alert]:
    here = of.here
    deployment, hpa = metrics.deployment_selector(*here), metrics.hpa_selector(*here)
    ready = f"max({metrics.DEPLOYMENT_READY}{{{deployment}}})"
    yield Alert(
        "LLMNoReadyReplica",
        f"{ready} == 0 and max({metrics.DEPLOYMENT_WANTED}{{{deployment}}}) > 0",
        Severity.CRITICAL,
        summary=f"{of.name}: no replica is ready",
        description="Every request fails. It is normal during the first start, and in a rollout with one replica.",
        fires="no replica is ready for 2 minutes, and one should be",
        meaning="The service should have replicas and none has been ready for two minutes.",
        impact="Every request fails.",
        after=120,
    )
    if of.min_replicas > 1:
        yield Alert(
            "LLMBelowMinimum",
            f"{ready} < {of.min_replicas}",
            Severity.WARNING,
            summary=f"{of.name}: {{{{ $value }}}} of at least {of.min_replicas} replicas are ready",
            description=(
                "A replica was lost and its successor takes longer than a start usually does. Look at its pods' events."
            ),
            fires="fewer than `scaling.min` replicas for a pod's expected start; not where `min` is 1",
            meaning=(
                "Fewer than `scaling.min` replicas are ready, for longer than a pod usually takes to start on a "
                "node that has the image."
            ),
            impact="Less capacity than planned; the next loss may be an outage.",
            after=of.start.for_scaling,
        )
    yield Alert(
        "LLMReplicasMissing",
        f"max({metrics.HPA_DESIRED}{{{hpa}}}) - {ready} > 0",
        Severity.WARNING,
        summary=f"{of.name}: {{{{ $value }}}} replicas that demand asks for are not ready",
        description=(
            "Longer than a new node, the image, the weights and the load may take. See LLMPodPending and "
            "LLMPodStartSlow."
        ),
        fires="fewer replicas than the HPA wants for the longest start: node, image, weights, load",
        meaning=(
            "For longer than a new node, the image, the weights and the load may take together, fewer replicas "
            "are ready than the HPA wants."
        ),
        impact="The load does not get the replicas it needs.",
        after=of.start.deadline,
    )
    yield Alert(
        "LLMRolloutStuck",
        f'max({metrics.DEPLOYMENT_CONDITION}{{{deployment},condition="Progressing",status="false"}}) == 1',
        Severity.WARNING,
        summary=f"{of.name}: its rollout has not got on for {duration(of.start.deadline)}",
        description="New pods do not become ready; old ones go on serving. Look at the newest pod's events and log.",
        fires="a rollout makes no progress for that time",
        meaning="The Deployment has made no progress within its deadline.",
        impact="Old pods serve on, if there are any; the change has not happened.",
    )
