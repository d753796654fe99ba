"""AWS regions: `REGIONS` in which a platform can be built, `OTHER_PARTITIONS` in which it cannot, and their zones."""

import re

from ._load import Fact, load


class _File(Fact):
    sources: list[str]
    date: str
    zones: dict[str, str]
    partitions: dict[str, tuple[str, ...]]


_file = load("regions.yaml", _File)
_partitions = _file.partitions

REGIONS: tuple[str, ...] = _partitions["aws"]
"""Regions of the commercial partition, `aws`."""

OTHER_PARTITIONS: dict[str, str] = {
    region: partition for partition, regions in _partitions.items() if partition != "aws" for region in regions
}
"""The partition of each region outside it, e.g. `aws-us-gov`."""


ZONES: dict[str, str] = _file.zones
"""Letters of a region's availability zones; a region that is absent may have any."""


def zone_problem(zone: str) -> str | None:
    """Why there is no availability zone of this name; None if there is, or may be."""
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d[a-f]", zone):
        return f"{zone!r} is not an availability zone such as us-west-2b"
    region, letter = zone[:-1], zone[-1]
    if letter in ZONES.get(region, letter):
        return None
    return f"{zone} does not exist; the zones of {region} are {', '.join(ZONES[region])}"
