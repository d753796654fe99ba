"""Recording rules and alerts of a service. Thresholds follow from its settings; docs/observability.md lists them.

Series of kube-state-metrics carry no label of ours, so pods are told by the names that their Deployment gives them. An
alert whose condition is normal while a service rests at 0 replicas is limited to when it should run.
"""

from collections.abc import Iterator
from typing import Any

from ..core.timing import STALL_SECONDS
from ..observe import metrics
from ..observe.rules import RUNBOOKS, Alert, Recording, Severity, duration, group
from ..observe.rules import prometheus_rule as rule_object
from . import slo as latency
from .observability import Slo
from .scaling import Scaling
from .workload import Workload

WAITING_LIMIT = 10
KV_LIMIT = 0.95
PREEMPTION_LIMIT = 0.1
"""Preemptions per finished request. Each makes vLLM compute a request again."""
ERROR_LIMIT = 0.05
MEMORY_LIMIT = 0.9
RESTART_LIMIT = 2
"""Restarts per hour that may be chance."""
PAUSED_SECONDS = 4 * 3600
"""A ScaledObject is paused for a piece of work, and then forgotten."""
AT_MAX_SECONDS = 1800
QUANTILES = (0.5, 0.9, 0.99)


def prometheus_rule(
    work: Workload,
    slo: Slo,
    scaling: Scaling,
    *,
    runbooks: str = RUNBOOKS,
    usd_per_gpu_hour: float | None = None,
) -> dict[str, Any]:
    """The PrometheusRule of a service. `usd_per_gpu_hour` None: the price is not known, and no cost is recorded."""
    name, here = f"{work.namespace}.{work.name}", {"namespace": work.namespace, "service": work.name}
    targets = latency.targets(slo)
    fast, slow = latency.WINDOWS[:3], latency.WINDOWS[3:]
    recorded = [*recordings(work, usd_per_gpu_hour), *(r for t in targets for r in latency.recordings(work, t, fast))]
    groups = [group(f"{name}.recording", (rule.rule() for rule in recorded))]
    if targets:
        rules = (rule.rule() for target in targets for rule in latency.recordings(work, target, slow))
        groups.append(group(f"{name}.slo", rules, latency.SLOW_WINDOWS_INTERVAL))
    groups.append(group(name, (alert.rule(here, runbooks) for alert in alerts(work, slo, scaling))))
    return rule_object(work.metadata(), *groups)


def alerts(work: Workload, slo: Slo, scaling: Scaling) -> list[Alert]:
    """The alerts of a service."""
    return [
        *_demand(work, scaling),
        *_latency(work, slo),
        *_engine(work),
        *_autoscaler(work, scaling),
        *_replicas(work, scaling),
        *_pods(work),
    ]


# Recording rules ----------------------------------------------------------------------------------------------------


def recordings(work: Workload, usd_per_gpu_hour: float | None) -> Iterator[Recording]:
    """What alerts and dashboards ask for again and again, with the labels `namespace` and `service`."""
    here = (work.namespace, work.name)
    selector = metrics.selector(*here)
    yield Recording(metrics.SERVICE_RUNNING, _by_service("sum", f"{metrics.RUNNING}{{{selector}}}"))
    yield Recording(metrics.SERVICE_WAITING, _by_service("sum", f"{metrics.WAITING}{{{selector}}}"))
    yield Recording(metrics.SERVICE_KV_USAGE, _by_service("max", f"{metrics.KV_USAGE}{{{selector}}}"))
    for name, counter in (
        (metrics.SERVICE_PROMPT_TOKENS, metrics.PROMPT_TOKENS),
        (metrics.SERVICE_GENERATION_TOKENS, metrics.GENERATION_TOKENS),
    ):
        yield Recording(name, _by_service("sum", f"rate({counter}{{{selector}}}[5m])"))
    for name, histogram in ((metrics.SERVICE_TTFT, metrics.TTFT), (metrics.SERVICE_TPOT, metrics.TPOT)):
        for share in QUANTILES:
            buckets = f"sum by (namespace, service, le) (rate({histogram}_bucket{{{selector}}}[5m]))"
            yield Recording(name, f"histogram_quantile({share:g}, {buckets})", {"quantile": f"{share:g}"})
    if usd_per_gpu_hour is not None:
        replicas = f"avg_over_time({metrics.DEPLOYMENT_REPLICAS}{{{metrics.deployment_selector(*here)}}}[1h])"
        usd_per_second = f"sum by (namespace) ({replicas}) * {work.share.gpus} * {usd_per_gpu_hour:g} / 3600"
        tokens = _by_service("sum", f"rate({metrics.GENERATION_TOKENS}{{{selector}}}[1h])")
        yield Recording(metrics.SERVICE_COST, f"1e6 * {usd_per_second} / on (namespace) group_right () ({tokens} > 0)")


def _by_service(operation: str, series: str) -> str:
    return f"{operation} by (namespace, service) ({series})"


# Alerts -------------------------------------------------------------------------------------------------------------


def _demand(work: Workload, scaling: Scaling) -> Iterator[Alert]:
    here = (work.namespace, work.name)
    waiting = metrics.total(metrics.WAITING, *here)
    hpa = metrics.hpa_selector(*here)
    at_max = f"max({metrics.HPA_DESIRED}{{{hpa}}}) >= max({metrics.HPA_MAX}{{{hpa}}})"
    yield Alert(
        "LLMRequestsWaiting",
        f"{waiting} > {WAITING_LIMIT}",
        Severity.CRITICAL,
        f"{work.name}: {{{{ $value }}}} requests wait",
        "Replicas are full. With LLMAtMaxWithQueue: raise scaling.max and the pool. Else pods are starting.",
        120,
    )
    yield Alert(
        "LLMAtMaxWithQueue",
        f"{at_max} and {waiting} > 0",
        Severity.WARNING,
        f"{work.name}: all {{{{ $value }}}} replicas run and are not enough",
        "Requests wait and no replica may be added. Raise scaling.max (and the pool's nodes.max), or lower the load.",
        600,
    )
    if scaling.min < scaling.max:
        yield Alert(
            "LLMReplicasAtMax",
            at_max,
            Severity.INFO,
            f"{work.name}: at its GPU budget of {scaling.max} replicas",
            "More load will queue: scaling.max is what the pool's GPUs allow. Plan more nodes if this is usual.",
            AT_MAX_SECONDS,
        )


def _latency(work: Workload, slo: Slo) -> Iterator[Alert]:
    """Burn rates count what is above a bucket's edge; the quantile, interpolated, sees what the edge hides."""
    names = {"ttftP99": "LLMFirstTokenSlow", "tpotP99": "LLMTokensSlow"}
    for target in latency.targets(slo):
        yield Alert(
            names[target.key],
            f"{metrics.quantile(0.99, target.metric, work.namespace, work.name)} > {target.limit:g}",
            Severity.WARNING,
            f"{work.name}: p99 is {{{{ $value | humanizeDuration }}}}, above slo.{target.key} {target.limit:g}s",
            "Look at waiting requests, prompt lengths and preemptions on the service's dashboard.",
            600,
        )
        yield from latency.burn_alerts(work, target)


def _engine(work: Workload) -> Iterator[Alert]:
    here = (work.namespace, work.name)
    selector = metrics.selector(*here)
    yield Alert(
        "LLMKVCacheNearlyFull",
        f"max({metrics.KV_USAGE}{{{selector}}}) > {KV_LIMIT}",
        Severity.WARNING,
        f"{work.name}: a pod's KV cache is {{{{ $value | humanizePercentage }}}} full",
        "Requests will be preempted and computed again. Lower engine.maxNumSeqs or maxModelLen, or add GPUs.",
        60,
    )
    preempted, finished = (metrics.rate(name, *here, "10m") for name in (metrics.PREEMPTIONS, metrics.REQUEST_SUCCESS))
    yield Alert(
        "LLMPreemptions",
        f"{preempted} / ({finished} > 0) > {PREEMPTION_LIMIT}",
        Severity.WARNING,
        f"{work.name}: {{{{ $value | humanizePercentage }}}} of requests are preempted",
        "The KV cache is too small for the requests that run at once, so vLLM computes some of them twice. Lower "
        "engine.maxNumSeqs or scaling.kvCacheTarget.",
        600,
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
        f"{work.name}: {{{{ $labels.pod }}}} holds {{{{ $value }}}} requests and makes no token",
        f"The engine hangs, and its watchdog ({STALL_SECONDS} s) has not ended it. Delete the pod; it is replaced.",
        60,
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
        f"sum({failed}) / (sum({asked}) > 0) > {ERROR_LIMIT}",
        Severity.CRITICAL,
        f"{work.name}: {{{{ $value | humanizePercentage }}}} of requests fail",
        "The server answers with errors, refusals at its limits included. Look at its log, and at waiting requests.",
        600,
    )
    ready = metrics.pod_selector(*here)
    yield Alert(
        "LLMTargetDown",
        f"max by (pod, endpoint) (up{{{selector}}}) == 0"
        f' and on (pod) max by (pod) ({metrics.POD_READY}{{{ready},condition="true"}}) == 1',
        Severity.WARNING,
        f"{work.name}: {{{{ $labels.pod }}}} serves, but {{{{ $labels.endpoint }}}} cannot be scraped",
        "The autoscaler and all alerts miss this pod's requests. Check the NetworkPolicy and the pod's metrics port.",
        180,
    )


def _autoscaler(work: Workload, scaling: Scaling) -> Iterator[Alert]:
    """What the autoscaler knows and does. KEDA's own label `namespace` is renamed on scraping; names of services are
    unique in a cluster here.
    """
    here = (work.namespace, work.name)
    selector, hpa = metrics.selector(*here), metrics.hpa_selector(*here)
    blind = f"absent({metrics.WAITING}{{{selector}}}) or absent({metrics.KV_USAGE}{{{selector}}})"
    signals = [_when_wanted(work, scaling, blind)]
    if scaling.front_door:
        signals.append(f"absent({scaling.front_door.query})")
    # Shorter than the alert waits, so that one empty answer, as in a restart of Prometheus, is no alarm.
    signals.append(f'sum(increase({metrics.KEDA_EMPTY}{{scaledResource="{work.name}"}}[2m])) > 0')
    yield Alert(
        "LLMAutoscalerBlind",
        f"max({' or '.join(signals)})",  # one element, whatever is missing
        Severity.CRITICAL,
        f"{work.name}: the autoscaler's metrics are missing",
        "KEDA holds the replica count. Check the pods, the PodMonitor, the NetworkPolicy and the front door's metrics.",
        180,
    )
    yield Alert(
        "LLMScalerFailing",
        f'sum(rate({metrics.KEDA_HTTP_REQUESTS}{{scaled_resource="{work.name}",status_code!~"2.."}}[5m])) > 0',
        Severity.WARNING,
        f"{work.name}: KEDA cannot query Prometheus",
        "The fallback keeps the current replicas. Check the operator's log and its way to Prometheus.",
        300,
    )
    condition = f'namespace="{work.namespace}",scaledobject="{work.name}"'
    yield Alert(
        "LLMScalerFallback",
        f'max({metrics.SCALED_OBJECT_CONDITION}{{{condition},type="Fallback"}}) == 1',
        Severity.CRITICAL,
        f"{work.name}: KEDA's fallback keeps the replicas",
        "The signals fail, so demand changes nothing. KEDA's error counters stand still meanwhile: read its log.",
        120,
    )
    yield Alert(
        "LLMScalerErrors",
        f'sum(increase({metrics.KEDA_ERRORS}{{scaledObject="{work.name}"}}[10m])) > 0',
        Severity.WARNING,
        f"{work.name}: KEDA has failed {{{{ $value | humanize }}}} times within 10 minutes",
        "A trigger of the ScaledObject fails. While one does, nothing scales down. Read the operator's log.",
        600,
    )
    yield Alert(
        "LLMScalingInactive",
        _when_wanted(
            work, scaling, f'max({metrics.HPA_CONDITION}{{{hpa},condition="ScalingActive",status="false"}}) == 1'
        ),
        Severity.CRITICAL,
        f"{work.name}: its HPA cannot scale",
        "The HPA gets no metric at all. See its condition, KEDA's metrics server and the external metrics API.",
        300,
    )
    yield Alert(
        "LLMScalerPaused",
        f'max({metrics.KEDA_PAUSED}{{scaledObject="{work.name}"}}) == 1',
        Severity.WARNING,
        f"{work.name}: scaling has been paused for {duration(PAUSED_SECONDS)}",
        "An annotation autoscaling.keda.sh/paused… is still there. Remove it when the work it was for is done.",
        PAUSED_SECONDS,
    )


def _replicas(work: Workload, scaling: Scaling) -> Iterator[Alert]:
    here = (work.namespace, work.name)
    deployment, hpa = metrics.deployment_selector(*here), metrics.hpa_selector(*here)
    ready = f"max({metrics.DEPLOYMENT_READY}{{{deployment}}})"
    yield Alert(
        "LLMNoReadyReplica",
        f"{ready} == 0 and max({metrics.DEPLOYMENT_WANTED}{{{deployment}}}) > 0",
        Severity.CRITICAL,
        f"{work.name}: no replica is ready",
        "Every request fails. It is normal during the first start, and in a rollout with one replica.",
        120,
    )
    if scaling.min > 1:
        yield Alert(
            "LLMBelowMinimum",
            f"{ready} < {scaling.min}",
            Severity.WARNING,
            f"{work.name}: {{{{ $value }}}} of at least {scaling.min} replicas are ready",
            "A replica was lost and its successor takes longer than a start usually does. Look at its pods' events.",
            work.start.for_scaling,
        )
    yield Alert(
        "LLMReplicasMissing",
        f"max({metrics.HPA_DESIRED}{{{hpa}}}) - {ready} > 0",
        Severity.WARNING,
        f"{work.name}: {{{{ $value }}}} replicas that demand asks for are not ready",
        "Longer than a new node, the image, the weights and the load may take. See LLMPodPending and LLMPodStartSlow.",
        work.start.deadline,
    )
    yield Alert(
        "LLMRolloutStuck",
        f'max({metrics.DEPLOYMENT_CONDITION}{{{deployment},condition="Progressing",status="false"}}) == 1',
        Severity.WARNING,
        f"{work.name}: its rollout has not got on for {duration(work.start.deadline)}",
        "New pods do not become ready; old ones go on serving. Look at the newest pod's events and log.",
    )


def _pods(work: Workload) -> Iterator[Alert]:
    pods = metrics.pod_selector(work.namespace, work.name)
    main, weights = f'{pods},container="server"', f'{pods},container="weights"'
    budget = work.start.prepared
    yield Alert(
        "LLMPodPending",
        f'max by (pod) ({metrics.POD_SCHEDULED}{{{pods},condition="false"}}) == 1',
        Severity.WARNING,
        f"{work.name}: {{{{ $labels.pod }}}} waits for GPUs, longer than a new node takes",
        "No node has its GPUs free and none comes. See the pod's events, NodeScaleUpFailing and NodePoolAtMax.",
        work.start.placed,
    )
    live = f'max by (pod) ({metrics.POD_PHASE}{{{pods},phase=~"Pending|Running"}}) == 1'
    yield Alert(
        "LLMPodStartSlow",
        f"max by (pod) (time() - {metrics.POD_SCHEDULED_TIME}{{{pods}}}) > {budget} and on (pod) {live}"
        f' and on (pod) max by (pod) ({metrics.POD_READY}{{{pods},condition="true"}}) == 0'
        f" unless on (pod) {metrics.POD_DELETED}{{{pods}}}",
        Severity.WARNING,
        f"{work.name}: {{{{ $labels.pod }}}} is not ready {{{{ $value | humanizeDuration }}}} after it got its node",
        f"Image, weights and load should take {duration(budget)} at most. kubectl describe pod shows its step.",
        300,
    )
    crashes = "CrashLoopBackOff|CreateContainerConfigError|CreateContainerError|RunContainerError"
    failing = " or ".join((
        f'max by (pod) ({metrics.INIT_WAITING_REASON}{{{weights},reason=~"{crashes}"}}) == 1',
        f"max by (pod) (increase({metrics.INIT_RESTARTS}{{{weights}}}[10m])) > 0",
    ))  # fmt: skip
    yield Alert(
        "LLMWeightsMissing",
        failing,
        Severity.CRITICAL,
        f"{work.name}: {{{{ $labels.pod }}}} cannot fetch its weights",
        "The init container `weights` fails, so no new replica starts. Its last log line says why.",
        60,
    )
    images = 'reason=~"ErrImagePull|ImagePullBackOff|InvalidImageName"'
    yield Alert(
        "LLMImagePullFailing",
        " or ".join(
            f"max by (pod) ({name}{{{pods},{images}}}) == 1"
            for name in (metrics.WAITING_REASON, metrics.INIT_WAITING_REASON)
        ),
        Severity.WARNING,
        f"{work.name}: {{{{ $labels.pod }}}} cannot pull an image",
        "No new replica starts on this node. See the pod's events: a wrong name, no access, or no way to the registry.",
        300,
    )
    yield Alert(
        "LLMPodRestarts",
        f"max by (pod) (increase({metrics.RESTARTS}{{{main}}}[1h])) > {RESTART_LIMIT}",
        Severity.WARNING,
        f"{work.name}: {{{{ $labels.pod }}}} has restarted {{{{ $value | humanize }}}} times within an hour",
        "Each restart loses the requests in flight and loads the model anew. See the log of the previous container.",
    )
    killed = f'max by (pod) ({metrics.LAST_TERMINATED_REASON}{{{main},reason="OOMKilled"}}) == 1'
    yield Alert(
        "LLMPodOOMKilled",
        f"{killed} and on (pod) max by (pod) (increase({metrics.RESTARTS}{{{main}}}[10m])) > 0",
        Severity.CRITICAL,
        f"{work.name}: {{{{ $labels.pod }}}} ran out of memory and was killed",
        "Host memory, not GPU memory. Its requests are lost, and it will happen again under the same load.",
    )
    limit = f'max by (pod) ({metrics.POD_LIMITS}{{{main},resource="memory"}})'
    yield Alert(
        "LLMMemoryNearLimit",
        f"max by (pod) ({metrics.MEMORY_RSS}{{{main}}}) / on (pod) {limit} > {MEMORY_LIMIT}",
        Severity.WARNING,
        f"{work.name}: {{{{ $labels.pod }}}} uses {{{{ $value | humanizePercentage }}}} of its memory limit",
        "The kernel will kill it at the limit. A rise over days is a leak: restart the pod at a quiet time.",
        600,
    )


def _when_wanted(work: Workload, scaling: Scaling, expr: str) -> str:
    """`expr`, but not while a service that may rest has no replica."""
    if scaling.min:
        return expr
    wanted = f"max({metrics.DEPLOYMENT_WANTED}{{{metrics.deployment_selector(work.namespace, work.name)}}}) > 0"
    return f"({expr}) and on () ({wanted})"
