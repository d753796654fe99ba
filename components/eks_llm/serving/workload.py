"""Kubernetes objects of a service that both runtimes share: Deployment, Services, PodDisruptionBudget, NetworkPolicy.

Pure builders: values in, manifests out. What differs between the runtimes is a `Server`, from triton.py or openai.py.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import pulumi

from ..catalog.images import Image
from ..catalog.instances import GPUS, INSTANCES
from ..core.placement import GPU_RESOURCE, NODE_FOLDER, gpu_toleration, node_selector
from ..core.timing import LIVENESS, READINESS, Drain, Start, startup, update_limit
from .endpoint import CLIENT_LABEL
from .fetch import cache_path, init_container, weights_path

HTTP_PORT = 8000
CONFIG_HASH = "eks-llm.dev/config-hash"
ENGINE_CONFIG = "/etc/eks-llm/engine.json"
CACHE_MOUNT = "/cache"
HIGHEST_PRIORITY = 1_000_000
"""Of a service; far below the classes that Kubernetes keeps for its own pods."""


@dataclass(frozen=True)
class Share:
    """What a pod gets of its node, in proportion to its GPUs."""

    gpus: int
    vcpus: int
    memory_gib: float
    nvlink: bool

    @property
    def resources(self) -> dict[str, Any]:
        """A fifth is left to kubelet, DaemonSets and page cache, so that pods for all GPUs fit.

        No CPU limit: a throttled front end stalls every stream.
        """
        return {
            "requests": {"cpu": str(max(1, int(self.vcpus * 0.8))), "memory": f"{int(self.memory_gib * 0.8)}Gi"},
            "limits": {GPU_RESOURCE: str(self.gpus), "memory": f"{int(self.memory_gib * 0.95)}Gi"},
        }

    @property
    def shm_gib(self) -> int:
        """Shared memory: NCCL and vLLM's message queues take some per worker, Triton's Python backend the rest.

        The runtime's own 64 MB end in bus errors. Memory is taken only when used.
        """
        return 4 + 2 * self.gpus


def share(instance_type: str, gpus: int) -> Share:
    instance = INSTANCES[instance_type]
    part = gpus / instance.gpus
    return Share(
        gpus=gpus,
        vcpus=int(instance.vcpus * part),
        memory_gib=instance.memory_gib * part,
        nvlink=GPUS[instance.gpu].nvlink_gbs > 0,
    )


@dataclass(frozen=True)
class Server:
    """What a runtime adds to the pod."""

    image: Image
    args: list[str]
    ports: dict[str, int]
    """Container ports by name; `http` is always there."""
    serving_ports: list[str]
    """Names of the ports that clients call."""
    metrics_ports: list[str]
    """Names of the ports that Prometheus scrapes, the engine's first."""
    health_path: str
    command: list[str] = field(default_factory=list[str])
    """Replaces the image's entrypoint; empty: kept."""
    env: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    mounts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    volumes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    last_act: str = ""
    """Shell command with which preStop ends, right before SIGTERM; empty: preStop only waits."""


@dataclass(frozen=True)
class Workload:
    """A service as its objects need it."""

    name: str
    namespace: str
    pool: str
    weights: str
    share: Share
    start: Start
    drain: Drain
    server: Server
    config_hash: pulumi.Input[str]
    """Changes with what the pods read only at their start; rolls them."""
    region: pulumi.Input[str] | None = None
    """Of the weights' bucket; None: the cluster's."""
    most_replicas: int = 1
    """As many as scaling may ask for; an update takes longer the more there are."""
    priority: int = 0
    """Above 0: the pods have a PriorityClass of their own."""
    client_namespaces: list[str] = field(default_factory=list[str])
    monitoring_namespace: str = "monitoring"

    @property
    def selector(self) -> dict[str, str]:
        """Labels that tell this service's pods from all others. Immutable in a Deployment."""
        return {"app.kubernetes.io/name": self.name, "app.kubernetes.io/component": "inference"}

    @property
    def pods_name(self) -> str:
        """Name of the headless Service."""
        return pods_name(self.name)

    @property
    def labels(self) -> dict[str, str]:
        return {**self.selector, "app.kubernetes.io/part-of": "eks-llm"}

    def metadata(self, name: str | None = None, **more: Any) -> dict[str, Any]:
        return {"name": name or self.name, "namespace": self.namespace, "labels": self.labels, **more}


def model_path(service: str) -> str:
    """Where the weights of a service lie in its container."""
    return f"/models/{service}"


def content_hash(*documents: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(documents, sort_keys=True).encode()).hexdigest()[:10]


# Pod ----------------------------------------------------------------------------------------------------------------


def environment(share: Share, start: Start) -> list[dict[str, Any]]:
    """Environment of the main container, for both runtimes."""
    values = {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # keeps kernels and collectives of a stream in order
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # forked workers break once CUDA was touched
        "VLLM_ENGINE_READY_TIMEOUT_S": str(start.load),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",  # weights come from the node alone; a missing file fails at once
        # One variable per library, since not all of them follow XDG_CACHE_HOME.
        "XDG_CACHE_HOME": CACHE_MOUNT,
        "VLLM_CACHE_ROOT": f"{CACHE_MOUNT}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_MOUNT}/inductor",
        "TRITON_CACHE_DIR": f"{CACHE_MOUNT}/triton",
        "CUDA_CACHE_PATH": f"{CACHE_MOUNT}/cuda",
        "FLASHINFER_WORKSPACE_BASE": CACHE_MOUNT,
        "HOME": "/tmp",  # noqa: S108 an emptyDir of the pod
        "USER": "eks-llm",  # torch asks who runs it, and the user id may have no name in the image
        "LC_ALL": "C.UTF-8",
    }
    if share.gpus > 1:
        values["NCCL_IB_DISABLE"] = "1"  # one node: no search for EFA or InfiniBand
        if share.nvlink:
            values["NCCL_P2P_LEVEL"] = "NVL"
    return [{"name": name, "value": value} for name, value in values.items()]


def pre_stop(seconds: int, last_act: str) -> dict[str, Any]:
    """The hook that waits until nobody sends new requests. The kubelet's own sleep needs no shell."""
    if not last_act:
        return {"sleep": {"seconds": seconds}}
    return {"exec": {"command": ["/bin/sh", "-c", f"sleep {seconds}; {last_act}"]}}


def probes(health_path: str, start: Start) -> dict[str, Any]:
    """Probes of the main container; `start`: how long it may load."""
    check = {"httpGet": {"path": health_path, "port": "http"}}
    asked = {"startupProbe": startup(start), "readinessProbe": READINESS, "livenessProbe": LIVENESS}
    return {name: {**check, **probe.fields} for name, probe in asked.items()}


def container(work: Workload) -> dict[str, Any]:
    server = work.server
    entrypoint = {"command": server.command} if server.command else {}
    return {
        "name": "server",
        "image": server.image.reference,
        **entrypoint,
        "args": server.args,
        "ports": [{"name": name, "containerPort": port} for name, port in server.ports.items()],
        "env": environment(work.share, work.start) + server.env,
        "resources": work.share.resources,
        **probes(server.health_path, work.start),
        "lifecycle": {"preStop": pre_stop(work.drain.pre_stop, server.last_act)},
        "volumeMounts": [
            {"name": "weights", "mountPath": model_path(work.name), "readOnly": True},
            {"name": "cache", "mountPath": CACHE_MOUNT},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            *server.mounts,
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": server.image.user,
            "runAsGroup": server.image.group,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def pod(work: Workload) -> dict[str, Any]:
    """The pod's spec. hostPath is needed for the NVMe array, so its namespace cannot be `baseline` or `restricted`."""
    image = work.server.image
    cache = cache_path(work.namespace, work.name)
    priority = {"priorityClassName": priority_class_name(work)} if work.priority else {}
    return {
        "serviceAccountName": work.name,
        **priority,
        "automountServiceAccountToken": False,
        # Else a Service called `vllm` gives every pod of the namespace VLLM_PORT=tcp://…, at which vLLM ends.
        "enableServiceLinks": False,
        "nodeSelector": node_selector(work.pool),
        "tolerations": [gpu_toleration()],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": work.selector},
                "matchLabelKeys": ["pod-template-hash"],
            }
        ],
        "terminationGracePeriodSeconds": work.drain.grace,
        # Process 1 ignores SIGTERM until it installs a handler, and neither server does before the model is loaded: a
        # pod that is removed while it loads would hold its GPUs for the whole grace period. Here it is not process 1.
        "shareProcessNamespace": True,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [init_container(work.weights, work.region, cache, f"{image.user}:{image.group}")],
        "containers": [container(work)],
        "volumes": [
            # The node makes it once the array is mounted; until then a pod waits, and the root disk is not filled.
            {"name": "nvme", "hostPath": {"path": NODE_FOLDER, "type": "Directory"}},
            # The init container makes these two; a type would be checked before it has run.
            {"name": "weights", "hostPath": {"path": weights_path(work.weights)}},
            {"name": "cache", "hostPath": {"path": cache}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{work.share.shm_gib}Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "10Gi"}},
            *work.server.volumes,
        ],
    }


def deployment(work: Workload) -> dict[str, Any]:
    """The Deployment. It says no `replicas`: the ScaledObject owns them.

    A rollout replaces pod by pod without a surge, because GPUs are the scarce resource: pools are sized for the sum of
    `scaling.max`, so a surge pod would wait for GPUs that only the pod it replaces can free. With one replica a
    rollout is therefore an outage of one start; `scaling.min: 2` avoids it.
    """
    limit = update_limit(work.start, work.drain, work.most_replicas)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": work.metadata(annotations={"pulumi.com/timeoutSeconds": str(limit)}),
        "spec": {
            "selector": {"matchLabels": work.selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "progressDeadlineSeconds": work.start.deadline,
            "revisionHistoryLimit": 3,
            "template": {
                "metadata": {
                    "labels": work.labels,
                    "annotations": {
                        CONFIG_HASH: work.config_hash,
                        # Host folders and scratch space would otherwise keep cluster-autoscaler from removing a node.
                        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "nvme,weights,cache,tmp",
                    },
                },
                "spec": pod(work),
            },
        },
    }


# Around the pod -----------------------------------------------------------------------------------------------------


def config_map(work: Workload, part: str, data: dict[str, str]) -> dict[str, Any]:
    """A ConfigMap of this content and no other: the name holds the hash, so old pods keep the one they started with."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": work.metadata(config_map_name(work.name, part, data)),
        "immutable": True,
        "data": data,
    }


def config_map_name(service: str, part: str, data: dict[str, str]) -> str:
    return f"{service}-{part}-{content_hash(data)}"


def service_account(work: Workload) -> dict[str, Any]:
    """Named like the service: the Pod Identity association of its weights binds to this name."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": work.metadata()}


def service(work: Workload, headless: bool = False) -> dict[str, Any]:
    """The Service; headless lists the ready pods by DNS, for a front door that balances by itself."""
    ports = [{"name": name, "port": port, "targetPort": name} for name, port in work.server.ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": work.metadata(work.pods_name if headless else None),
        "spec": {"selector": work.selector, "ports": ports, **({"clusterIP": "None"} if headless else {})},
    }


def pods_name(service: str) -> str:
    """Name of a service's headless Service."""
    return f"{service}-pods"


def priority_class_name(work: Workload) -> str:
    """With the value, which cannot be changed in place."""
    return f"{work.namespace}-{work.name}-{work.priority}"


def priority_class(work: Workload) -> dict[str, Any]:
    """A class of the service's own: its pods take GPUs from services of lower value when there are too few for all."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(work), "labels": work.labels},
        "value": work.priority,
        "description": f"Pods of the service {work.namespace}/{work.name}",
    }


def disruption_budget(work: Workload) -> dict[str, Any]:
    """One pod at a time; one that is still loading never blocks the drain of its node.

    Not `minAvailable: min`: at its minimum a service would then block every drain, and EKS gives a node update up after
    15 minutes. Cluster-autoscaler, which could wait for ever, does not come this far: it leaves nodes alone on which a
    GPU is in use (see `NodeAutoscaler`), so no service falls below its minimum to save a node.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": work.metadata(),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": work.selector},
        },
    }


PRIVATE_RANGES = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"]
POD_IDENTITY_AGENT = "169.254.170.23/32"
"""Link-local address of the agent on every node. Source: EKS user guide, "Set up the Amazon EKS Pod Identity Agent"."""


def network_policy(work: Workload) -> dict[str, Any]:
    """Nobody reaches the pods but clients and Prometheus; they reach nothing but DNS, S3 and the identity agent.

    A label admits nobody from another namespace: whoever may create pods anywhere could give it to them.

    S3 is reached at public addresses (by the gateway endpoint), so private ranges stay closed.
    """
    ports = work.server.ports

    def tcp(*numbers: int) -> list[dict[str, Any]]:
        return [{"protocol": "TCP", "port": number} for number in numbers]

    def namespaces(*names: str) -> dict[str, Any]:
        key = "kubernetes.io/metadata.name"
        return {"namespaceSelector": {"matchExpressions": [{"key": key, "operator": "In", "values": list(names)}]}}

    clients: list[dict[str, Any]] = [{"podSelector": {"matchLabels": {CLIENT_LABEL: "true"}}}]
    if work.client_namespaces:
        clients.append(namespaces(*work.client_namespaces))
    dns = {**namespaces("kube-system"), "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": work.metadata(),
        "spec": {
            "podSelector": {"matchLabels": work.selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": clients, "ports": tcp(*(ports[name] for name in work.server.serving_ports))},
                {
                    "from": [namespaces(work.monitoring_namespace)],
                    "ports": tcp(*(ports[name] for name in work.server.metrics_ports)),
                },
            ],
            "egress": [
                {"to": [dns], "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
                {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": PRIVATE_RANGES}}], "ports": tcp(443)},
                {"to": [{"ipBlock": {"cidr": POD_IDENTITY_AGENT}}], "ports": tcp(80)},
            ],
        },
    }
