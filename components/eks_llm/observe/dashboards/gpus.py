"""The dashboard of the GPUs, from NVIDIA's DCGM."""

from .. import metrics
from .panels import Board, Figure, Graph, Rows

UID = "llm-gpus"
GPU = "{{hostname}} GPU {{gpu}}"


MEMORY = f"{metrics.GPU_MEMORY_USED} / ({metrics.GPU_MEMORY_USED} + {metrics.GPU_MEMORY_FREE})"
ROWS: Rows = {
    "Now": [
        Figure(
            "GPUs",
            "short",
            f"count({metrics.GPU_UTILISATION})",
            look="GPUs that report.",
            alerts=("GPUMetricsMissing", "GPUMissing"),
        ),
        Figure(
            "GPUs with a pod",
            "short",
            f'count({metrics.GPU_UTILISATION}{{exported_pod!=""}}) or vector(0)',
            look="The others are paid for and idle.",
            alerts=("GPUIdle",),
        ),
        Figure(
            "Busy",
            "percent",
            f"avg({metrics.GPU_UTILISATION})",
            decimals=0,
            look="Time with a kernel running, over all GPUs.",
        ),
        Figure(
            "XID errors",
            "short",
            f"sum({metrics.GPU_XID}) or vector(0)",
            worse=(1, 1),
            look="Of the last five minutes. 31 and 43 are a program's fault; 48, 63, 64, 74, 79, 94, 95 are "
            "hardware: drain the node.",
            alerts=("GPUXidHardware", "GPUXidApplication"),
        ),
        Figure(
            "Hottest GPU",
            "celsius",
            f"max({metrics.GPU_TEMPERATURE})",
            worse=(80, 85),
            look="An A100 slows down at about 85 °C.",
        ),
        Figure("Power", "watt", f"sum({metrics.GPU_POWER})", look="Of all GPUs; an A100 draws up to 400 W."),
    ],
    "Use": [
        Graph(
            "Time with a kernel running",
            "percent",
            {GPU: metrics.GPU_UTILISATION},
            most=100,
            look="High does not mean fast. One GPU of a tensor-parallel group at 0 while others work: it hangs.",
        ),
        Graph(
            "Tensor cores busy",
            "percentunit",
            {GPU: metrics.GPU_TENSOR_ACTIVE},
            most=1,
            look="Prompt processing drives it up; generation alone leaves it low, as it waits for memory.",
        ),
        Graph(
            "Memory traffic",
            "percentunit",
            {GPU: metrics.GPU_DRAM_ACTIVE},
            most=1,
            look="Generation is limited by it: near 80 % the GPU gives what it has.",
        ),
        Graph(
            "Multiprocessors busy",
            "percentunit",
            {GPU: metrics.GPU_SM_ACTIVE},
            most=1,
            look="Low while a kernel runs all the time: small batches, or the engine waits for the CPU.",
        ),
        Graph(
            "Memory in use",
            "percentunit",
            {GPU: MEMORY},
            most=1,
            look="Flat by design: the engine takes engine.gpuMemoryUtilization at its start. A step means a "
            "start or an end of a pod.",
        ),
        Graph(
            "Who has the GPUs",
            "short",
            {
                "{{exported_namespace}} {{exported_pod}}": "count by (exported_namespace, exported_pod) "
                f'({metrics.GPU_UTILISATION}{{exported_pod!=""}})'
            },
            stacked=True,
            look="GPUs by pod.",
        ),
    ],
    "Links": [
        Graph(
            "NVLink traffic",
            "MBs",
            {GPU: metrics.GPU_NVLINK},
            look="Tensor parallelism sends with every layer. One GPU far below its group: a link is down.",
        ),
        Graph(
            "PCIe sent",
            "Bps",
            {GPU: metrics.GPU_PCIE_SENT},
            look="High during generation: KV cache or weights are moved to the host, which slows all down.",
        ),
        Graph(
            "PCIe received", "Bps", {GPU: metrics.GPU_PCIE_RECEIVED}, look="High while weights load; low afterwards."
        ),
    ],
    "Health": [
        Graph(
            "XID errors in five minutes",
            "short",
            {f"{GPU} XID {{{{xid}}}}": f"{metrics.GPU_XID} > 0"},
            alerts=("GPUXidHardware", "GPUXidApplication"),
            look="Empty is good. NVIDIA's XID catalogue says what a number means.",
        ),
        Graph(
            "Memory errors",
            "short",
            {
                f"{GPU} rows remapped": f"{metrics.GPU_UNCORRECTABLE_ROWS} > 0",
                f"{GPU} double-bit errors": f"{metrics.GPU_DOUBLE_BIT_ERRORS} > 0",
                f"{GPU} remap failed": f"{metrics.GPU_REMAP_FAILURE} > 0",
            },
            alerts=("GPUMemoryErrors", "GPURowRemapFailure"),
            look="Empty is good. Remapped rows need a reset of the GPU; a failed remap needs another machine.",
        ),
        Graph(
            "Temperature",
            "celsius",
            {GPU: metrics.GPU_TEMPERATURE, f"{GPU} memory": metrics.GPU_MEMORY_TEMPERATURE},
            limit=85,
            look="A single hot GPU makes its whole group slow.",
        ),
        Graph("Power", "watt", {GPU: metrics.GPU_POWER}, look="Low under load: throttled, or waiting."),
        Graph(
            "Share of time throttled",
            "percentunit",
            {
                f"{GPU} by heat": f"rate({metrics.GPU_THERMAL_VIOLATION}[5m]) / 1e9",
                f"{GPU} by power": f"rate({metrics.GPU_POWER_VIOLATION}[5m]) / 1e9",
            },
            most=1,
            alerts=("GPUThermalThrottling",),
            look="By power is normal at full load. By heat is not: the machine has a cooling problem.",
        ),
    ],
}
GPUS = Board(UID, "LLM GPUs", "Use, links and health of every GPU, as DCGM reports them.", ROWS)
