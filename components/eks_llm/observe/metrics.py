"""Names of metrics, written once: scaling triggers, rules and dashboards build their queries here.

Both runtimes export vLLM's own names (vLLM 0.27 to 0.32, `vllm/v1/metrics/loggers.py`; counters end in `_total`).
Names that vLLM removed, such as `vllm:gpu_cache_usage_perc`, must not come back.
"""

from ..core.placement import GPU_RESOURCE

# vLLM ---------------------------------------------------------------------------------------------------------------

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
"""Requests that wait, those deferred by a constraint included."""
WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"
"""By `reason`: capacity or deferred."""
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
PREFILL_TIME = "vllm:request_prefill_time_seconds"
INFERENCE_TIME = "vllm:request_inference_time_seconds"
"""From the first scheduling of a request to its last token."""
PROMPT_LENGTH = "vllm:request_prompt_tokens"
ANSWER_LENGTH = "vllm:request_generation_tokens"
"""The two: tokens, as histograms."""

TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
TPOT_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
"""Upper edges of vLLM's histograms, seconds. A histogram counts the requests below an edge, and below nothing else.
Source: vLLM 0.32, vllm/v1/metrics/loggers.py."""

# Servers ------------------------------------------------------------------------------------------------------------

HTTP_REQUESTS = "http_requests_total"
"""Of vLLM's OpenAI server, by `handler`, `method` and `status` (`2xx`)."""
TRITON_SUCCESS = "nv_inference_request_success"
TRITON_FAILURE = "nv_inference_request_failure"
"""By `model` and `reason`: REJECTED, CANCELED, BACKEND or OTHER."""

FRONT_DOOR_REQUESTS = (
    "envoy_http_downstream_rq_total",
    "envoy_cluster_upstream_rq_total",
    "istio_requests_total",
    "nginx_ingress_controller_requests",
)
"""Counters of requests that reached a front door of one's own, refused ones included."""

# Kubernetes (kube-state-metrics 2.20, kubelet) ----------------------------------------------------------------------

HPA_DESIRED = "kube_horizontalpodautoscaler_status_desired_replicas"
HPA_CURRENT = "kube_horizontalpodautoscaler_status_current_replicas"
HPA_MAX = "kube_horizontalpodautoscaler_spec_max_replicas"
HPA_CONDITION = "kube_horizontalpodautoscaler_status_condition"
HPA_TARGET = "kube_horizontalpodautoscaler_spec_target_metric"
"""Threshold of a signal per replica, by `metric_name`, e.g. `s0-prometheus`."""
HPA_SIGNAL = "kube_horizontalpodautoscaler_status_target_metric"
"""The signal per replica as the HPA last read it, by `metric_name`."""
DEPLOYMENT_WANTED = "kube_deployment_spec_replicas"
DEPLOYMENT_REPLICAS = "kube_deployment_status_replicas"
DEPLOYMENT_READY = "kube_deployment_status_replicas_ready"
DEPLOYMENT_CONDITION = "kube_deployment_status_condition"
POD_PHASE = "kube_pod_status_phase"
POD_SCHEDULED = "kube_pod_status_scheduled"
POD_SCHEDULED_TIME = "kube_pod_status_scheduled_time"
POD_CREATED = "kube_pod_created"
POD_INITIALIZED_TIME = "kube_pod_status_initialized_time"
POD_READY_TIME = "kube_pod_status_ready_time"
POD_UNSCHEDULABLE = "kube_pod_status_unschedulable"
POD_READY = "kube_pod_status_ready"
POD_DELETED = "kube_pod_deletion_timestamp"
POD_REQUESTS = "kube_pod_container_resource_requests"
POD_LIMITS = "kube_pod_container_resource_limits"
RESTARTS = "kube_pod_container_status_restarts_total"
WAITING_REASON = "kube_pod_container_status_waiting_reason"
LAST_TERMINATED_REASON = "kube_pod_container_status_last_terminated_reason"
INIT_RESTARTS = "kube_pod_init_container_status_restarts_total"
INIT_WAITING_REASON = "kube_pod_init_container_status_waiting_reason"
NODE_CONDITION = "kube_node_status_condition"
NODE_CAPACITY = "kube_node_status_capacity"
NODE_ALLOCATABLE = "kube_node_status_allocatable"
NODE_INFO = "kube_node_info"
OF_GPUS = f'resource="{GPU_RESOURCE.replace(".", "_").replace("/", "_")}"'
"""Label matcher of the resource that GPUs are. kube-state-metrics writes names of resources with underscores."""
MEMORY_RSS = "container_memory_rss"
"""Of cAdvisor; without page cache, which the kernel gives back before it kills."""
UNAVAILABLE_API = "aggregator_unavailable_apiservice"
MEMORY_WORKING_SET = "container_memory_working_set_bytes"
RECEIVED = "container_network_receive_bytes_total"
SCALED_OBJECT_CONDITION = "kube_customresource_scaledobject_status_condition"
"""1 where a condition (`type`) of a ScaledObject is true. From `custom_resource_states.py`."""

# KEDA 2.20 (pkg/metricscollector/prommetrics.go) --------------------------------------------------------------------
# Its own label `namespace` becomes `exported_namespace` on scraping.

KEDA_HTTP_REQUESTS = "keda_scaler_http_requests_total"
"""By `scaled_resource` and `status_code`."""
KEDA_EMPTY = "keda_scaler_empty_upstream_responses_total"
"""By `scaledResource`."""
KEDA_ERRORS = "keda_scaled_object_errors_total"
"""By `scaledObject`. Stops rising once the fallback is active."""
KEDA_PAUSED = "keda_scaled_object_paused"
"""By `scaledObject`."""
KEDA_VALUE = "keda_scaler_metrics_value"
"""By `scaledObject` and `metric`, e.g. `s0-prometheus`."""
KEDA_BUILD = "keda_build_info"
KEDA_LATENCY = "keda_scaler_metrics_latency_seconds"
"""By `scaledObject` and `scaler`, the trigger's name."""

# cluster-autoscaler 1.36 (cluster-autoscaler/metrics/metrics.go) ----------------------------------------------------

AUTOSCALER_SAFE = "cluster_autoscaler_cluster_safe_to_autoscale"
AUTOSCALER_UNSCHEDULABLE = "cluster_autoscaler_unschedulable_pods_count"
AUTOSCALER_FAILED = "cluster_autoscaler_failed_scale_ups_total"
AUTOSCALER_ADDED = "cluster_autoscaler_scaled_up_gpu_nodes_total"
AUTOSCALER_REMOVED = "cluster_autoscaler_scaled_down_gpu_nodes_total"
AUTOSCALER_LAST_ACTIVITY = "cluster_autoscaler_last_activity"
AUTOSCALER_GROUP_TARGET = "cluster_autoscaler_node_group_target_count"
AUTOSCALER_GROUP_MAX = "cluster_autoscaler_node_group_max_count"
"""The two by `node_group`, with `--emit-per-nodegroup-metrics`."""

# GPUs (dcgm-exporter 4, GPU operator 26.7) --------------------------------------------------------------------------
# The exporter's labels of the pod that has the GPU arrive as `exported_pod`, `exported_namespace`.

GPU_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
GPU_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
GPU_XID = "DCGM_EXP_XID_ERRORS_COUNT"
"""XID errors of the last five minutes, a gauge by `xid`."""
GPU_DOUBLE_BIT_ERRORS = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
GPU_UNCORRECTABLE_ROWS = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
GPU_REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
GPU_THERMAL_VIOLATION = "DCGM_FI_DEV_THERMAL_VIOLATION"
GPU_POWER_VIOLATION = "DCGM_FI_DEV_POWER_VIOLATION"
"""The two: nanoseconds throttled."""
GPU_SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
GPU_TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
GPU_DRAM_ACTIVE = "DCGM_FI_PROF_DRAM_ACTIVE"
GPU_MEMORY_USED = "DCGM_FI_DEV_FB_USED"
GPU_MEMORY_FREE = "DCGM_FI_DEV_FB_FREE"
"""The two in MiB."""
GPU_NVLINK = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
"""A rate in MB/s, although the exporter calls it a counter: never take its `rate()`."""
GPU_PCIE_SENT = "DCGM_FI_PROF_PCIE_TX_BYTES"
GPU_PCIE_RECEIVED = "DCGM_FI_PROF_PCIE_RX_BYTES"
GPU_POWER = "DCGM_FI_DEV_POWER_USAGE"
GPU_TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
GPU_MEMORY_TEMPERATURE = "DCGM_FI_DEV_MEMORY_TEMP"
GPU_MEMORY_COPY = "DCGM_FI_DEV_MEM_COPY_UTIL"
GPU_SM_OCCUPANCY = "DCGM_FI_PROF_SM_OCCUPANCY"
GPU_MEMORY_RESERVED = "DCGM_FI_DEV_FB_RESERVED"
GPU_SM_CLOCK = "DCGM_FI_DEV_SM_CLOCK"
GPU_ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
GPU_LAST_XID = "DCGM_FI_DEV_XID_ERRORS"
GPU_PCIE_REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
GPU_CORRECTABLE_ROWS = "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"
GPU_NODE_CHECKS = ("driver", "toolkit", "plugin", "cuda")
"""Of the operator's validator: `gpu_operator_node_<check>_ready`."""

# Nodes (node-exporter 1.12) -----------------------------------------------------------------------------------------

CPU_SECONDS = "node_cpu_seconds_total"
MEMORY_AVAILABLE = "node_memory_MemAvailable_bytes"
MEMORY_TOTAL = "node_memory_MemTotal_bytes"
DISK_FREE = "node_filesystem_avail_bytes"
DISK_SIZE = "node_filesystem_size_bytes"
NODE_RECEIVED = "node_network_receive_bytes_total"

# Prometheus itself --------------------------------------------------------------------------------------------------

ALERTS = "ALERTS"
"""1 for each alert that is pending or firing, by `alertname` and `alertstate`."""
UP = "up"

# Recorded per service (recordings.py, slo.py), with the labels `namespace` and `service` ------------------------------

SERVICE_RUNNING = "service:vllm_num_requests_running:sum"
SERVICE_WAITING = "service:vllm_num_requests_waiting:sum"
SERVICE_KV_USAGE = "service:vllm_kv_cache_usage:max"
SERVICE_PROMPT_TOKENS = "service:vllm_prompt_tokens:rate5m"
SERVICE_GENERATION_TOKENS = "service:vllm_generation_tokens:rate5m"
SERVICE_TTFT = "service:vllm_time_to_first_token_seconds:quantile_rate5m"
SERVICE_TPOT = "service:vllm_request_time_per_output_token_seconds:quantile_rate5m"
"""The two by `quantile`: 0.5, 0.9 and 0.99."""
SERVICE_COST = "service:llm_usd_per_million_output_tokens:rate1h"
"""Of the GPUs that the replicas hold; only where the price of a GPU is known."""


def slo_errors(window: str) -> str:
    """Recorded share of requests that miss a latency target, by `slo` (`ttftP99`, `tpotP99`): 5m, 30m, 1h, 6h, 3d."""
    return f"service:llm_slo_errors_per_request:ratio_rate{window}"


# Queries ------------------------------------------------------------------------------------------------------------

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


def events(counter: str, window: str) -> str:
    """Events of the last `window`, per series of a counter that may appear with its first event.

    `increase()` needs an earlier sample, so it does not see the event that makes the series. A series that was not
    there before the window, nor in the hour before that (a gap of scrapes is no birth), has counted in the window
    alone, so its value is the number of events.
    """
    return f"({counter} unless last_over_time({counter}[1h] offset {window}) or increase({counter}[{window}]))"


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


def deployment_selector(namespace: str, deployment: str) -> str:
    """Label matchers of a Deployment in kube-state-metrics."""
    return f'namespace="{namespace}",deployment="{deployment}"'


def pod_selector(namespace: str, deployment: str) -> str:
    """Label matchers of a Deployment's pods: its name, the template's hash, five letters."""
    return f'namespace="{namespace}",pod=~"{deployment}-[0-9a-z]{{6,10}}-[0-9a-z]{{5}}"'
