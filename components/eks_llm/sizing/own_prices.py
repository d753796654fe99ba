"""Prices of your own, which replace the catalogue's: the file `eks-llm.prices.yaml` beside Pulumi.yaml.

    date: 2026-11-29
    regions:
      us-west-2:
        onDemand: {p4d.24xlarge: 21.96}  # USD per hour and instance, also of reservations and system nodes
        spot: {p4d.24xlarge: 9.80}
        capacityBlock: {p4d.24xlarge: 11.80}

`eks-llm prices refresh` writes it; negotiated prices are written by hand.
"""

import datetime
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

FILE = "eks-llm.prices.yaml"

Usd = Annotated[float, Field(gt=0, lt=10_000)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class RegionPrices(_Entry):
    """USD per hour and instance, by instance type."""

    on_demand: dict[str, Usd] = {}
    spot: dict[str, Usd] = {}
    capacity_block: dict[str, Usd] = {}


class OwnPrices(_Entry):
    """What the file says."""

    date: datetime.date
    """When the prices were valid."""
    regions: dict[str, RegionPrices] = {}

    def hourly(self, instance_type: str, region: str, capacity: str = "onDemand") -> float | None:
        """USD per hour; None: the file has no price for it. `capacity` as in a stack file."""
        prices = self.regions.get(region, RegionPrices())
        if capacity == "spot":
            return prices.spot.get(instance_type)
        if capacity == "capacityBlock":
            return prices.capacity_block.get(instance_type)
        return prices.on_demand.get(instance_type)

    def unknown(self, known: Container[str]) -> Iterator[tuple[str, str]]:
        """Key path and name of each instance type that is not in `known`: a misspelt name changes no price."""
        for region, prices in self.regions.items():
            for kind, listed in prices.model_dump(by_alias=True).items():
                yield from ((f"regions.{region}.{kind}", name) for name in listed if name not in known)


def of_project(directory: Path) -> OwnPrices | None:
    """The prices of the project that `directory` is in. Raises as `read` does."""
    for place in (directory, *directory.parents):
        if (place / "Pulumi.yaml").exists() or (place / "Pulumi.yml").exists():
            return read(place)
    return None


def read(directory: Path) -> OwnPrices | None:
    """The prices in `directory`; None without the file. Raises `ValueError` that names file, key and bad value."""
    try:
        # Every value as its text: pydantic then names the key of a date or number that is none.
        content = yaml.load((directory / FILE).read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{FILE}: not a YAML file that can be read ({str(error).splitlines()[0]})") from None
    try:
        return OwnPrices.model_validate(content)
    except ValidationError as error:
        listed = [
            f"{'.'.join(map(str, item['loc'])) or 'content'}: {item['msg'].partition(' or instance of ')[0]}, "
            f"not {item['input']!r}"
            for item in error.errors(include_url=False)
        ]
        raise ValueError(f"{FILE}: {'; '.join(listed)}") from None


def write(prices: OwnPrices, directory: Path) -> Path:
    """Writes the file and returns it."""
    file = directory / FILE
    content = prices.model_dump(mode="python", by_alias=True, exclude_defaults=True)
    head = "# Prices that replace the catalogue's, USD per hour and instance. Made by: eks-llm prices refresh\n"
    file.write_text(head + yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return file
