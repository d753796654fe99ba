"""Types shared by every component's arguments and by the stack file: `Model`, `In`, names and quantities.

A component takes a `TypedDict` (its public contract), and checks it with a private `Model` before it registers
anything. The same models read the camelCase keys of a stack file, so a setting has one definition.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Network
from typing import Annotated, Any, Generic, TypeVar, Union, cast, get_args

import pulumi
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    PlainSerializer,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, core_schema

T = TypeVar("T")
M = TypeVar("M", bound="Model")


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


# Problems -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where (a dotted key path), what stands there, and what would be right."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidArgs(pulumi.RunError):
    """Arguments that cannot work. Pulumi shows a `RunError` as a plain message, without a traceback."""

    def __init__(self, where: str, problems: list[Problem]) -> None:
        self.problems = problems
        self.messages = [f"{where}: {problem}" for problem in problems]
        """One text per problem, of several lines where it shows a calculation."""
        super().__init__("\n".join(self.messages))


def validated(model: type[M], args: Mapping[str, Any], where: str) -> M:
    """`args` as a checked `model`; raises `InvalidArgs` that names every bad key. `where` is e.g. `Network "main"`."""
    if not isinstance(args, Mapping):
        raise InvalidArgs(where, [Problem("", f"args: {shown(args)} is not a mapping of arguments")])
    try:
        return model.model_validate(dict(args))
    except ValidationError as error:
        raise InvalidArgs(where, list(problems(error, model, snake_case=True))) from None


class FaultsError(ValueError):
    """Several problems that one validator found, each a message of its own."""

    def __init__(self, *messages: str) -> None:
        self.messages = messages
        super().__init__("; ".join(messages))


def unshown(message: str) -> PydanticCustomError:
    """A problem whose message never repeats the value, which may be a secret in the wrong place."""
    return PydanticCustomError("unshown", "{message}", {"message": message})


def problems(error: ValidationError, model: Any, snake_case: bool = False) -> Iterator[Problem]:
    """Each error of a validation as a `Problem`: the path as the user wrote it, the bad value, what would be right."""
    for item in error.errors(include_url=False, include_context=True):
        loc = [part for part in item["loc"] if not _internal(part)]
        path, value = _dotted(loc, snake_case), item.get("input")
        if item["type"] == "extra_forbidden":
            yield Problem(path, f"unknown key{nearest(str(loc[-1]), _field_names(model, loc[:-1], snake_case))}")
        elif isinstance(value, Mapping) and item["type"] in ("value_error", "assertion_error"):
            keys = _field_names(model, loc, snake_case=False)
            cause = item.get("ctx", {}).get("error")
            for message in cause.messages if isinstance(cause, FaultsError) else [item["msg"]]:
                yield _of_whole(path, _sentence(message), keys, model if snake_case else None)
        else:
            yield Problem(path, _of_value(item, value, snake_case))


SHOWN_LIMIT = 80
"""Longest part of a bad value that a message repeats, characters."""


def shown(value: Any, snake_case: bool = True) -> str:
    """A bad value in a message: as Python writes it, or (in a stack file) as YAML does; long ones are cut."""
    text = repr(value)
    if not snake_case and (value is None or isinstance(value, bool)):
        text = json.dumps(value)
    return text if len(text) <= SHOWN_LIMIT else f"{text[: SHOWN_LIMIT - 1]}…"


_WANTED = {
    "int_type": "write a whole number, such as 2, without quotes",
    "float_type": "write a number, such as 0.9, without quotes",
    "bool_type": "write true or false, without quotes",
    "list_type": "write a list, such as [a, b]",
    "dict_type": "write a mapping of keys",
    "model_type": "write a mapping of keys",
    "model_attributes_type": "write a mapping of keys",
}
"""What would be right, by pydantic's name of the error; for the others its own message says so."""


def _of_value(item: Any, value: Any, snake_case: bool) -> str:
    kind, text = item["type"], shown(value, snake_case)
    if kind == "missing":
        return "required, but missing"
    if kind == "unshown":
        return item["msg"]
    if value is None and not snake_case:
        return "nothing stands here (null); give a value, or leave the key out"
    if kind == "enum":
        return f"{text} is not one of {item.get('ctx', {}).get('expected', 'the allowed values')}"
    if kind == "string_type":
        quoted = isinstance(value, (int, float))  # YAML reads `version: 1.35` as a number, and 1.30 as 1.3
        return f"{text} is not text" + (f'; write it in quotes, such as "{json.dumps(value)}"' if quoted else "")
    return f"{text}: {_WANTED.get(kind) or _sentence(item['msg'])}"


def _of_whole(path: str, message: str, keys: list[str], python: Any) -> Problem:
    """A problem that a rule over several keys found. Such a rule names the key to blame first: `nodes.min: …`.

    `python`: the model whose keys a Python caller knows in snake_case.
    """
    match = re.match(r"([A-Za-z]+)(\.[A-Za-z0-9.-]+)?: ", message)
    blamed = ""
    if match and match[1] in keys:
        blamed, message = message[: match.end() - 2], message[match.end() :]
    if python:
        blamed, message = ".".join(map(_to_snake, blamed.split("."))), _in_snake_case(message, python)
    return Problem(".".join(filter(None, (path, blamed))), message)


def _in_snake_case(message: str, model: Any) -> str:
    """A message that names keys as a stack file does, for a caller in Python; other words stay as they are."""
    keys = {alias for inner in models_in(model) for alias in _aliases(inner)}
    return re.sub(r"\b[a-z]+(?:[A-Z][A-Za-z0-9]*)\b", lambda m: _to_snake(m[0]) if m[0] in keys else m[0], message)


def _aliases(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name
        for inner in models_in(field.annotation):
            yield from _aliases(inner)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in get_args(annotation) for model in models_in(arg)]


def nearest(word: str, known: list[str]) -> str:
    """A hint that ends a message about an unknown name: the nearest known one, else all of them."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f" (known: {', '.join(sorted(known))})" if known else ""


def _internal(part: Any) -> bool:
    """Steps that pydantic adds to a path for its own machinery, such as `function-after[...]`."""
    return isinstance(part, str) and ("[" in part or part == "[key]")


def _dotted(loc: list[Any], snake_case: bool) -> str:
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            name = _to_snake(part) if snake_case else str(part)
            path += f".{name}" if path else name
    return path


def _to_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower() if name.isidentifier() else name


def _sentence(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


def _field_names(model: Any, loc: list[Any], snake_case: bool) -> list[str]:
    """The keys that are allowed at `loc` below `model`, to suggest the nearest one."""
    for part in loc:
        if isinstance(model, type) and issubclass(model, BaseModel):
            fields = model.model_fields
            field = fields.get(str(part)) or next((f for f in fields.values() if f.alias == part), None)
            model = field.annotation if field else None
        else:
            inner = [arg for arg in get_args(model) if arg is not str]
            model = inner[-1] if inner else None
        while model is not None and not isinstance(model, type):
            candidates = [a for a in get_args(model) if isinstance(a, type) and issubclass(a, BaseModel)]
            if not candidates:
                break
            model = candidates[0]
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [name if snake_case else (f.alias or name) for name, f in model.model_fields.items()]
    return []


# Quantities ---------------------------------------------------------------------------------------------------------


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


# Names and addresses ------------------------------------------------------------------------------------------------

NAME_LIMIT = 40
"""Longest name of a pool or service: derived names (`keda-hpa-…`, Pod hashes) must stay within Kubernetes' 63."""


def _name(value: str) -> str:
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", value):
        raise PydanticCustomError(
            "name", "a name has lower-case letters a-z, digits and '-', begins with a letter and does not end with '-'"
        )
    if len(value) > NAME_LIMIT:
        raise PydanticCustomError(
            "name", "{length} characters; a name has at most {limit}", {"length": len(value), "limit": NAME_LIMIT}
        )
    return value


Name = Annotated[str, AfterValidator(_name)]
"""A DNS label that leaves room for what Kubernetes and KEDA append."""


def _cidr(value: Any) -> Any:
    if isinstance(value, IPv4Network):
        return value
    try:
        return IPv4Network(value)
    except ValueError as error:
        raise PydanticCustomError(
            "cidr", "not an IPv4 range such as 10.20.0.0/16 ({why})", {"why": str(error)}
        ) from None


Cidr = Annotated[IPv4Network, BeforeValidator(_cidr), PlainSerializer(str)]
"""An IPv4 address range without host bits."""


def _arn(value: str) -> str:
    if re.match(r"arn:aws-[a-z-]+:", value):
        raise PydanticCustomError("arn", "of another partition than arn:aws, the only one that the components know")
    if not re.fullmatch(r"arn:aws:[a-z0-9-]+:[a-z0-9-]*:\d*:.+", value):
        raise PydanticCustomError("arn", "not an ARN such as arn:aws:iam::111122223333:role/platform-admin")
    return value


Arn = Annotated[str, AfterValidator(_arn)]
