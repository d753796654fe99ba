"""How fast one replica answers, and what it carries within an SLO: continuous batching in steady state.

A replica runs up to `max_running` requests. A decoding step takes `step + step_per_request x running`; while a prompt
is prefilled, no other request of that replica advances. `eks-llm simulate` moves the same model in time.
"""

import math
from dataclasses import dataclass, replace

from ..catalog.models import ModelShape
from .memory import Fit
from .performance import P99_WAIT, prefill_seconds, step_seconds

STAGES = 4
"""Answers end after this many random stages, so their lengths vary by 1/sqrt(STAGES) = 50 % of the mean."""
PREFILL_LIMIT = 0.95
"""Share of a step that prefill may take; the rest keeps running requests alive."""


@dataclass(frozen=True)
class Replica:
    """The speed and size of one replica for requests of one kind."""

    prompt_tokens: float
    output_tokens: float
    prefill: float
    """Seconds of the GPUs for one prompt."""
    step: float
    """Seconds of a decoding step, whatever runs in it: reading the weights."""
    step_per_request: float
    """Seconds that each running request adds to a step: reading its KV cache."""
    max_running: int
    kv_tokens: float
    """Size of the KV cache."""

    @property
    def slots(self) -> int:
        """Requests that run at once: as many as the engine may, or as the KV cache holds at their mean length."""
        mean = self.prompt_tokens + self.output_tokens * (STAGES + 1) / (2 * STAGES)
        return max(1, min(self.max_running, int(self.kv_tokens / mean)))

    @property
    def shortest_stage(self) -> float:
        """Seconds that a request alone on the replica stays in a stage."""
        return self.output_tokens * (self.step + self.step_per_request) / STAGES

    def tpot(self, running: float, rate: float) -> float:
        """Seconds per output token with `running` requests while `rate` requests per second arrive."""
        busy = min(PREFILL_LIMIT, rate * self.prefill)
        return (self.step + self.step_per_request * running) / (1 - busy)

    def ttft(self, rate: float) -> float:
        """Seconds until the first token, 99th percentile, while `rate` requests per second arrive at free slots."""
        busy = min(PREFILL_LIMIT, rate * self.prefill)
        return self.prefill + self.step + P99_WAIT * busy * self.prefill / (2 * (1 - busy))

    def throughput(self, running: float) -> float:
        """Requests per second with `running` requests at all times."""
        # running = rate x residence; residence = output x tpot(rate), which is linear in the unknown rate.
        decode = self.output_tokens * (self.step + self.step_per_request * running)
        return running / (decode + running * self.prefill)

    def running_at(self, rate: float) -> float:
        """Requests that run when `rate` requests per second arrive; infinite where that is too much."""
        left = 1 - rate * self.prefill - rate * self.output_tokens * self.step_per_request
        return rate * self.output_tokens * self.step / left if left > 0 else float("inf")

    def at(self, requests_per_second: float) -> "Replica":
        """The replica with its decoding as slow or fast as a measured capacity says."""
        spare = self.slots / requests_per_second - self.slots * self.prefill
        decode = self.output_tokens * (self.step + self.step_per_request * self.slots)
        if spare <= 0:
            raise ValueError(
                f"{requests_per_second:g} requests per second is more than prefill alone allows "
                f"({1 / self.prefill:.3g}); lower it, or the prompt"
            )
        return replace(self, step=self.step * spare / decode, step_per_request=self.step_per_request * spare / decode)


def estimated(shape: ModelShape, fit: Fit, prompt: float, output: float) -> Replica:
    """A replica by the bandwidth and arithmetic rate of its GPUs."""
    context = int(prompt + output / 2)
    one, many = step_seconds(shape, fit, 1, context), step_seconds(shape, fit, 65, context)
    per_request = (many - one) / 64
    return Replica(
        prompt_tokens=prompt,
        output_tokens=output,
        prefill=prefill_seconds(shape, fit, prompt),
        step=one - per_request,
        step_per_request=per_request,
        max_running=fit.engine.max_num_seqs,
        kv_tokens=fit.pool_tokens,
    )


# Within an SLO ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Capacity:
    """What one replica carries within an SLO."""

    requests_per_second: float
    in_flight: int
    queue: int
    """Requests that may wait and still get their first token in time."""


def capacity(replica: Replica, ttft: float | None, tpot: float | None) -> Capacity:
    """The most requests at once that keep the SLO (seconds; None: any), the rate that makes them, the queue beside.

    Never below one request, even where that one misses the SLO: see `unreachable`.
    """
    running = replica.slots
    while running > 1 and not _kept(replica, running, ttft, tpot):
        running -= 1
    rate = replica.throughput(running)
    patience = math.inf if ttft is None else ttft - replica.prefill - replica.step
    queue = 2 * replica.slots if math.isinf(patience) else max(0, int(patience * rate))
    return Capacity(rate, running, queue)


def _kept(replica: Replica, running: int, ttft: float | None, tpot: float | None) -> bool:
    rate = replica.throughput(running)
    return (tpot is None or replica.tpot(running, rate) <= tpot) and (ttft is None or replica.ttft(rate) <= ttft)


def unreachable(replica: Replica, ttft: float | None, tpot: float | None) -> dict[str, float]:
    """The targets that even a request alone on the replica misses, by what it takes in seconds: `ttft`, `tpot`."""
    alone = {"ttft": replica.prefill + replica.step, "tpot": replica.step + replica.step_per_request}
    return {name: alone[name] for name, limit in (("ttft", ttft), ("tpot", tpot)) if limit and alone[name] > limit}
