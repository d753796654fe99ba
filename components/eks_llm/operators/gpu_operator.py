"""`GpuOperator`: NVIDIA's device plugin, node labels, GPU metrics and MIG on nodes whose AMI brings the driver."""

from enum import Enum
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_kubernetes.helm.v3 import Release
from pydantic import field_validator

from ..catalog.eks import AMI_TYPES, AmiFacts, AmiType
from ..core.component import Component
from ..core.customize import Customize
from ..core.model import Model, component_inputs
from ..core.placement import POOL_LABEL, gpu_toleration
from ..observe import metrics
from ..sizing.needs import Context, Needs, answers
from . import _helm
from ._helm import PodSecurity, chart_needs, namespace, release

NAMESPACE = "gpu-operator"

# Arguments ----------------------------------------------------------------------------------------------------------


class Mig(Enum):
    """How MIG slices of a GPU are offered to pods."""

    NONE = "none"
    SINGLE = "single"
    """Every slice of a node has the same size and is offered as `nvidia.com/gpu`."""
    MIXED = "mixed"
    """Slices of different sizes, each offered under its own name."""


class GpuOperatorArgs(TypedDict):
    ami_type: AmiType
    """AMI type of the GPU pools, e.g. `AL2023_x86_64_NVIDIA`. What the image carries is switched off in the operator,
    as two drivers or two device plugins on a node collide; so all GPU pools of a cluster have images of one family."""
    mig: NotRequired[Mig]
    """Default `none`: a model server takes whole GPUs. Otherwise the operator's MIG manager cuts each node's GPUs by
    its label `nvidia.com/mig.config`; on Bottlerocket the image's own manager does."""
    service_monitors: NotRequired[bool]
    """Let Prometheus scrape GPU metrics. Default true; needs the CRD ServiceMonitor, which `Monitoring` installs. The
    operator skips its ServiceMonitors silently when the CRD is missing, so create `Monitoring` first."""
    customize: NotRequired[Customize]
    """Properties to merge into child resources, by the child's name: docs/reference/components.md. Default: none."""


class GpuOperatorSettings(Model):
    mig: Mig = Mig.NONE
    service_monitors: bool = True


class _GpuOperator(GpuOperatorSettings):
    ami_type: AmiType
    customize: Customize = {}

    @field_validator("ami_type")
    @classmethod
    def _has_the_driver(cls, ami_type: AmiType) -> AmiType:
        if not ami_type.facts.nvidia:
            known = ", ".join(name for name, facts in AMI_TYPES.items() if facts.nvidia)
            raise ValueError(f"{ami_type.value} has no NVIDIA driver (use {known})")
        return ami_type


# Builders -----------------------------------------------------------------------------------------------------------

VIRTUAL_MACHINES = (
    "ccManager",
    "kataSandboxDevicePlugin",
    "sandboxDevicePlugin",
    "vfioManager",
    "vgpuDeviceManager",
    "vgpuManager",
)
"""Components that hand GPUs to virtual machines; on EKS pods use them directly."""

DCGM_METRICS = (
    (metrics.GPU_UTILISATION, "gauge", "Time with a kernel running in %"),
    (metrics.GPU_MEMORY_COPY, "gauge", "Time with memory traffic in %"),
    (metrics.GPU_ACTIVE, "gauge", "Share of time with the compute engine busy"),
    (metrics.GPU_SM_ACTIVE, "gauge", "Share of cycles with a warp on the SM"),
    (metrics.GPU_SM_OCCUPANCY, "gauge", "Share of warp slots in use"),
    (metrics.GPU_TENSOR_ACTIVE, "gauge", "Share of cycles with the tensor cores busy"),
    (metrics.GPU_DRAM_ACTIVE, "gauge", "Share of cycles with memory busy"),
    (metrics.GPU_PCIE_SENT, "gauge", "Bytes per second sent over PCIe"),
    (metrics.GPU_PCIE_RECEIVED, "gauge", "Bytes per second received over PCIe"),
    (metrics.GPU_NVLINK, "counter", "NVLink traffic of all links"),
    (metrics.GPU_MEMORY_USED, "gauge", "Memory in use in MiB"),
    (metrics.GPU_MEMORY_FREE, "gauge", "Memory free in MiB"),
    (metrics.GPU_MEMORY_RESERVED, "gauge", "Memory reserved in MiB"),
    (metrics.GPU_SM_CLOCK, "gauge", "SM clock in MHz"),
    (metrics.GPU_TEMPERATURE, "gauge", "GPU temperature in C"),
    (metrics.GPU_MEMORY_TEMPERATURE, "gauge", "Memory temperature in C"),
    (metrics.GPU_POWER, "gauge", "Power draw in W"),
    (metrics.GPU_ENERGY, "counter", "Energy since boot in mJ"),
    (metrics.GPU_POWER_VIOLATION, "counter", "Time throttled by the power limit in ns"),
    (metrics.GPU_THERMAL_VIOLATION, "counter", "Time throttled by heat in ns"),
    (metrics.GPU_LAST_XID, "gauge", "Last XID error"),
    (metrics.GPU_XID, "counter", "XID errors in the last window"),
    (metrics.GPU_DOUBLE_BIT_ERRORS, "counter", "Double-bit ECC errors since the driver was loaded"),
    (metrics.GPU_PCIE_REPLAYS, "counter", "PCIe retries"),
    (metrics.GPU_CORRECTABLE_ROWS, "counter", "Rows remapped for correctable errors"),
    (metrics.GPU_UNCORRECTABLE_ROWS, "counter", "Rows remapped for uncorrectable errors"),
    (metrics.GPU_REMAP_FAILURE, "gauge", "1 when a row could not be remapped"),
)
"""What dcgm-exporter exports: field, Prometheus type, help. The operator's default leaves out SM activity, throttling,
ECC and the XID count: the last XID is never reset, so only a count shows a new one."""


def dcgm_csv() -> str:
    """The metrics as dcgm-exporter reads them: one line of field, type and help per metric; no header."""
    return "\n".join(", ".join(metric) for metric in DCGM_METRICS) + "\n"


def gpu_operator_values(ami: AmiFacts, mig: Mig = Mig.NONE, service_monitors: bool = True) -> dict[str, Any]:
    """Values of the chart `gpu-operator` for nodes whose image carries `ami`."""
    enabled = {
        "driver": not ami.nvidia,
        "toolkit": not ami.container_toolkit,
        "devicePlugin": not ami.device_plugin,
        # The image that has the device plugin (Bottlerocket) has the MIG manager too. Source: EKS user guide.
        "migManager": mig is not Mig.NONE and not ami.device_plugin,
        "gfd": True,
        "nfd": True,
        "nodeStatusExporter": True,
        "dcgmExporter": True,
        **dict.fromkeys(VIRTUAL_MACHINES, False),
    }
    values: dict[str, Any] = {part: {"enabled": on} for part, on in enabled.items()}
    values["mig"] = {"strategy": mig.value}
    values["dcgmExporter"] |= {
        "serviceMonitor": {"enabled": service_monitors},
        "config": {"name": "dcgm-metrics", "create": True, "data": dcgm_csv()},
    }
    values["daemonsets"] = {"tolerations": [gpu_toleration()]}
    values["node-feature-discovery"] = {"worker": {"tolerations": [gpu_toleration()]}}
    values["operator"] = {
        "upgradeCRD": True,  # Helm itself never upgrades these CRDs; a hook of the chart does
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": POOL_LABEL, "operator": "DoesNotExist"}]}]
                }
            }
        },
    }
    return values


# Needs --------------------------------------------------------------------------------------------------------------


def needs(_name: str, settings: GpuOperatorSettings, _context: Context) -> Needs:
    # The image of the nodes decides what runs on them, and nothing of what runs elsewhere.
    ami = AmiType.AL2023_NVIDIA.facts
    return chart_needs("gpu-operator", gpu_operator_values(ami, settings.mig, settings.service_monitors))


# Component ----------------------------------------------------------------------------------------------------------


@answers(GpuOperatorSettings, needs)
class GpuOperator(Component):
    """NVIDIA's GPU operator, in a namespace that admits privileged pods: its DaemonSets reach into the host."""

    CHILDREN = {"namespace": _helm.NAMESPACE, "release": _helm.RELEASE}

    release: Release
    """The Helm release. GPU workloads depend on it, so that they go first."""

    def __init__(self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        model = GpuOperator.checked(_GpuOperator, args, name)
        super().__init__(
            "eks-llm:index:GpuOperator", name, component_inputs(model, GpuOperatorSettings), opts, model.customize
        )
        values = gpu_operator_values(model.ami_type.facts, model.mig, model.service_monitors)
        self.namespace = own = namespace(f"{name}-namespace", NAMESPACE, PodSecurity.PRIVILEGED, self)
        self.release = release(f"{name}-release", "gpu-operator", own.metadata.name, values, parent=self)
        self.register_outputs({})
