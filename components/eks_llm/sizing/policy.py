"""How a service will scale, as plain values for a report: `Policy`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The numbers of a service's autoscaling, and where they come from. Times are seconds."""

    service: str
    min: int
    max: int
    in_flight: int
    """Requests per replica that scaling aims at."""
    in_flight_why: str
    max_queued: int | None
    """Requests that may wait in a pod; None: the server has no such limit."""
    max_queued_why: str
    pod_start: int
    """On a node that holds the image."""
    node_start: int
    """What a new node adds to it; 0 where the pool does not grow."""
    scale_up: str
    """How fast, in words."""
    scale_down: str
