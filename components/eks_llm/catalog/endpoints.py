"""Services of AWS that a VPC reaches by an interface endpoint: `ENDPOINTS`."""

from ._load import Fact, load


class _File(Fact):
    sources: list[str]
    date: str
    services: tuple[str, ...]


ENDPOINTS: tuple[str, ...] = load("endpoints.yaml", _File).services
"""Names behind `com.amazonaws.<region>.`, such as `ecr.api`."""
