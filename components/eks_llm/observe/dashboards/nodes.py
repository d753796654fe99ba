"""The dashboard of the machines, and of what they cost per token."""

from ...core.placement import NVME_MOUNT
from .. import metrics
from .panels import CHOSEN, Board, Figure, Graph, Rows

UID = "llm-nodes"
NVME = f'mountpoint="{NVME_MOUNT}"'


OFFERED = f"sum({metrics.NODE_ALLOCATABLE}{{{metrics.OF_GPUS}}})"
USED = (
    f"sum({metrics.POD_REQUESTS}{{{metrics.OF_GPUS}}} * on (namespace, pod) group_left () "
    f'(max by (namespace, pod) ({metrics.POD_PHASE}{{phase="Running"}})))'
)
GPU_NODES = f"({metrics.NODE_ALLOCATABLE}{{{metrics.OF_GPUS}}} > 0)"
ROWS: Rows = {
    "Now": [
        Figure(
            "GPU nodes",
            "short",
            f"count({GPU_NODES}) or vector(0)",
            look="Nodes that offer GPUs.",
            alerts=("NodePoolAtMax",),
        ),
        Figure(
            "GPUs offered",
            "short",
            OFFERED,
            look="Fewer than nodes x GPUs: a device plugin is not ready.",
            alerts=("GPUMissing",),
        ),
        Figure(
            "GPUs held by pods",
            "percentunit",
            f"{USED} / {OFFERED}",
            decimals=0,
            look="The rest is paid for and idle: nodes.min is too high, or pods do not fit together.",
        ),
        Figure(
            "Nodes not ready",
            "short",
            f'sum({metrics.NODE_CONDITION}{{condition="Ready",status!="true"}}) or vector(0)',
            worse=(1, 1),
            look="EKS replaces a broken GPU node by itself after ten minutes.",
            alerts=("GPUNodeNotReady",),
        ),
        Figure(
            "USD per 1M output tokens",
            "currencyUSD",
            f"min({metrics.SERVICE_COST}{{{CHOSEN}}})",
            decimals=2,
            look="Of the cheapest service. Empty where no price is known.",
            width=4,
        ),
        Figure(
            "NVMe free, least",
            "percentunit",
            f"min({metrics.DISK_FREE}{{{NVME}}} / {metrics.DISK_SIZE}{{{NVME}}})",
            worse=(0.2, 0.1),
            look="Nodes keep a copy of every version of the weights they ever served. Full: old versions pile "
            "up; replace the node.",
        ),
    ],
    "Cost": [
        Graph(
            "USD per 1M output tokens",
            "currencyUSD",
            {"{{service}}": f"max by (service) ({metrics.SERVICE_COST}{{{CHOSEN}}})"},
            width=12,
            look="GPUs that the replicas hold, over the tokens of the last hour. High when idle: scaling.min too "
            "high for the hour. High under load: small batches, or a larger GPU than needed.",
        ),
        Graph(
            "GPUs",
            "short",
            {"offered by nodes": OFFERED, "held by running pods": USED},
            width=12,
            look="The gap is paid for and idle. After scale-down, nodes go about ten minutes later than pods.",
        ),
    ],
    "Machines": [
        Graph(
            "CPU in use",
            "percentunit",
            {"{{instance}}": f'1 - avg by (instance) (rate({metrics.CPU_SECONDS}{{mode="idle"}}[5m]))'},
            most=1,
            look="Front ends and tokenizers run on the CPU: near 100 %, tokens come late while GPUs idle.",
        ),
        Graph(
            "Memory in use",
            "percentunit",
            {"{{instance}}": f"1 - {metrics.MEMORY_AVAILABLE} / {metrics.MEMORY_TOTAL}"},
            most=1,
            look="Page cache counts as free.",
        ),
        Graph(
            "NVMe in use",
            "percentunit",
            {"{{instance}}": f"1 - {metrics.DISK_FREE}{{{NVME}}} / {metrics.DISK_SIZE}{{{NVME}}}"},
            most=1,
            limit=0.9,
            look="Weights of every version that the node has served, and compile caches.",
        ),
        Graph(
            "Received",
            "Bps",
            {"{{instance}}": f'sum by (instance) (rate({metrics.NODE_RECEIVED}{{device!~"lo|veth.*|eni.*"}}[5m]))'},
            look="A new node fetches weights from S3: several GB/s for a minute or two is right.",
        ),
        Graph(
            "Conditions",
            "short",
            {
                "{{node}} {{condition}}": "max by (node, condition) "
                f'({metrics.NODE_CONDITION}{{status="true",condition!="Ready",condition!~".+Ready"}} == 1) or '
                f'max by (node, condition) ({metrics.NODE_CONDITION}{{status!="true",condition=~".*Ready"}} == 1)'
            },
            most=1,
            alerts=("GPUNodeNotReady", "GPUHardwareUnhealthy"),
            look="Empty is good. AcceleratedHardwareReady is the node monitoring agent's verdict on the GPUs; "
            "pressure conditions evict pods.",
        ),
    ],
}
NODES = Board(
    UID,
    "LLM nodes and cost",
    "Machines, their GPUs and disks, and what a million tokens cost.",
    ROWS,
    services_of=metrics.RUNNING,
)
