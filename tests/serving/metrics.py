"""Reading a scrape in Prometheus' text format."""

# pyright: reportMissingImports=false

import time
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families


def samples(scrape: str, name: str) -> list[tuple[dict[str, str], float]]:
    """(labels, value) of every sample with this name."""
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(scrape)
        for sample in family.samples
        if sample.name == name
    ]


def gauge(scrape: str, name: str) -> float:
    """The value of a series that exists once."""
    found = samples(scrape, name)
    assert len(found) == 1, f"{name}: {found}"
    return found[0][1]


def types(scrape: str) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(scrape)}


def wait_for(condition: Callable[[], bool], seconds: float, step: float = 0.02) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not so within {seconds} s"
        time.sleep(step)
