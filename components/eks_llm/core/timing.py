"""One model of time: how long nodes and pods take to start and to end, and what gives up on them when.

    pod wanted ── node ──▶ placed ── image ── weights ── load ──▶ ready            `Start`
    pod deleted ── preStop ──▶ SIGTERM ── exit timeout ──▶ engine stops ──▶ gone   `Drain`

Expected times steer scaling. Limits end what hangs, and each is above what it waits for, or a slow success would count
as a failure; `tests/unit/test_timing.py` holds these inequalities. All times are seconds. What a pod shares with its
node, its rollout and its alerts is here alone.
"""

import math
from dataclasses import dataclass

# Nodes --------------------------------------------------------------------------------------------------------------

NODE_START_SECONDS = 600
"""Default of a pool's `nodes.start`: a new node until it runs the pod's image. Assumed; a p4d takes 5 to 12 minutes."""
LONGEST_NODE_START_SECONDS = 3600
"""Beyond it no scaling policy helps: an HPA looks back as long at most (`stabilizationWindowSeconds`)."""
PROVISION_SECONDS = 1800
"""Least time that a new node gets until it is given up. cluster-autoscaler's own 15 minutes
(`--max-node-provision-time`) are too short for a slow p4d, which counts as ready only when it offers its GPUs."""
PROVISION_SLACK = 1.5
"""A node that takes half as long again as expected is slow, not lost."""


def provision(node_start: float) -> int:
    """How long a node that is expected after `node_start` may take until it is given up.

    Also where no node is ever added (0): EKS replaces one that fails, and the pod waits for that one.
    """
    return max(PROVISION_SECONDS, math.ceil(PROVISION_SLACK * node_start))


# Start of a pod -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """What the start of a pod is calculated from: how fast weights move, and what does not depend on their size."""

    fetch_gib_per_second: float
    """S3 to NVMe, for one pod."""
    load_gib_per_second: float
    """NVMe to GPU memory, for one pod."""
    compile_seconds: float
    """Process start, torch.compile and CUDA graphs."""
    image_seconds: int
    """Limit for the pull of the image on a node that has none of its layers."""


ASSUMED = Rates(fetch_gib_per_second=1.0, load_gib_per_second=1.0, compile_seconds=180, image_seconds=600)
"""Deliberately below what p4d can do, where eight GPUs share the array and the network.

Compile: without a warm cache, 50 to 350 s published. Image: 11 GB without SOCI; published are 4 to 6 minutes
for 15 to 20 GB.
"""
SLACK = 3
"""Limits allow three times what is expected, for a bucket, a page cache or a compiler that is slow."""
LEAST_LOAD_SECONDS = 600
"""Least limit of the load: vLLM's own for the start of its engine, `VLLM_ENGINE_READY_TIMEOUT_S` (vllm/envs.py)."""


@dataclass(frozen=True)
class Start:
    """Seconds of a pod's start, from the size of its weights."""

    expected: int
    """On a node that holds the image but not the weights."""
    node: int
    """Until a new node of the pool runs the image, as expected; 0 where none is ever added."""
    placed: int
    """Limit until the pod has its GPUs: those of a new node, or of the pod that it replaces in a rollout."""
    prepared: int
    """Limit from there until it is ready: image, weights, load."""
    load: int
    """Limit of the load: the startup probe's, and the engine's own."""

    @property
    def for_scaling(self) -> int:
        """What a scaling policy has to reckon with: the next pod may be the first of a new node."""
        return self.node + self.expected

    @property
    def deadline(self) -> int:
        """Limit of the whole start, after which a rollout counts as failed."""
        return self.placed + self.prepared


def start(weights_gib: float, ending: "Drain", node_start: float = 0, rates: Rates = ASSUMED) -> Start:
    """The start of a pod with so many GiB of weights.

    `ending`: how its predecessor ends, whose GPUs it needs in a rollout. `node_start`: what a new node is expected to
    take; 0 where none is ever added.
    """
    fetch, read = weights_gib / rates.fetch_gib_per_second, weights_gib / rates.load_gib_per_second
    load = max(LEAST_LOAD_SECONDS, math.ceil(SLACK * (read + rates.compile_seconds)))
    return Start(
        expected=math.ceil(fetch + read + rates.compile_seconds),
        node=math.ceil(node_start),
        placed=max(provision(node_start), ending.grace),
        prepared=rates.image_seconds + math.ceil(SLACK * fetch) + load,
        load=load,
    )


UPDATE_SLACK_SECONDS = 300
"""What Pulumi waits beyond a rollout's own deadline, so that the reason comes from Kubernetes."""


def update_limit(begin: Start, ending: "Drain", replicas: int) -> int:
    """How long an update of so many replicas may take until Pulumi gives it up.

    A rollout replaces them one by one. The deadline of a Deployment counts from its last progress, Pulumi's
    (`pulumi.com/timeoutSeconds`) from the beginning.
    """
    others = max(0, replicas - 1)
    return begin.deadline + others * (ending.grace + begin.expected) + UPDATE_SLACK_SECONDS


# Probes and watchdog ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    """How often the kubelet asks, how long it waits for the answer, and how many failures in a row count."""

    period: int
    timeout: int
    failures: int

    @property
    def limit(self) -> int:
        """How long all answers must be missing until the kubelet acts, at most."""
        return self.period * self.failures

    @property
    def fields(self) -> dict[str, int]:
        """The fields of a probe in a pod's manifest."""
        return {"periodSeconds": self.period, "timeoutSeconds": self.timeout, "failureThreshold": self.failures}


STALL_SECONDS = 120
"""Without an engine step for this long while requests wait, the engine counts as hung, and its watchdog ends it.

Longer than any step: a prefill of 5,120 tokens takes seconds.
"""
STALE_SECONDS = 10
"""Without an engine step for this long while requests wait, the pod is not ready, so that new ones go to another."""
READINESS = Probe(period=5, timeout=5, failures=3)
LIVENESS = Probe(period=15, timeout=10, failures=12)
"""A busy server is never restarted by it: the runtime's own watchdog ends a process whose engine is dead or hung, and
is given the time to do so."""


def startup(begin: Start) -> Probe:
    """The probe that gives the model time to load."""
    period = 10
    return Probe(period=period, timeout=5, failures=-(-begin.load // period))


# End of a pod -------------------------------------------------------------------------------------------------------

PRE_STOP_SECONDS = 15
"""Until kube-proxy, DNS and Envoy have dropped the pod. KServe and llm-d use the same."""
EXIT_SLACK_SECONDS = 10
"""Triton looks at its connections once a second and shares the exit timeout between HTTP, gRPC and its core."""
STOP_SECONDS = 30
"""vLLM ends its workers with SIGTERM, and after 5 s with SIGKILL; the rest frees GPU memory and shared memory."""
ENGINE_STOP_SECONDS = 10
"""`--shutdown-timeout` of `vllm serve`: what it takes at most after SIGTERM; preStop has waited for the requests."""


@dataclass(frozen=True)
class Drain:
    """How a pod ends without losing a request: three times that fit into each other.

    preStop outlasts the removal of the pod from endpoints and proxies, so no request arrives afterwards. The exit
    timeout outlasts the longest request, so those in flight finish. The grace period covers both, and the stop of the
    engine.
    """

    pre_stop: int
    exit_timeout: int
    """For Triton `--exit-timeout-secs`; with `vllm serve` the second half of preStop (see eks_llm_drain.py)."""
    grace: int
    """The pod's `terminationGracePeriodSeconds`. Kubernetes counts preStop in it."""


def drain(longest_request: float) -> Drain:
    """How a pod ends whose requests take up to `longest_request` seconds."""
    exit_timeout = math.ceil(longest_request) + EXIT_SLACK_SECONDS
    return Drain(PRE_STOP_SECONDS, exit_timeout, PRE_STOP_SECONDS + exit_timeout + STOP_SECONDS)


# What the platform grants -------------------------------------------------------------------------------------------

SPOT_NOTICE_SECONDS = 120
"""From EC2's notice until a spot instance is interrupted. Source: EC2 user guide, "Spot Instance interruption
notices"."""
BLOCK_DRAIN_SECONDS = 600
"""From EKS's drain of a Capacity Block's nodes, 40 minutes before its end, until EC2 ends them, 30 minutes before it.
Source: EKS user guide, "Create a managed node group with Capacity Blocks for ML"; EC2 user guide, "Launch instances
using Capacity Blocks"."""
NODE_UPDATE_SECONDS = 900
"""What EKS waits for the pods of a node that it updates; then the update fails with PodEvictionFailure. Source: EKS
user guide, "Understand each phase of node updates"."""


def cut_off(capacity: str, ending: Drain) -> str | None:
    """What a pod loses when nodes of this `capacity` (a pool's `capacity.kind`) go away; None: nothing."""
    limits = {
        "spot": (SPOT_NOTICE_SECONDS, "a spot node is interrupted {limit} s after its notice"),
        "capacityBlock": (BLOCK_DRAIN_SECONDS, "the nodes of a Capacity Block end {limit} s after EKS drains them"),
    }
    if capacity not in limits or ending.grace <= limits[capacity][0]:
        return None
    limit, event = limits[capacity]
    longest = limit - (ending.grace - ending.exit_timeout) - EXIT_SLACK_SECONDS
    return (
        f"a pod may take {ending.grace:,} s to end, and {event.format(limit=limit)}: requests that still need more "
        f"than {longest} s are lost then; set {longest}s or less, or let clients repeat what breaks off"
    )


def update_problem(begin: Start, ending: Drain, together: int) -> str | None:
    """Why EKS would give up the update of a node with so many replicas of a service; None: it would not.

    The PodDisruptionBudget lets them go one by one, each when the successor of the one before is ready.
    """
    seconds = (together - 1) * begin.expected + ending.grace
    if seconds <= NODE_UPDATE_SECONDS:
        return None
    if ending.grace > NODE_UPDATE_SECONDS:
        cause = f"a pod may take {ending.grace:,} s to end"
    else:
        cause = (
            f"{together} replicas on a node leave it one by one, {begin.expected:,} s apart, and the last may take "
            f"{ending.grace:,} s to end: {seconds:,} s"
        )
    return f"{cause}; EKS gives the update of a node up after {NODE_UPDATE_SECONDS} s (PodEvictionFailure)"
