"""What one replica is meant to carry: the autoscaler's target and the length of its queue, each with its arithmetic.

Stated numbers win; then a measured capacity; then the SLO, by an estimate of the replica; then the engine's own size.
"""

from dataclasses import dataclass

from ..sizing.replica import Capacity, Replica, capacity, unreachable
from .limits import Limits
from .observability import Slo
from .scaling import IN_FLIGHT_SHARE, Scaling

QUEUE_PER_SEQUENCE = 2
"""Requests that may wait per one that may run, where no SLO says how long they may."""


@dataclass(frozen=True)
class Targets:
    """Requests of one replica, and in words where the numbers come from."""

    in_flight: int
    in_flight_why: str
    max_queued: int
    max_queued_why: str
    estimate: Replica | None = None
    """The replica by calculation, at the expected load; None where memory does not suffice or is not known."""
    capacity: Capacity | None = None
    """What that carries within the SLO; None without an estimate or without an SLO."""


def targets(scaling: Scaling, limits: Limits, slo: Slo, max_num_seqs: int, estimate: Replica | None) -> Targets:
    """The targets of a service whose engine runs `max_num_seqs` requests at once. `in_flight` is never 0 nor more."""
    ttft, tpot = _seconds(slo.ttft_p99), _seconds(slo.tpot_p99)
    found = capacity(estimate, ttft, tpot) if estimate and (ttft or tpot) else None
    in_flight, why = _in_flight(scaling, slo, max_num_seqs, estimate, found)
    queued, queued_why = limits.max_queued_requests, "as stated"
    if queued is None:
        queued, queued_why = _queued(scaling, slo, max_num_seqs, estimate, found)
    return Targets(in_flight, why, queued, queued_why, estimate, found)


def _in_flight(
    scaling: Scaling, slo: Slo, max_num_seqs: int, estimate: Replica | None, found: Capacity | None
) -> tuple[int, str]:
    if scaling.in_flight_per_replica or scaling.capacity or not (estimate and found):
        why = f"three quarters of maxNumSeqs {max_num_seqs}"
        if scaling.in_flight_per_replica:
            why = "as stated"
            if estimate and found:
                why += f"; by estimate {found.in_flight} keep the slo, {_load(estimate)}"
        elif scaling.capacity:
            why = f"{IN_FLIGHT_SHARE:.0%} of capacity.inFlight {scaling.capacity.in_flight}"
        return scaling.in_flight(max_num_seqs), why
    rate = found.requests_per_second
    kept = {
        "tpotP99": (slo.tpot_p99, estimate.tpot(found.in_flight, rate)),
        "ttftP99": (slo.ttft_p99, estimate.ttft(rate)),
    }
    reached = " and ".join(
        f"{name} {limit} (by estimate {_span(value)})" for name, (limit, value) in kept.items() if limit
    )
    return max(1, int(found.in_flight * IN_FLIGHT_SHARE)), (
        f"{IN_FLIGHT_SHARE:.0%} of {found.in_flight}, the most at once within {reached}, {_load(estimate)}"
    )


def _load(replica: Replica) -> str:
    return f"{replica.prompt_tokens:,.0f} tokens in and {replica.output_tokens:,.0f} out"


def _queued(
    scaling: Scaling, slo: Slo, max_num_seqs: int, estimate: Replica | None, found: Capacity | None
) -> tuple[int, str]:
    most = QUEUE_PER_SEQUENCE * max_num_seqs
    if slo.ttft_p99 is None or not (estimate and found):
        return most, f"twice maxNumSeqs {max_num_seqs}"
    rate = scaling.capacity.requests_per_second if scaling.capacity else found.requests_per_second
    first = estimate.prefill + estimate.step
    patience = max(0.0, slo.ttft_p99 - first)
    return min(most, int(patience * rate)), (
        f"{rate:.3g} requests/s for the {_span(patience)} that ttftP99 {slo.ttft_p99} leaves beside a first token of "
        f"{_span(first)}"
    )


def problems(scaling: Scaling, slo: Slo, found: Targets, load_stated: bool) -> list[tuple[str, str]]:
    """Targets that no scaling can meet, or that let replicas miss the SLO: the key below the service, and a message.

    `load_stated`: the length of requests is no guess, so that the estimate may contradict a stated number.
    """
    listed: list[tuple[str, str]] = []
    if found.estimate:
        for name, alone in unreachable(found.estimate, _seconds(slo.ttft_p99), _seconds(slo.tpot_p99)).items():
            limit = {"ttft": slo.ttft_p99, "tpot": slo.tpot_p99}[name]
            what = "first token" if name == "ttft" else "token"
            listed.append(
                (
                    f"slo.{name}P99",
                    f"{limit} cannot be met by adding replicas: by estimate a {what} takes {_span(alone)} even for a "
                    f"request alone ({found.estimate.prompt_tokens:,.0f} tokens in); use more GPUs per replica, a "
                    "smaller model or format, or a longer target",
                )
            )
    carried = found.capacity.in_flight if found.capacity and load_stated else None
    if scaling.capacity:
        carried = scaling.capacity.in_flight
    if scaling.in_flight_per_replica and carried and scaling.in_flight_per_replica > carried:
        source = "capacity.inFlight" if scaling.capacity else "the estimate"
        listed.append(
            (
                "scaling.inFlightPerReplica",
                f"{scaling.in_flight_per_replica} is more than the {carried} that a replica carries within the SLO "
                f"({source}): replicas miss it before another is asked for; {IN_FLIGHT_SHARE:.0%} would be "
                f"{max(1, int(carried * IN_FLIGHT_SHARE))}",
            )
        )
    return listed


def _seconds(limit: float | None) -> float | None:
    return None if limit is None else float(limit)


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.3g}ms" if seconds < 1 else f"{seconds:.3g}s"
