"""How often the platform's parts look, and how long they wait, in seconds.

The defaults are what the parts, or those that they stand in for, do on EKS. Tests that are not about these times take
shorter ones.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Of one platform."""

    scrape: int = 30
    """Between scrapes, and between evaluations of rules, where an object says no other. The Prometheus operator's."""
    autoscaling: int = 15
    """Between two decisions of an HPA. The HPA controller's."""
    heartbeat: int = 10
    """Between two signs of life of a node. Kubelet's."""
    node_lost: int = 50
    """Since the last sign of life of a node. The node life cycle controller's."""
    restart: int = 10
    """Before a container's first restart; each further one waits twice as long. Kubelet's."""


AS_ON_EKS = Pace()
