"""GPUs, from NVIDIA's DCGM."""

from collections.abc import Iterator

from .. import metrics, thresholds
from ..rules import Alert, Severity, duration

HARDWARE_XIDS = (48, 62, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 121, 140, 143)
"""XIDs of memory, NVLink, PCIe and the GPU's own processor, after which a GPU needs a reset or goes. Others come from
the application. Source: NVIDIA, "XID Errors"."""
IDLE_SECONDS = 6 * 3600


def alerts() -> Iterator[Alert]:
    where = "GPU {{ $labels.gpu }} of {{ $labels.hostname }}"
    hardware = "|".join(map(str, HARDWARE_XIDS))
    yield Alert(
        "GPUXidHardware",
        f'{metrics.GPU_XID}{{xid=~"{hardware}"}} > 0',
        Severity.CRITICAL,
        summary=f"{where}: XID {{{{ $labels.xid }}}}, a hardware fault",
        description=(
            "Work on this GPU fails or gives wrong results until it is reset. EKS replaces the node, or do it by hand."
        ),
        fires="an XID of the hardware",
        meaning=(
            "The driver reported an XID of the hardware within the last five minutes: memory, NVLink, PCIe, the "
            "GPU's own processor. NVIDIA's page \"XID Errors\" explains the number."
        ),
        impact="Work on this GPU fails. With tensor parallelism all GPUs of the pod stand still.",
    )
    yield Alert(
        "GPUXidApplication",
        f'{metrics.GPU_XID}{{xid!~"0||{hardware}"}} > 0',
        Severity.WARNING,
        summary=f"{where}: XID {{{{ $labels.xid }}}}",
        description=(
            "The driver ended work on this GPU, most likely for a fault of the program. Look at the pod's log."
        ),
        fires="any other XID",
        meaning=(
            "The driver reported an XID that usually comes from the program: a fault of a kernel (13, 31), a "
            "program that was ended (43, 45)."
        ),
        impact="The program's CUDA context is gone; the server restarts.",
    )
    yield Alert(
        "GPUMemoryErrors",
        " or ".join(_rose(name, "15m") for name in (metrics.GPU_DOUBLE_BIT_ERRORS, metrics.GPU_UNCORRECTABLE_ROWS)),
        Severity.CRITICAL,
        summary=f"{where}: uncorrectable memory errors",
        description=(
            "The program that used the memory was ended. The rows are replaced when the GPU is reset: replace the node."
        ),
        fires="uncorrectable memory errors",
        meaning="A GPU counted uncorrectable memory errors within 15 minutes.",
        impact=(
            "The program that used the memory was ended. The GPU goes on, and has replaced the row after its next"
            " reset."
        ),
    )
    yield Alert(
        "GPURowRemapFailure",
        f"{metrics.GPU_REMAP_FAILURE} == 1",
        Severity.CRITICAL,
        summary=f"{where}: a faulty memory row cannot be replaced",
        description="The GPU has no spare rows left there and will fail again. Replace the node.",
        fires="a memory row cannot be replaced",
        meaning="A GPU could not replace a faulty memory row: it has no spare ones left there.",
        impact="It will fail again at the same place.",
    )
    yield Alert(
        "GPUThermalThrottling",
        f"rate({metrics.GPU_THERMAL_VIOLATION}[5m]) > 0",
        Severity.WARNING,
        summary=f"{where}: slowed down by heat",
        description=(
            "A GPU in a cloud should never be. With tensor parallelism it slows all GPUs of its pod. Replace the node."
        ),
        fires="a GPU is slowed down by heat for 10 minutes",
        meaning="A GPU has been slowed down by heat for ten minutes.",
        impact="It computes slower, and with tensor parallelism so do all GPUs of its pod.",
        after=600,
    )
    yield Alert(
        "GPUIdle",
        f'max_over_time({metrics.GPU_ACTIVE}{{exported_pod!=""}}[1h]) < {thresholds.IDLE}',
        Severity.INFO,
        summary=f"{where}: {{{{ $labels.exported_pod }}}} has not used it for {duration(IDLE_SECONDS)}",
        description="It costs the same. Lower scaling.min, or let the service rest with a front door.",
        fires="a pod does not use its GPU for 6 hours",
        meaning="A pod has a GPU and has used less than 1 % of it for six hours on end.",
        impact="Money: a GPU costs the same, used or not.",
        after=IDLE_SECONDS,
    )
    seen = f"count(count by (UUID) ({metrics.GPU_UTILISATION})) or vector(0)"
    yield Alert(
        "GPUMetricsMissing",
        f"sum({metrics.NODE_CAPACITY}{{{metrics.OF_GPUS}}}) - ({seen}) > 0",
        Severity.WARNING,
        summary="{{ $value }} GPUs of nodes have no metrics",
        description="The other GPU alerts are blind for them. Look at the pods nvidia-dcgm-exporter in gpu-operator.",
        fires="fewer GPUs are measured than nodes have, for 15 minutes",
        meaning="For 15 minutes fewer GPUs have been measured than the nodes have.",
        impact="The other GPU alerts and panels do not see them.",
        after=900,
    )


def _rose(counter: str, window: str) -> str:
    """True for a GPU whose counter is higher than it was within `window`.

    The exporter names the pod that has the GPU. A fault may end that pod, and then the series with its name ends before
    the counter has risen: so the GPU's series are taken together, whoever has it.
    """
    of_gpu = "by (hostname, gpu, UUID)"
    return f"max {of_gpu} ({counter}) > min {of_gpu} (min_over_time({counter}[{window}]))"
