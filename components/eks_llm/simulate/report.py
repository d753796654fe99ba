"""What a simulation found, as text and as JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from ..serving.scaling import IN_FLIGHT_SHARE, RATE_SHARE
from ..sizing.replica import Capacity
from .simulate import Result, Service


@dataclass(frozen=True)
class Outcome:
    """One policy's result, named for the reader."""

    name: str
    result: Result
    advice: tuple[str, ...]


def introduction(service: Service, requests: int, seconds: float, found: Capacity) -> str:
    """What was simulated, and what the service's capacity suggests."""
    replica, rate = service.replica, f"{found.requests_per_second:.3g}"
    return (
        f"{requests:,} requests in {_span(seconds)}; prompts of {replica.prompt_tokens:g} and answers of "
        f"{replica.output_tokens:g} tokens; a pod starts in {service.pod_start:g} s\n"
        f"A replica carries {rate} requests/s within the SLO, {found.in_flight} in flight. That suggests\n"
        f"  scaling.capacity: {{requestsPerSecond: {rate}, inFlight: {found.in_flight}}}\n"
        f"    so by default inFlightPerReplica {int(found.in_flight * IN_FLIGHT_SHARE)} and "
        f"frontDoor.requestsPerReplica {found.requests_per_second * RATE_SHARE:.3g}\n"
        f"  limits.maxQueuedRequests: {found.queue}, since more would wait longer than the SLO lets them\n"
    )


ROWS: tuple[tuple[str, Any], ...] = (
    ("SLO attainment", lambda r: f"{r.attainment:.2%}"),
    ("  first token late", lambda r: f"{r.counts.late:,.0f}"),
    ("  tokens too slow", lambda r: f"{r.counts.slow:,.0f}"),
    ("  refused", lambda r: f"{r.counts.refused:,.0f}"),
    ("  expired in a queue", lambda r: f"{r.counts.expired:,.0f}"),
    ("worst wait in a queue", lambda r: f"{r.counts.worst_wait:.0f} s"),
    ("replicas, mean", lambda r: f"{r.mean_replicas():.2f}"),
    ("  until back at minimum", lambda r: f"{r.mean_replicas(r.back_at_minimum):.2f}"),
    ("  least and most wanted", lambda r: f"{r.desired.min()} to {r.desired.max()}"),
    ("GPU hours", lambda r: f"{r.gpu_hours:,.1f}"),
    ("cost", lambda r: "price not known" if r.cost_usd is None else f"{r.cost_usd:,.2f} USD"),
)


def table(outcomes: list[Outcome]) -> str:
    """A row per figure, a column per policy."""
    cells = [["", *(outcome.name for outcome in outcomes)]]
    cells += [[label, *(show(outcome.result) for outcome in outcomes)] for label, show in ROWS]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(
            zip(row, widths, strict=True))).rstrip()
        for row in cells
    ]  # fmt: skip
    notes = [f"{outcome.name}: {note}" for outcome in outcomes for note in outcome.advice]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def as_json(outcomes: list[Outcome], found: Capacity) -> dict[str, Any]:
    """Everything, with the series in steps of 15 s."""
    return {
        "capacity": asdict(found),
        "policies": [
            {
                "name": outcome.name,
                "attainment": round(outcome.result.attainment, 5),
                **{key: round(value, 3) for key, value in asdict(outcome.result.counts).items()},
                "meanReplicas": round(outcome.result.mean_replicas(), 3),
                "meanReplicasUntilMinimum": round(outcome.result.mean_replicas(outcome.result.back_at_minimum), 3),
                "gpuHours": round(outcome.result.gpu_hours, 3),
                "costUsd": None if outcome.result.cost_usd is None else round(outcome.result.cost_usd, 2),
                "advice": list(outcome.advice),
                "series": {
                    "seconds": outcome.result.times.round().astype(int).tolist(),
                    "desired": outcome.result.desired.tolist(),
                    "ready": outcome.result.ready.tolist(),
                    "inFlight": outcome.result.in_flight.round(1).tolist(),
                    "missedPerSecond": outcome.result.missed.round(3).tolist(),
                },
            }
            for outcome in outcomes
        ],
    }


def _span(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:.3g} h"
    return f"{seconds / 60:.3g} min" if seconds >= 120 else f"{seconds:g} s"
