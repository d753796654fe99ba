"""Addresses of pods and Services on one machine.

Kubernetes admits no loopback address for a pod, so pods of `local` nodes get one of 10.127.0.0/16. Such a pod is
reached on this machine at the same address with 127 in place of 10: pod 10.127.0.5 at 127.127.0.5.
"""

POD_PREFIX = "10.127."
"""Of pod addresses. The rest is the pod's number: 65,533 of them, then they start again."""


def pod_ip(number: int) -> str:
    number = number % 65533 + 1
    return f"{POD_PREFIX}{number // 256}.{number % 256}"


def loopback(ip: str) -> str:
    """Where the pod with this address is reached on this machine."""
    return "127." + ip.partition(".")[2]
