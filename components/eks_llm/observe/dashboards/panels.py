"""What a dashboard shows, as records: grafana.py makes Grafana's JSON of them.

Every panel says in `look` what to look for. Queries use plain windows such as `[5m]`, not Grafana's `$__rate_interval`,
so that a dashboard shows the very numbers that rules alert on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..thresholds import Threshold

CHOSEN = 'namespace=~"$namespace",service=~"$service"'
"""Label matchers of the services chosen at the top of a dashboard."""
WIDTH = 24
"""Columns of Grafana's grid."""

Limit = Threshold | float
"""A red line. Where an alert compares with it, it is the alert's own threshold."""
Series = Mapping[str, str]
"""Queries by their legend, which may hold labels such as `{{pod}}`."""


@dataclass(frozen=True)
class Panel:
    """What all panels have."""

    title: str


@dataclass(frozen=True)
class Graph(Panel):
    """Lines over time."""

    unit: str
    """Grafana's name of a unit: `short` for plain numbers, `s`, `percentunit` for shares of 1, `reqps`, `bytes`."""
    series: Series
    look: str
    """What to look for, and what it means."""
    width: int = 8
    most: float | None = None
    """End of the axis; None: as the values need."""
    limit: Limit | None = None
    """A red line, such as a latency target or the threshold of an alert."""
    stacked: bool = False
    alerts: Sequence[str] = ()
    """Alerts that the panel explains; it links to their runbooks."""


@dataclass(frozen=True)
class Figure(Panel):
    """The latest value, large."""

    unit: str
    query: str
    look: str
    width: int = 4
    worse: tuple[Limit, Limit] | None = None
    """Where it becomes orange and red; a second that is lower means that falling is bad. None: always green."""
    decimals: int | None = None
    """None: as many as Grafana finds useful."""
    alerts: Sequence[str] = ()


@dataclass(frozen=True)
class Table(Panel):
    """A row for each combination of labels."""

    columns: Mapping[str, tuple[str, str]]
    """Unit and query by heading."""
    by: Sequence[str]
    """The labels, which are the first columns."""
    look: str
    width: int = WIDTH
    alerts: Sequence[str] = ()


Rows = Mapping[str, Sequence[Panel]]
"""Panels by the heading above them."""


@dataclass(frozen=True)
class Board:
    """A dashboard."""

    uid: str
    """Grafana's name of it in addresses, at most 40 characters, the same in every stack."""
    title: str
    description: str
    rows: Rows
    services_of: str | None = None
    """Metric among whose series namespaces and services are chosen at the top; None: nothing to choose."""
