"""A fleet of replicas: continuous batching as a fluid, one time step after another.

That is the model of sizing/replica.py, moved in time.
Requests are amounts, not objects: a step of a fleet costs the same at 1 and at 1,000 requests per second.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from ..observe import metrics
from ..sizing.replica import PREFILL_LIMIT, STAGES, Replica

LITTLE = 1e-9
IDLE = 0.05
"""A pod that runs less than this part of a request runs none: amounts fade, requests end."""


class Routing(Enum):
    """Who gets the next request."""

    LEAST_REQUEST = "leastRequest"
    """The replica with the fewest requests: Envoy and gateways that watch the pods."""
    RANDOM = "random"
    """Any ready replica: a Kubernetes Service."""


FREE, STARTING, READY, DRAINING = range(4)
"""States of a pod slot. Plain numbers: they are compared in every step."""
RUNNING, TIMELY, AGE, TOKENS = range(4)
"""What is counted per stage and pod: requests, those with a timely first token, and the sums of the seconds that they
have run and of the tokens that they have."""


@dataclass(frozen=True)
class Slo:
    """What a request must reach, seconds; None: any."""

    ttft: float | None = None
    tpot: float | None = None


@dataclass
class Counts:
    """What became of requests."""

    arrived: float = 0.0
    good: float = 0.0
    """Met the SLO."""
    late: float = 0.0
    """First token too late."""
    slow: float = 0.0
    """Further tokens too slow."""
    refused: float = 0.0
    """By a full queue, or because no pod was ready."""
    expired: float = 0.0
    """Waited longer than a request may take."""
    worst_wait: float = 0.0
    """Longest time in a queue, seconds."""


@dataclass
class Fleet:
    """All pods of a service. Rows of the arrays are stages of an answer, columns pod slots."""

    replica: Replica
    slo: Slo
    pod_start: float
    max_queued: float
    timeout: float
    routing: Routing
    slots: int
    """Pods that may exist at once, draining ones included."""
    random: np.random.Generator
    counts: Counts = field(default_factory=Counts)
    missed: dict[int, float] = field(default_factory=dict[int, float])
    """Requests that were late, refused or expired, by the second they arrived in."""

    def __post_init__(self) -> None:
        n = self.slots
        self.state = np.zeros(n, dtype=int)
        self.ready_at = np.zeros(n)
        self.requests = np.zeros((4, STAGES, n))
        """RUNNING, TIMELY, AGE and TOKENS by stage and pod."""
        self.running = np.zeros(n)
        """Sum of the stages, kept up to date."""
        self.waiting = np.zeros(n)
        self.backlog = np.zeros(n)
        """Seconds of prefill to do."""
        self.finished = np.zeros(n)
        self.finished_seconds = np.zeros(n)
        """Time that finished requests ran, a counter."""
        self.queues: dict[int, deque[list[float]]] = {}
        """Waiting requests by pod: [time of arrival, amount]."""
        self.recycled: list[int] = []
        """Slots that got a new pod since the last scrape."""
        self.used = self.starting = self.ready = self.draining = 0
        """Slots that ever had a pod; pods by state."""
        self.ready_slots = np.zeros(0, dtype=int)
        self.carried = 0.0
        """Part of a request that random routing has not sent yet."""
        ttft = math.inf if self.slo.ttft is None else self.slo.ttft
        self.patience = ttft - self.replica.prefill - self.replica.step
        """Seconds that a request may wait, in the queue and behind other prompts, for a timely first token."""

    # Pods ---------------------------------------------------------------------------------------------------------

    @property
    def replicas(self) -> int:
        return self.starting + self.ready

    @property
    def pods(self) -> int:
        """Pods that hold GPUs."""
        return self.starting + self.ready + self.draining

    @property
    def in_flight(self) -> float:
        return float(self.running.sum() + self.waiting.sum())

    def start(self, replicas: int) -> None:
        """Pods that are ready from the beginning."""
        self.state[:replicas] = READY
        self._count()

    def scale(self, now: float, replicas: int) -> None:
        """Starts or ends pods, as a ReplicaSet does: pods that are not ready go first, then the youngest."""
        more = replicas - self.replicas
        for slot in np.flatnonzero(self.state == FREE)[: max(0, more)]:
            self._fresh(slot)
            self.state[slot], self.ready_at[slot] = STARTING, now + self.pod_start
        for _ in range(-more):
            going = STARTING if (self.state == STARTING).any() else READY
            candidates = np.flatnonzero(self.state == going)
            youngest = candidates[self.ready_at[candidates].argmax()]
            self.state[youngest] = FREE if going == STARTING else DRAINING
        self._count()

    def _fresh(self, slot: int) -> None:
        self.requests[:, :, slot] = 0.0
        for array in (self.running, self.waiting, self.backlog, self.finished, self.finished_seconds):
            array[slot] = 0.0
        self.queues.pop(slot, None)
        self.recycled.append(slot)

    def _count(self) -> None:
        _, self.starting, self.ready, self.draining = np.bincount(self.state, minlength=4).tolist()
        self.ready_slots = np.flatnonzero(self.state == READY)
        used = np.flatnonzero(self.state)
        self.used = max(self.used, int(used[-1]) + 1) if len(used) else self.used

    # Requests -----------------------------------------------------------------------------------------------------

    def step(self, now: float, seconds: float, arrivals: float) -> None:
        """`arrivals` requests come within `seconds` from `now`."""
        if self.starting:
            opened = (self.state == STARTING) & (self.ready_at <= now)
            if opened.any():
                self.state[opened] = READY
                self._count()
        self.counts.arrived += arrivals
        self._finish(seconds)
        if arrivals or self.queues:
            self._admit(now, arrivals)
        if self.draining:
            ended = (self.state == DRAINING) & (self.running + self.waiting < IDLE)
            if ended.any():
                self.state[ended] = FREE
                self._count()

    def _finish(self, seconds: float) -> None:
        """Prefill what is due, let all running requests advance, and take those out that end."""
        replica, used = self.replica, self.used
        running, backlog, requests = self.running[:used], self.backlog[:used], self.requests[:, :, :used]
        prefill = np.minimum(backlog, PREFILL_LIMIT * seconds)
        backlog -= prefill
        tokens = (seconds - prefill) / (replica.step + replica.step_per_request * running)
        requests[AGE] += requests[RUNNING] * seconds
        requests[TOKENS] += requests[RUNNING] * tokens
        # A share of tokens / mean makes the mean stay in a stage right, however long a time step is.
        moved = requests * np.minimum(1.0, tokens * (STAGES / replica.output_tokens))
        requests -= moved
        requests[:, 1:] += moved[:, :-1]
        ended, timely, ages, written = moved[:, -1]
        running -= ended
        self.finished[:used] += ended
        self.finished_seconds[:used] += ages
        if self.slo.tpot is not None:
            slow = ages > ended * replica.prefill + self.slo.tpot * written
            if slow.any():
                self.counts.slow += float(ended[slow].sum())
                timely = np.where(slow, 0.0, timely)
        self.counts.good += float(timely.sum())

    def _admit(self, now: float, arrivals: float) -> None:
        used = self.used
        share = self._route(arrivals)
        if not used:
            return
        room = np.maximum(0.0, self.replica.slots - self.running[:used])
        straight = np.minimum(share, room)
        for slot in self.queues:
            straight[slot] = 0.0
        self._begin_straight(now, straight)
        left = share - straight
        if self.queues or left.max() > LITTLE:
            room -= straight
            for slot in {*self.queues, *np.flatnonzero(left > LITTLE).tolist()}:
                self._through_queue(now, slot, float(left[slot]), float(room[slot]))

    def _route(self, arrivals: float) -> np.ndarray:
        share = np.zeros(self.used)
        if not self.ready:
            self.counts.refused += arrivals
            return share
        ready = self.ready_slots
        if self.routing is Routing.RANDOM:
            whole = int(self.carried + arrivals + LITTLE)
            self.carried += arrivals - whole
            share[ready] = self.random.multinomial(whole, np.full(len(ready), 1 / len(ready)))
        else:
            share[ready] = fill(self.running[ready] + self.waiting[ready], arrivals)
        return share

    def _begin_straight(self, now: float, amount: np.ndarray) -> None:
        """Requests start to run on all pods as they arrive."""
        used, timely = self.used, amount
        late = self.backlog[:used] > self.patience
        if late.any():
            timely = np.where(late, 0.0, amount)
            self._late(now, float(amount[late].sum()))
        self.requests[RUNNING, 0, :used] += amount
        self.requests[TIMELY, 0, :used] += timely
        self.running[:used] += amount
        self.backlog[:used] += amount * self.replica.prefill

    def _begin_queued(self, now: float, slot: int, arrived: float, amount: float) -> None:
        """Requests that arrived earlier start to run on one pod."""
        if now - arrived + self.backlog[slot] > self.patience:
            self._late(arrived, amount)
        else:
            self.requests[TIMELY, 0, slot] += amount
        self.requests[RUNNING, 0, slot] += amount
        self.running[slot] += amount
        self.backlog[slot] += amount * self.replica.prefill
        self.counts.worst_wait = max(self.counts.worst_wait, now - arrived)

    def _through_queue(self, now: float, slot: int, amount: float, room: float) -> None:
        queue, counts = self.queues.setdefault(slot, deque()), self.counts
        waiting = float(self.waiting[slot])
        while queue and now - queue[0][0] > self.timeout:
            arrived, expired = queue.popleft()
            waiting -= expired
            counts.expired += expired
            self._miss(arrived, expired)
        accepted = min(amount, max(0.0, self.max_queued + room - waiting))
        if amount > accepted:
            counts.refused += amount - accepted
            self._miss(now, amount - accepted)
        if accepted:
            queue.append([now, accepted])
            waiting += accepted
        while queue and room > LITTLE:
            arrived, first = queue[0]
            taken = min(first, room)
            self._begin_queued(now, slot, arrived, taken)
            room -= taken
            waiting -= taken
            if taken < first:
                queue[0][1] -= taken
            else:
                queue.popleft()
        if not queue:
            del self.queues[slot]
        self.waiting[slot] = waiting if queue else 0.0

    def _late(self, arrived: float, amount: float) -> None:
        self.counts.late += amount
        self._miss(arrived, amount)

    def _miss(self, arrived: float, amount: float) -> None:
        second = int(arrived)
        self.missed[second] = self.missed.get(second, 0.0) + amount

    # Metrics ------------------------------------------------------------------------------------------------------

    @property
    def kv_usage(self) -> np.ndarray:
        replica = self.replica
        tokens = self.running * replica.prompt_tokens + self.requests[TOKENS].sum(axis=0)
        return np.minimum(1.0, tokens / replica.kv_tokens)

    def metrics(self) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, float]]:
        """Which slots answer a scrape, what each pod says, and what the service says."""
        pods = {
            metrics.RUNNING: np.where(self.running < IDLE, 0.0, self.running),
            metrics.WAITING: self.waiting,
            metrics.KV_USAGE: self.kv_usage,
            metrics.REQUEST_SUCCESS: self.finished,
            metrics.PROMPT_TOKENS: self.finished * self.replica.prompt_tokens,
            metrics.GENERATION_TOKENS: self.finished * self.replica.output_tokens,
            f"{metrics.INFERENCE_TIME}_sum": self.finished_seconds,
            f"{metrics.INFERENCE_TIME}_count": self.finished,
        }
        service = {
            metrics.DEPLOYMENT_REPLICAS: float(self.replicas),
            metrics.DEPLOYMENT_READY: float(self.ready),
        }
        return self.state >= READY, pods, service


def fill(load: np.ndarray, amount: float) -> np.ndarray:
    """Splits `amount` so that the least loaded are filled up first, all to one level."""
    order = np.sort(load)
    # The level with the k emptiest filled falls with k as long as the next one is below it.
    level = ((amount + order.cumsum()) / np.arange(1, len(order) + 1)).min()
    return np.maximum(0.0, level - load)
