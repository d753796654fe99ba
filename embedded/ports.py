"""Ports of the platform on the loopback interface: a block of consecutive numbers, each with one user."""

import os
import random
import socket

from .process import PlatformError

DEFAULT_BASE = 17440
"""First port of the block; below Linux's range of ephemeral ports (32768 and up)."""

USERS = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "keda-operator-grpc",
    "keda-operator-metrics",
    "keda-operator-health",
    "keda-adapter",
    "keda-adapter-metrics",
    "keda-webhooks",
    "keda-webhooks-metrics",
    "keda-webhooks-health",
    "prometheus",
    "kube-state-metrics",
    "kube-state-metrics-telemetry",
)


def chosen_base() -> int:
    """The first port of the block that `EKS_LLM_PORTS` names, or the default. Raises `PlatformError`."""
    text = os.environ.get("EKS_LLM_PORTS") or str(DEFAULT_BASE)
    if not text.isdecimal() or not 1024 <= int(text) <= 32000:
        raise PlatformError(f"EKS_LLM_PORTS={text}: not the first port of a block, 1024 to 32000")
    return int(text)


def allot(base: int = DEFAULT_BASE) -> dict[str, int]:
    """The port of each user. Raises `PlatformError` if one is in use, which names it."""
    ports = {user: base + offset for offset, user in enumerate(USERS)}
    for user, port in ports.items():
        if not is_free(port):
            raise PlatformError(
                f"port {port} (for {user}) is taken by another program. `ss -ltnp 'sport = :{port}'` shows which; end "
                f"it, or choose another block of {len(USERS)} ports with EKS_LLM_PORTS={base + 1000}."
            )
    return ports


def free_base() -> int:
    """The first port of a free block; for tests, which may run while a platform is up, and by several workers.

    Any of them, as another test run on this machine may look for one at the same moment.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    blocks = range(DEFAULT_BASE + 1000 + 100 * worker, 32000, 100 * workers)
    for base in random.sample(blocks, len(blocks)):
        if all(is_free(base + offset) for offset in range(len(USERS))):
            return base
    raise PlatformError("no free block of ports")


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
