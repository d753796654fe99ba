"""Prices of what a stack has beside GPU instances: `PRICES` by region."""

import datetime

from ._load import Fact, load


class RegionPrices(Fact):
    """USD in one region. Per hour unless the name says otherwise."""

    nat_hour: float
    nat_gb: float
    """Per GB through a NAT gateway."""
    endpoint_hour: float
    """Interface endpoint, per zone."""
    endpoint_gb: float
    gp3_gb_month: float
    gp3_mbps_month: float
    """Per MB/s and month above 125."""
    gp3_iops_month: float
    """Per IOPS and month above 3,000."""
    nodes: dict[str, float]
    """Instances without GPU, on demand."""


class _File(Fact):
    sources: list[str]
    date: datetime.date
    regions: dict[str, RegionPrices]


_file = load("prices.yaml", _File)

PRICES: dict[str, RegionPrices] = _file.regions
DATE: datetime.date = _file.date
"""When these prices were read."""
