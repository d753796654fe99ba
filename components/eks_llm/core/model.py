"""`Model`, the base of all settings and arguments, and `In`, a value that may be known later.

A component takes a `TypedDict` (its public contract), and checks it with a private `Model` before it registers
anything. The same models read the camelCase keys of a stack file, so a setting has one definition.
"""

from enum import Enum
from typing import Annotated, Any, TypeVar, Union, cast, get_args

import pulumi
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

T = TypeVar("T")


class _DeferOutputs:
    """Checks plain values now and lets Pulumi outputs through, whose value is known only when they resolve."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        plain = handler.generate_schema(get_args(source)[0])
        return core_schema.no_info_wrap_validator_function(
            lambda value, check: value if isinstance(value, pulumi.Output) else check(value), plain
        )


In = Annotated[Union[T, pulumi.Output[T]], _DeferOutputs()]
"""`In[T]`: a `T` now, or an output of another resource. A plain `T` decides which resources exist."""


def _strict_scalars(schema: Any) -> Any:
    """`schema` with numbers and booleans taken as they are written: `"2"`, `2.0` and `true` are no whole numbers.

    Pydantic's own strict mode would also refuse the texts that stand for members of an `Enum`.
    """
    if isinstance(schema, list):
        return [_strict_scalars(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _strict_scalars(item) for key, item in cast(dict[str, Any], schema).items()}
    return {**inner, "strict": True} if inner.get("type") in ("int", "float", "bool") else inner


class Model(BaseModel):
    """Base of every settings and argument model: frozen, no unknown keys, snake_case or camelCase keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        arbitrary_types_allowed=True,
        validate_default=True,
        serialize_by_alias=False,
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return _strict_scalars(handler(source))

    def args(self) -> Any:
        """The model as the snake_case mapping that a component's arguments take."""
        return {
            name: _plain(getattr(self, name)) for name in self.__class__.model_fields if name in self.model_fields_set
        }


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.args()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast(list[Any], value)]
    return value


def component_inputs(model: Model, settings: type[Model]) -> dict[str, Any]:
    """What a component tells the engine of itself: its settings, as a stack file writes them.

    So a preview shows a changed setting at its component, and tools can size a platform from any program's resources.
    """
    return {
        settings.model_fields[name].alias or name: _written(getattr(model, name))
        for name in settings.model_fields
        if name in model.model_fields_set
    }


def _written(value: Any) -> Any:
    """A setting as JSON knows it. Outputs stay: the engine resolves them."""
    if isinstance(value, Model):
        return component_inputs(value, type(value))
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, dict):
        return {key: _written(item) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in cast(list[Any], value)]
    if isinstance(value, Enum):
        return value.value
    return (
        value
        if value is None or isinstance(value, (bool, pulumi.Output)) or type(value) in (int, float)
        else str(value)
    )
