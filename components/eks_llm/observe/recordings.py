"""Series that are recorded per service, with the labels `namespace` and `service`, for alerts and dashboards."""

from collections.abc import Iterator

from . import metrics
from .rules import Recording
from .watched import WatchedService

QUANTILES = (0.5, 0.9, 0.99)


def recordings(of: WatchedService) -> Iterator[Recording]:
    """What alerts and dashboards ask for again and again."""
    selector = metrics.selector(*of.here)
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
    if of.usd_per_gpu_hour is not None:
        yield Recording(metrics.SERVICE_COST, _cost(of, of.usd_per_gpu_hour))


def _cost(of: WatchedService, usd_per_gpu_hour: float) -> str:
    """USD per million output tokens: the GPUs that the replicas hold, over the tokens that they make."""
    replicas = f"avg_over_time({metrics.DEPLOYMENT_REPLICAS}{{{metrics.deployment_selector(*of.here)}}}[1h])"
    usd_per_second = f"sum by (namespace) ({replicas}) * {of.gpus_per_replica} * {usd_per_gpu_hour:g} / 3600"
    tokens = _by_service("sum", f"rate({metrics.GENERATION_TOKENS}{{{metrics.selector(*of.here)}}}[1h])")
    return f"1e6 * {usd_per_second} / on (namespace) group_right () ({tokens} > 0)"


def _by_service(operation: str, series: str) -> str:
    return f"{operation} by (namespace, service) ({series})"
