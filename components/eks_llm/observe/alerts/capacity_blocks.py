"""Capacity blocks of EC2, which end at a fixed time. Silent once a block has ended: there is nothing left to lose."""

import datetime
from collections.abc import Iterator, Mapping

from ..rules import Alert, Severity

WARNING_SECONDS = 24 * 3600
"""A working day to buy the next block."""
CRITICAL_SECONDS = 2 * 3600
"""EKS drains the nodes 40 minutes before the end, so this leaves 80."""


def alerts(ends: Mapping[str, datetime.datetime]) -> Iterator[Alert]:
    """`ends`: pools and when their capacity block ends."""
    for pool, end in ends.items():
        yield Alert(
            "CapacityBlockEndsSoon",
            _within(end, WARNING_SECONDS),
            Severity.WARNING,
            summary=_summary(pool),
            description=DESCRIPTION,
            fires="a capacity block ends within 24 hours (`capacity.endsAt`)",
            meaning="A pool's capacity block ends within 24 hours, by the `endsAt` of the stack file.",
            impact="40 minutes before the end EKS drains the pool. Services on it then have no GPUs.",
            labels={"pool": pool},
        )
        yield Alert(
            "CapacityBlockEnding",
            _within(end, CRITICAL_SECONDS),
            Severity.CRITICAL,
            summary=_summary(pool),
            description=DESCRIPTION,
            fires="a capacity block ends within 2 hours",
            meaning=(
                "A pool's capacity block ends within two hours; in 80 minutes or less EKS begins to drain its nodes."
            ),
            impact="Services on the pool lose all replicas.",
            labels={"pool": pool},
        )


DESCRIPTION = (
    "EKS drains the pool 40 minutes before, and its services have no GPUs then. Extend the block or buy another, and "
    "move the services."
)


def _within(end: datetime.datetime, seconds: int) -> str:
    return f"(vector({end.timestamp():.0f}) - time() < {seconds}) > 0"


def _summary(pool: str) -> str:
    return f"{pool}: the capacity block ends in {{{{ $value | humanizeDuration }}}}"
