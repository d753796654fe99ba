"""Kubernetes versions of EKS and the node images that it offers: `KUBERNETES`, `AMI_TYPES`, `AmiType`."""

import datetime
import re
from enum import Enum

from ._load import Fact, load


class KubernetesVersion(Fact):
    """A minor version of Kubernetes as EKS supports it."""

    release: datetime.date
    standard_until: datetime.date
    """First day of extended support, which costs more."""
    extended_until: datetime.date
    """First day without support: EKS upgrades the cluster by itself."""
    ami_release: str = ""
    """Release of the AL2023 images (all variants), e.g. `1.35.6-20260714`; empty for versions out of support."""
    addons: dict[str, str] = {}
    """Pinned build of each add-on that a cluster gets; empty for versions out of support."""
    unverified: tuple[str, ...] = ()
    """What rests on an inference; see the head of the file."""


class AmiFacts(Fact):
    """What a node image carries."""

    family: str
    """`al2023` or `bottlerocket`."""
    architecture: str
    """`x86_64` or `arm64`."""
    nodeadm: bool = False
    """Is configured by a nodeadm NodeConfig in user data."""
    nvidia: bool = False
    """Has the NVIDIA driver, fabric manager and persistence daemon."""
    driver: str = ""
    """Version of the NVIDIA driver; empty: none, or not known."""
    container_toolkit: bool = False
    device_plugin: bool = False
    """Runs the NVIDIA device plugin itself, so that a second one would clash."""


class _File(Fact):
    sources: list[str]
    date: datetime.date
    control_plane_usd: dict[str, float]
    kubernetes: dict[str, KubernetesVersion]
    ami_types: dict[str, AmiFacts]


_file = load("eks.yaml", _File)

KUBERNETES: dict[str, KubernetesVersion] = _file.kubernetes
"""Versions by minor, newest first."""
AMI_TYPES: dict[str, AmiFacts] = _file.ami_types
"""Images by the name that EKS uses."""
NODES_LIMIT = 450
"""Most nodes of a managed node group, where no quota was raised. Source: EKS user guide, "Service quotas"."""
NODE_GROUPS_LIMIT, NODE_GROUPS_QUOTA = 30, "L-6D54EA21"
"""Most managed node groups of a cluster, likewise, and the code of that quota."""
CONTROL_PLANE_USD: dict[str, float] = _file.control_plane_usd
"""Price per cluster and hour in `standard` and `extended` support."""


class AmiType(Enum):
    """The node images of EKS that a stack may name."""

    AL2023 = "AL2023_x86_64_STANDARD"
    AL2023_ARM = "AL2023_ARM_64_STANDARD"
    AL2023_NVIDIA = "AL2023_x86_64_NVIDIA"
    AL2023_ARM_NVIDIA = "AL2023_ARM_64_NVIDIA"
    BOTTLEROCKET_NVIDIA = "BOTTLEROCKET_x86_64_NVIDIA"
    BOTTLEROCKET_ARM_NVIDIA = "BOTTLEROCKET_ARM_64_NVIDIA"

    @property
    def facts(self) -> AmiFacts:
        return AMI_TYPES[self.value]

    @property
    def family(self) -> str:
        return self.facts.family


def architecture(instance_type: str) -> str:
    """`x86_64` or `arm64`, told by EC2's naming rule: a `g` behind the generation digit means Graviton.

    p6e-gb200 and its kin, whose CPU is NVIDIA's Grace, are the exception. Source: EC2 user guide, "Amazon EC2 instance
    type naming conventions".
    """
    return "arm64" if re.match(r"[a-z]+\d+[a-z]*g|p6e-gb", instance_type) else "x86_64"
