"""How a pod ends without losing a request: three times that must fit into each other.

    delete pod ── preStop ──▶ SIGTERM ── exit timeout ──▶ engine stops ──▶ SIGKILL at the end of the grace period

`preStop` outlasts the removal of the pod from endpoints and proxies, so no request arrives afterwards. The exit timeout
outlasts the longest request, so those in flight finish. The grace period covers both, and stopping the engine.
"""

import math
from dataclasses import dataclass

PRE_STOP_SECONDS = 15
"""Until kube-proxy, DNS and Envoy have dropped the pod. KServe and llm-d use the same."""
POLL_SECONDS = 10
"""Triton looks at its connections once a second and shares the exit timeout between HTTP, gRPC and its core."""
STOP_SECONDS = 30
"""vLLM ends its workers with SIGTERM, and after 5 s with SIGKILL; the rest frees GPU memory and shared memory."""


@dataclass(frozen=True)
class Drain:
    """Seconds of each step."""

    pre_stop: int
    exit_timeout: int
    """For Triton `--exit-timeout-secs`; with `vllm serve` the second half of preStop (see `openai_drain`)."""
    grace: int
    """The pod's `terminationGracePeriodSeconds`. Kubernetes counts preStop in it."""


def drain(longest_request: float) -> Drain:
    """The budget for requests that take up to `longest_request` seconds.

    A spot node has two minutes from its notice and a cluster-autoscaler scale-in ten minutes
    (`--max-graceful-termination-sec`), whatever the pod asks for.
    """
    exit_timeout = math.ceil(longest_request) + POLL_SECONDS
    return Drain(PRE_STOP_SECONDS, exit_timeout, PRE_STOP_SECONDS + exit_timeout + STOP_SECONDS)
