"""AWS regions: `REGIONS` in which a platform can be built, and `OTHER_PARTITIONS` in which it cannot."""

from ._load import Fact, load


class _File(Fact):
    sources: list[str]
    date: str
    partitions: dict[str, tuple[str, ...]]


_partitions = load("regions.yaml", _File).partitions

REGIONS: tuple[str, ...] = _partitions["aws"]
"""Regions of the commercial partition, `aws`."""

OTHER_PARTITIONS: dict[str, str] = {
    region: partition for partition, regions in _partitions.items() if partition != "aws" for region in regions
}
"""The partition of each region outside it, e.g. `aws-us-gov`."""
