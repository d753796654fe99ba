"""Reads a catalogue file that ships with the package."""

from importlib.resources import files
from typing import TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from ..core.strict_yaml import read


class Fact(BaseModel):
    """Base of catalogue entries: frozen, camelCase keys in the files, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


F = TypeVar("F", bound=Fact)


def load(file: str, model: type[F]) -> F:
    """The catalogue file `file`, checked against `model`; a key that stands twice is refused, as it hides another."""
    text = (files("eks_llm.catalog") / file).read_text(encoding="utf-8")
    return model.model_validate(read(text, times=False))
