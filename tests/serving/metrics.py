"""Reading a scrape in Prometheus' text format."""

# pyright: reportMissingImports=false

import importlib
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
COMPONENTS = ROOT / "components"
BUSY_MACHINE = 120.0
"""Seconds in which whatever takes less than one on a calm machine is done on a busy one."""


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


def generated(scrape: str) -> float:
    """Tokens that the engine has generated."""
    return sum(value for _, value in samples(scrape, "vllm:generation_tokens_total"))


def types(scrape: str) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(scrape)}


def series(scrape: str) -> set[str]:
    """Names as Prometheus stores them; the parser above appends `_total` to counters that have another ending."""
    return set(re.findall(r"^([a-zA-Z_:][\w:]*)[{ ]", scrape, re.MULTILINE))


def used(runtime: str) -> set[str]:
    """Series of a recorded scrape (tests/metrics) that queries of the components read: names of their metrics.py."""
    if str(COMPONENTS) not in sys.path:  # the servers' environment has no Pulumi, and this module needs none
        sys.path.append(str(COMPONENTS))
    written = vars(importlib.import_module("eks_llm.observe.metrics")).values()
    names = {name for name in written if isinstance(name, str) and re.match(r"(vllm:|nv_|http_)", name)}
    recorded = series((ROOT / "tests" / "metrics" / f"{runtime}.prom").read_text())
    return recorded & {*names, *(f"{name}_bucket" for name in names)}


def missing(runtime: str, scrape: str) -> set[str]:
    """Those of `used` that a scrape lacks."""
    return used(runtime) - series(scrape)


def wait_for(condition: Callable[[], bool], seconds: float = BUSY_MACHINE, step: float = 0.02) -> None:
    """Waits until it is so. `seconds`: a bound that no machine reaches, however busy it is."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not so within {seconds} s"
        time.sleep(step)
