"""Numbers that are written with their unit: `Duration` and `Size`."""

import re
from typing import Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

T = TypeVar("T")


class Quantity(float, Generic[T]):
    """A number that is written with its unit. Subclasses name the units and the base unit that the float counts."""

    units: dict[str, float] = {}
    example = ""

    @classmethod
    def parse(cls, value: Any) -> "Quantity[Any]":
        if isinstance(value, cls):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", value) if isinstance(value, str) else None
        if not match or match[2] not in cls.units:
            raise PydanticCustomError(
                "quantity", "write a number with a unit, one of {units}, such as {example}",
                {"units": ", ".join(cls.units), "example": cls.example},
            )  # fmt: skip
        return cls(float(match[1]) * cls.units[match[2]])

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


class Duration(Quantity[Any]):
    """A time span in seconds, written `820ms`, `90s`, `10m` or `2h`."""

    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    example = "90s"

    def __str__(self) -> str:
        return f"{self * 1000:g}ms" if self < 1 else f"{float(self):g}s"


class Size(Quantity[Any]):
    """An amount of memory or storage in GiB, written `512MiB`, `200GiB` or `2TiB`."""

    units = {"MiB": 1 / 1024, "GiB": 1.0, "TiB": 1024.0}
    example = "200GiB"

    def __str__(self) -> str:
        return f"{float(self):g}GiB"
