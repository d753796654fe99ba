"""Control planes for tests, as stacks find clusters, and at a pace that does not keep tests waiting."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from embedded.api import Api
from embedded.controlplane import ControlPlane
from embedded.keda import custom_resource_definitions as keda_crds
from embedded.nodes import Nodes, add, gpu_node
from embedded.pace import Pace
from embedded.ports import allot, free_base
from embedded.prometheus import custom_resource_definitions as prometheus_crds

Fetch = Callable[..., None]
"""Takes names of tools, and functions that fetch something."""
FAST = Pace(scrape=2, autoscaling=1, heartbeat=2, restart=5)
"""On a busy machine signs of life may be late, so a node is lost as late as on EKS. What restarts waits to be seen."""


@contextmanager
def control_plane(home: Path, minor: str = "") -> Iterator[ControlPlane]:
    """A control plane of a Kubernetes minor, by default the newest, with three nodes of a p4d pool."""
    plane = ControlPlane(home, allot(free_base()), minor, FAST)
    plane.start(print)
    try:
        nodes = Nodes(plane)
        nodes.start(print)
        try:
            for index in range(3):
                add(Api(plane.kubeconfig), gpu_node("a100", "p4d.24xlarge", "us-west-2b", index))
            yield plane
        finally:
            nodes.stop()
    finally:
        plane.stop()


def install_crds(api: Api) -> None:
    """The CRDs of KEDA and of the Prometheus operator, at the versions that the stacks install."""
    for manifest in [*keda_crds(), *prometheus_crds()]:
        api.apply(manifest)
    groups = ("/apis/keda.sh/v1alpha1", "/apis/monitoring.coreos.com/v1")
    api.wait("the custom resources", lambda: all(api.raw(group)["resources"] for group in groups))
