"""Where pods of a GPU pool run: the labels and the taint that a pool puts on its nodes, and what a pod answers with.

Node pools (aws/) and services (serving/) must agree on these; neither imports the other.
"""

from typing import Any

from ..catalog.instances import GPUS, INSTANCES

POOL_LABEL = "eks-llm.dev/pool"
"""Node label that names the pool."""
GPU_RESOURCE = "nvidia.com/gpu"
"""Extended resource of the NVIDIA device plugin, and the taint key of GPU nodes (AWS EKS samples use the same)."""
NVME_MOUNT = "/mnt/k8s-disks/0"
"""Where nodeadm mounts the RAID0 array of instance-store disks. Source: amazon-eks-ami, nodeadm API."""
NODE_FOLDER = f"{NVME_MOUNT}/eks-llm"
"""The one folder of the array that pods may mount. Beside it lie the data of kubelet, containerd and pod logs, through
which a pod could read other pods' tokens and write their programs. Source: amazon-eks-ami, setup-local-disks."""


def node_labels(pool: str, instance_type: str) -> dict[str, str]:
    """Labels of a pool's nodes. Cluster-autoscaler needs the accelerator label to wait for the device plugin."""
    return {
        POOL_LABEL: pool,
        "k8s.amazonaws.com/accelerator": GPUS[INSTANCES[instance_type].gpu].accelerator,
        "nvidia.com/gpu.present": "true",
    }


def node_selector(pool: str) -> dict[str, str]:
    """The node selector of a pod that belongs on `pool`."""
    return {POOL_LABEL: pool}


def gpu_toleration() -> dict[str, Any]:
    """Toleration of the taint that keeps other pods off GPU nodes."""
    return {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
