"""Names of metrics, written once: scaling triggers, rules and dashboards build their queries here.

Both runtimes export vLLM's own names (vLLM 0.27 to 0.32, `vllm/v1/metrics/loggers.py`; counters end in `_total`).
Names that vLLM removed, such as `vllm:gpu_cache_usage_perc`, must not come back.
"""

# vLLM ---------------------------------------------------------------------------------------------------------------

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
"""Requests that wait, those deferred by a constraint included."""
KV_USAGE = "vllm:kv_cache_usage_perc"
"""Share of KV-cache blocks in use, 0 to 1 despite its name."""
PREEMPTIONS = "vllm:num_preemptions_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATION_TOKENS = "vllm:generation_tokens_total"
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_HITS = "vllm:prefix_cache_hits_total"
REQUEST_SUCCESS = "vllm:request_success_total"
"""Finished requests, by `finished_reason`."""
TTFT = "vllm:time_to_first_token_seconds"
INTER_TOKEN = "vllm:inter_token_latency_seconds"  # noqa: S105 a metric, not a password
TPOT = "vllm:request_time_per_output_token_seconds"
E2E = "vllm:e2e_request_latency_seconds"
QUEUE_TIME = "vllm:request_queue_time_seconds"

# Kubernetes and KEDA (kube-state-metrics 2.20, KEDA 2.20) -----------------------------------------------------------

HPA_DESIRED = "kube_horizontalpodautoscaler_status_desired_replicas"
HPA_CURRENT = "kube_horizontalpodautoscaler_status_current_replicas"
HPA_MAX = "kube_horizontalpodautoscaler_spec_max_replicas"
DEPLOYMENT_READY = "kube_deployment_status_replicas_ready"
KEDA_HTTP_REQUESTS = "keda_scaler_http_requests_total"

SERVICE_LABEL = "service"
"""Label that the PodMonitor puts on every series of a service."""


def selector(namespace: str, service: str) -> str:
    """Label matchers of one service, so that two services never mix."""
    return f'namespace="{namespace}",{SERVICE_LABEL}="{service}"'


def total(metric: str, namespace: str, service: str) -> str:
    """The sum of a gauge over the pods of a service: one element without labels."""
    return f"sum({metric}{{{selector(namespace, service)}}})"


def rate(metric: str, namespace: str, service: str, window: str = "5m", by: str = "") -> str:
    """Increase per second of a counter over the pods of a service."""
    grouping = f" by ({by}) " if by else ""
    return f"sum{grouping}(rate({metric}{{{selector(namespace, service)}}}[{window}]))"


def quantile(share: float, metric: str, namespace: str, service: str, window: str = "5m") -> str:
    """A quantile of a histogram over the pods of a service."""
    return f"histogram_quantile({share:g}, {rate(f'{metric}_bucket', namespace, service, window, by='le')})"


def demand(namespace: str, service: str) -> str:
    """Requests that run or wait: a level that saturates near the real demand, unlike a backlog alone."""
    return f"{total(RUNNING, namespace, service)} + {total(WAITING, namespace, service)}"


def kv_percent(namespace: str, service: str) -> str:
    """KV-cache use summed over pods, in percent points: two pods at 40 % give 80."""
    return f"{total(KV_USAGE, namespace, service)} * 100"


def hpa_selector(namespace: str, scaled_object: str) -> str:
    """Label matchers of the HPA that KEDA makes for a ScaledObject."""
    return f'namespace="{namespace}",horizontalpodautoscaler="keda-hpa-{scaled_object}"'
