"""Operators on which all scaling and all alerts rest: KEDA, its API, kube-state-metrics."""

from collections.abc import Iterator

from .. import metrics
from ..rules import Alert, Severity


def alerts() -> Iterator[Alert]:
    installed = 'namespace="keda",deployment="keda-operator"'
    yield Alert(
        "KedaDown",
        f"absent({metrics.KEDA_BUILD}) and on () max({metrics.DEPLOYMENT_WANTED}{{{installed}}}) >= 0",
        Severity.CRITICAL,
        summary="KEDA's operator cannot be scraped",
        description="No service scales while it is down: HPAs keep their replicas.",
        fires="KEDA's operator cannot be scraped for 5 minutes",
        meaning="KEDA's operator is installed and has not been scraped for five minutes.",
        impact=(
            "No signal reaches the HPAs: services keep the replicas they have. HPAs wait a minute for each "
            "signal, so what they report of themselves is minutes old."
        ),
        after=300,
    )
    yield Alert(
        "ExternalMetricsDown",
        f'max({metrics.UNAVAILABLE_API}{{name="v1beta1.external.metrics.k8s.io"}}) == 1',
        Severity.CRITICAL,
        summary="the external metrics API is not available",
        description=(
            "No HPA of a service gets its signals. Look at keda-operator-metrics-apiserver and the APIService."
        ),
        fires="the external metrics API is not available for 5 minutes",
        meaning="The API server has not been able to reach the external metrics API for five minutes.",
        impact="No HPA of a service gets its signals.",
        after=300,
    )
    yield Alert(
        "KubeStateMetricsMissing",
        f"absent({metrics.NODE_INFO})",
        Severity.CRITICAL,
        summary="kube-state-metrics cannot be scraped",
        description="Every alert on pods, replicas and nodes is silent meanwhile.",
        fires="kube-state-metrics cannot be scraped for 5 minutes",
        meaning="Nothing of kube-state-metrics has been seen for five minutes.",
        impact="All alerts on pods, replicas, nodes and HPAs are silent, whatever happens.",
        after=300,
    )
