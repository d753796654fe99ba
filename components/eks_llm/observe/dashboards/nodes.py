"""The dashboard of the machines, and of what they cost per token."""

from typing import Any

from ...core.placement import NVME_MOUNT
from .. import metrics
from ..rules import RUNBOOKS
from .panels import CHOSEN, board, figure, graph, variables

UID = "llm-nodes"
GPU = 'resource="nvidia_com_gpu"'
NVME = f'mountpoint="{NVME_MOUNT}"'


def nodes(runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """The dashboard as JSON. `runbooks`: the web address of docs/runbooks/."""
    offered = f"sum({metrics.NODE_ALLOCATABLE}{{{GPU}}})"
    used = (
        f"sum({metrics.POD_REQUESTS}{{{GPU}}} * on (namespace, pod) group_left () "
        f'(max by (namespace, pod) ({metrics.POD_PHASE}{{phase="Running"}})))'
    )
    gpu_nodes = f"({metrics.NODE_ALLOCATABLE}{{{GPU}}} > 0)"
    groups = {
        "Now": [
            figure("GPU nodes", "short", f"count({gpu_nodes}) or vector(0)", look="Nodes that offer GPUs.",
                   alerts=("NodePoolAtMax",)),
            figure("GPUs offered", "short", offered, look="Fewer than nodes x GPUs: a device plugin is not ready.",
                   alerts=("GPUMissing",)),
            figure("GPUs held by pods", "percentunit", f"{used} / {offered}", decimals=0,
                   look="The rest is paid for and idle: nodes.min is too high, or pods do not fit together."),
            figure("Nodes not ready", "short",
                   f'sum({metrics.NODE_CONDITION}{{condition="Ready",status!="true"}}) or vector(0)', worse=(1, 1),
                   look="EKS replaces a broken GPU node by itself after ten minutes.", alerts=("GPUNodeNotReady",)),
            figure("USD per 1M output tokens", "currencyUSD", f"min({metrics.SERVICE_COST}{{{CHOSEN}}})", decimals=2,
                   look="Of the cheapest service. Empty where no price is known.", width=4),
            figure("NVMe free, least", "percentunit",
                   f"min({metrics.DISK_FREE}{{{NVME}}} / {metrics.DISK_SIZE}{{{NVME}}})", worse=(0.2, 0.1),
                   look="Nodes keep a copy of every version of the weights they ever served. Full: old versions pile "
                   "up; replace the node."),
        ],
        "Cost": [
            graph("USD per 1M output tokens", "currencyUSD",
                  {"{{service}}": f"max by (service) ({metrics.SERVICE_COST}{{{CHOSEN}}})"}, width=12,
                  look="GPUs that the replicas hold, over the tokens of the last hour. High when idle: scaling.min too "
                  "high for the hour. High under load: small batches, or a larger GPU than needed."),
            graph("GPUs", "short", {"offered by nodes": offered, "held by running pods": used}, width=12,
                  look="The gap is paid for and idle. After scale-down, nodes go about ten minutes later than pods."),
        ],
        "Machines": [
            graph("CPU in use", "percentunit", {"{{instance}}":
                  f'1 - avg by (instance) (rate({metrics.CPU_SECONDS}{{mode="idle"}}[5m]))'}, most=1,
                  look="Front ends and tokenizers run on the CPU: near 100 %, tokens come late while GPUs idle."),
            graph("Memory in use", "percentunit", {"{{instance}}":
                  f"1 - {metrics.MEMORY_AVAILABLE} / {metrics.MEMORY_TOTAL}"}, most=1,
                  look="Page cache counts as free."),
            graph("NVMe in use", "percentunit", {"{{instance}}":
                  f"1 - {metrics.DISK_FREE}{{{NVME}}} / {metrics.DISK_SIZE}{{{NVME}}}"}, most=1, limit=0.9,
                  look="Weights of every version that the node has served, and compile caches."),
            graph("Received", "Bps", {"{{instance}}":
                  f'sum by (instance) (rate({metrics.NODE_RECEIVED}{{device!~"lo|veth.*|eni.*"}}[5m]))'},
                  look="A new node fetches weights from S3: several GB/s for a minute or two is right."),
            graph("Conditions", "short", {"{{node}} {{condition}}":
                  f'max by (node, condition) ({metrics.NODE_CONDITION}{{status="true",condition!="Ready",'
                  'condition!~".+Ready"} == 1) or '
                  f'max by (node, condition) ({metrics.NODE_CONDITION}{{status!="true",condition=~".*Ready"}} == 1)'},
                  most=1, alerts=("GPUNodeNotReady", "GPUHardwareUnhealthy"),
                  look="Empty is good. AcceleratedHardwareReady is the node monitoring agent's verdict on the GPUs; "
                  "pressure conditions evict pods."),
        ],
    }  # fmt: skip
    return board(
        UID,
        "LLM nodes and cost",
        "Machines, their GPUs and disks, and what a million tokens cost.",
        groups,
        variables(metrics.RUNNING),
        runbooks,
    )
