"""The child resources of an `InferenceService`, and what of them `customize` may not change."""

import pulumi_kubernetes as k8s

from ..core.component import Child

_NAMES = {
    "metadata.name": "other objects refer to it; it follows from the service's name",
    "metadata.namespace": "all objects are in one namespace; set namespace",
}
_POD = "spec.template.spec"
_SERVER = f"{_POD}.containers[server]"
_SELECTORS = "every other object finds the pods by these labels"
OWN_VOLUMES = ("nvme", "weights", "cache", "shm", "tmp", "repository", "engine", "drain")
OWN_VARIABLES = (
    "CUDA_CACHE_PATH",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "EKS_LLM_API_KEYS",
    "FLASHINFER_WORKSPACE_BASE",
    "HF_HUB_OFFLINE",
    "HOME",
    "LC_ALL",
    "NCCL_IB_DISABLE",
    "NCCL_P2P_LEVEL",
    "POD_UID",
    "PYTHONPATH",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "USER",
    "VLLM_CACHE_ROOT",
    "VLLM_ENGINE_READY_TIMEOUT_S",
    "VLLM_MEDIA_URL_ALLOW_REDIRECTS",
    "VLLM_NO_USAGE_STATS",
    "VLLM_WORKER_MULTIPROC_METHOD",
    "XDG_CACHE_HOME",
)
"""Variables of the main container that the component sets, whatever the runtime. A test renders all of them."""

_DEPLOYMENT = {
    **_NAMES,
    "spec.selector": _SELECTORS,
    "spec.replicas": "the autoscaler owns it; set scaling.min and scaling.max",
    'spec.template.metadata.labels."app.kubernetes.io/name"': _SELECTORS,
    'spec.template.metadata.labels."app.kubernetes.io/component"': _SELECTORS,
    'spec.template.metadata.annotations."eks-llm.dev/config-hash"': "it rolls the pods when their files change",
    f"{_POD}.serviceAccountName": "the weights' role is tied to it",
    f'{_POD}.nodeSelector."eks-llm.dev/pool"': "the plan counts the pool's GPUs; set pool",
    f"{_POD}.terminationGracePeriodSeconds": "it follows from limits.requestTimeout, so that no request is lost",
    f"{_POD}.initContainers[weights]": "it fetches the weights; set weights",
    f"{_SERVER}.args": "the plan sizes memory and queues by the arguments; set engine or limits",
    f"{_SERVER}.command": "the component's probes and drain are made for this server; set runtime",
    f"{_SERVER}.image": "the catalogue pins the image, and the plan knows its vLLM",
    f"{_SERVER}.resources": "the plan counts GPUs; set tensorParallel and pipelineParallel",
    f"{_SERVER}.ports": "Services, metrics and the NetworkPolicy refer to them",
    f"{_SERVER}.lifecycle": "it drains the pod; set limits.requestTimeout",
    **{f"{_SERVER}.env[{name}]": "the component sets this variable" for name in OWN_VARIABLES},
    **{f"{_POD}.volumes[{name}]": "the component's containers mount it" for name in OWN_VOLUMES},
}

CHILDREN = {
    "deployment": Child(k8s.apps.v1.Deployment, "deployment", "the pods", _DEPLOYMENT),
    "service_account": Child(
        k8s.core.v1.ServiceAccount, "account", "the account to which the weights' role is tied", _NAMES
    ),
    "service": Child(
        k8s.core.v1.Service, "service", "the address of all ready pods", {**_NAMES, "spec.selector": _SELECTORS}
    ),
    "headless_service": Child(
        k8s.core.v1.Service,
        "pods",
        "the ready pods by DNS, for a gateway",
        {**_NAMES, "spec.selector": _SELECTORS, "spec.clusterIP": "it is headless"},
    ),
    "config_maps": Child(
        k8s.core.v1.ConfigMap,
        "*",
        "files of the pods, by what they are for",
        {**_NAMES, "data": "its name and the pods' hash follow from the content"},
    ),
    "api_key_secret": Child(
        k8s.core.v1.Secret,
        "api-key",
        "the API key; None without `api_key`",
        {**_NAMES, "data": "set api_key", "string_data": "set api_key"},
    ),
    "priority_class": Child(
        k8s.scheduling.v1.PriorityClass, "priority", "None with priority 0", {**_NAMES, "value": "set priority"}
    ),
    "network_policy": Child(
        k8s.networking.v1.NetworkPolicy,
        "network-policy",
        "who may call the pods, and whom they may call",
        {**_NAMES, "spec.podSelector": _SELECTORS},
    ),
    "disruption_budget": Child(
        k8s.policy.v1.PodDisruptionBudget,
        "disruption-budget",
        "how many pods may be away at once",
        {**_NAMES, "spec.selector": _SELECTORS},
    ),
    "pod_monitor": Child(
        k8s.apiextensions.CustomResource,
        "pod-monitor",
        "what Prometheus scrapes",
        {**_NAMES, "spec.selector": _SELECTORS},
    ),
    "scaled_object": Child(
        k8s.apiextensions.CustomResource,
        "scaler",
        "how KEDA scales the pods",
        {
            **_NAMES,
            **dict.fromkeys(("spec.scaleTargetRef", "spec.minReplicaCount", "spec.maxReplicaCount"), "set scaling"),
        },
    ),
    "alerts": Child(k8s.apiextensions.CustomResource, "alerts", "recording rules and alerts", _NAMES),
    "dashboard": Child(
        k8s.core.v1.ConfigMap, "dashboard", "the dashboard of the service", {**_NAMES, "data": "add one of your own"}
    ),
}
