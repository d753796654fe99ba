"""Where services run, made by this stack or not: what the reference program needs to know of a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_kubernetes as k8s

from eks_llm.observe.rules import RUNBOOKS


@dataclass(frozen=True)
class ServingCluster:
    """A cluster with GPU nodes, and with the operators that services rely on."""

    kubernetes: k8s.Provider
    namespace: str
    """Namespace to make for the services."""
    prometheus_url: pulumi.Input[str]
    monitoring_namespace: str
    exports: dict[str, pulumi.Input[str]]
    """What the stack exports of the cluster."""
    runbooks: str = RUNBOOKS
    """Web address of the alerts' runbooks."""
    ready: Sequence[pulumi.Resource] = field(default_factory=list[pulumi.Resource])
    """What has to be there before a service starts, and as long as it runs."""
