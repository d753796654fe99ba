"""Regions and their zones."""

import re

from eks_llm.catalog.endpoints import ENDPOINTS
from eks_llm.catalog.instances import INSTANCES
from eks_llm.catalog.regions import REGIONS, ZONES, zone_problem
from eks_llm.sizing.capacity import zone_prefix


def test_zones_are_of_known_regions_and_at_least_two() -> None:
    assert ZONES.keys() <= set(REGIONS)
    assert all(len(letters) >= 2 and letters == "".join(sorted(set(letters))) for letters in ZONES.values())


def test_there_are_as_many_letters_as_ids_of_zones_that_sell_gpus() -> None:
    """The catalogue of instances, from another source, names zones by id: a region has no fewer letters than ids."""
    for instance in INSTANCES.values():
        for region, letters in ZONES.items():
            ids = {zone for zone in instance.zone_ids if zone.startswith(f"{zone_prefix(region)}-")}
            assert len(ids) <= len(letters), region


def test_a_region_younger_than_the_sources_may_have_any_zone() -> None:
    assert zone_problem("mx-central-1c") is None
    assert "mx-central-1" in REGIONS


def test_endpoints_are_names_behind_the_region() -> None:
    assert [name for name in ENDPOINTS if not re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name)] == []
    assert "s3" not in ENDPOINTS
