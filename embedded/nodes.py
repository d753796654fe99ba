"""Nodes that do not exist, shaped like those of a stack's GPU pools: KWOK plays their kubelets.

The scheduler places pods on them and counts their GPUs as it would on EC2; their pods become Ready at once, or after
the time that they ask for, and run nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import yaml

from eks_llm.catalog.instances import GPUS, INSTANCES
from eks_llm.core.placement import GPU_RESOURCE, node_labels

from .api import Api, Manifest, condition
from .controlplane import LOOPBACK, ControlPlane
from .keda import listens
from .process import Process, stop
from .tools import TOOLS, provide
from .tools.source import go_module

FAKE = {"kwok.x-k8s.io/node": "fake"}
"""Annotation of the nodes that KWOK plays; it leaves all others alone."""
PROCESS = "kwok"
STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
"""Life cycles of nodes and pods, as KWOK publishes them: what happens at once, and heartbeats."""
READY_AGAIN: Manifest = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "pod-ready-again"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {
            "matchExpressions": [
                {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                {"key": ".metadata.ownerReferences.[].kind", "operator": "NotIn", "values": ["Job"]},
                {"key": ".status.phase", "operator": "In", "values": ["Running"]},
                {
                    "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
                    "operator": "NotIn",
                    "values": ["True"],
                },
            ]
        },
        "next": {
            "statusTemplate": 'conditions: [{type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}]',
        },
    },
}
"""A stage of our own: pods of a node that had been taken for lost are ready again, as kubelet would say."""
START = "pod-ready.stage.kwok.x-k8s.io/delay"
"""Annotation of a pod: how long it takes until it is ready, e.g. `90s`. Default: no time."""


@dataclass(frozen=True)
class Nodes:
    """KWOK for a control plane that is up."""

    plane: ControlPlane

    def start(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Starts KWOK. Raises `PlatformError`."""
        stages = self.plane.home / "kwok-stages.yaml"
        stages.write_text(kwok_stages())
        port = self.plane.ports["kwok"]
        flags = {
            "kubeconfig": str(self.plane.kubeconfig),
            "config": str(stages),
            "manage-nodes-with-annotation-selector": ",".join(f"{key}={value}" for key, value in FAKE.items()),
            "node-lease-duration-seconds": str(4 * self.plane.pace.heartbeat),  # renewed after a quarter of it
            "server-address": f"{LOOPBACK}:{port}",
            "cidr": "10.128.0.0/16",
            "node-ip": "10.127.0.1",
        }
        command = [str(provide("kwok")), *(f"--{flag}={value}" for flag, value in flags.items())]
        seconds = Process(PROCESS, command, self.plane.home, lambda: listens(port)).start()
        progress(f"kwok ready in {seconds:.1f} s")

    def stop(self) -> None:
        stop(self.plane.home, [PROCESS])


def gpu_node(pool: str, instance_type: str, zone: str, index: int, *, fake: bool = True) -> Manifest:
    """A node of a GPU pool: its labels, its taint, and the GPUs, memory and vCPUs of its EC2 type.

    `fake`: KWOK plays it. Otherwise it is one for the pod runner.
    """
    instance = INSTANCES[instance_type]
    name = f"{pool}-{index}" if fake else f"{pool}-local-{index}"
    capacity = {
        "cpu": str(instance.vcpus),
        "memory": f"{instance.memory_gib}Gi",
        "pods": str(instance.max_pods),
        "ephemeral-storage": f"{instance.nvme_gb}G",
        GPU_RESOURCE: str(instance.gpus),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": FAKE if fake else {},
            "labels": {
                **node_labels(pool, instance_type),
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": instance_type,
                "topology.kubernetes.io/zone": zone,
                "nvidia.com/gpu.product": GPUS[instance.gpu].name.replace(" ", "-"),
                "nvidia.com/gpu.count": str(instance.gpus),
            },
        },
        "spec": {"taints": [{"key": GPU_RESOURCE, "value": "true", "effect": "NoSchedule"}]},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def add(api: Api, node: Manifest) -> None:
    """Creates a node and waits until it is ready and the scheduler may use it."""
    created = api.create({key: value for key, value in node.items() if key != "status"})
    name = created["metadata"]["name"]
    identity = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    # KWOK fills in a capacity of its own as it makes the node ready, so ours comes after that.
    api.wait(f"node {name} ready", lambda: is_ready(api.get("v1", "Node", name)))
    api.patch({**identity, "status": node["status"]}, subresource="status")


def is_ready(node: Manifest) -> bool:
    """Ready, and no longer tainted as not ready by the node life cycle controller."""
    taints = node["spec"].get("taints", [])
    return condition(node, "Ready") == "True" and not any(
        taint["key"].startswith("node.kubernetes.io/") for taint in taints
    )


def kwok_stages() -> str:
    """KWOK's rules of what becomes of nodes and pods, as YAML."""
    folder = go_module("sigs.k8s.io/kwok", TOOLS["kwok"].version) / "kustomize" / "stage"
    documents = []
    for stage in STAGES:
        names = yaml.safe_load((folder / stage / "kustomization.yaml").read_text())["resources"]
        documents += [yaml.safe_load((folder / stage / name).read_text()) for name in names]
    for document in documents:
        if document["metadata"]["name"] == "pod-ready":
            start = {"expressionFrom": f'.metadata.annotations["{START}"]'}
            document["spec"]["delay"] = {"durationMilliseconds": 0, "durationFrom": start}
    return yaml.safe_dump_all([*documents, READY_AGAIN])
