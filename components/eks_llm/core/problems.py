"""What is wrong with settings or arguments, all of it at once, in the words of whoever wrote them."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import pulumi
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from .faults import Fault, Faults
from .model import Model

M = TypeVar("M", bound=Model)


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
        raise InvalidArgs(where, list(problems(error, model, python=True))) from None


def unshown(message: str) -> PydanticCustomError:
    """A problem whose message never repeats the value, which may be a secret in the wrong place."""
    return PydanticCustomError("unshown", "{message}", {"message": message})


def problems(error: ValidationError, model: Any, python: bool = False) -> Iterator[Problem]:
    """Each error of a validation as a `Problem`: the path as the user wrote it, the bad value, what would be right.

    `model`: the type that was validated. `python`: the caller writes snake_case; a stack file is in camelCase.
    """
    for item in error.errors(include_url=False, include_context=True):
        unknown = str(item["loc"][-1]) if item["type"] == "extra_forbidden" else ""
        path, types = _walk(model, item["loc"][:-1] if unknown else item["loc"], python)
        value, cause = item.get("input"), item.get("ctx", {}).get("error")
        if unknown:
            yield Problem(_joined(path, unknown), f"unknown key{nearest(unknown, _keys(types, python))}")
        elif isinstance(cause, (Fault, Faults)):
            for fault in cause.faults:
                yield Problem(_joined(path, fault.where(python)), fault.text(python))
        elif isinstance(value, Mapping) and item["type"] in ("value_error", "assertion_error"):
            yield Problem(path, _sentence(item["msg"]))  # the whole of it would only hide the message
        else:
            yield Problem(path, _of_value(item, value, python))


SHOWN_LIMIT = 80
"""Longest part of a bad value that a message repeats, characters."""


def shown(value: Any, python: bool = True) -> str:
    """A bad value in a message: as Python writes it, or (in a stack file) as YAML does; long ones are cut."""
    text = repr(value)
    if not python and (value is None or isinstance(value, bool)):
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


def _of_value(item: Any, value: Any, python: bool) -> str:
    kind, text = item["type"], shown(value, python)
    if kind == "missing":
        return "required, but missing"
    if kind == "unshown":
        return item["msg"]
    if value is None and not python:
        return "nothing stands here (null); give a value, or leave the key out"
    if kind == "enum":
        return f"{text} is not one of {item.get('ctx', {}).get('expected', 'the allowed values')}"
    if kind == "string_type":
        quoted = isinstance(value, (int, float))  # YAML reads `version: 1.35` as a number, and 1.30 as 1.3
        return f"{text} is not text" + (f'; write it in quotes, such as "{json.dumps(value)}"' if quoted else "")
    return f"{text}: {_WANTED.get(kind) or _sentence(item['msg'])}"


def nearest(word: str, known: list[str]) -> str:
    """A hint that ends a message about an unknown name: the nearest known one, else all of them."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f" (known: {', '.join(sorted(known))})" if known else ""


FOLDED_FROM, FOLDED_NAMES = 4, 3
"""So many equal warnings become one, which names so many of those that it is about."""


def folded(warnings: Iterable[str]) -> list[str]:
    """Warnings, `path: message` each, with those of many pools or services that say the same joined into one."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for warning in warnings:
        path, _, message = warning.partition(": ")
        before, name, after = _name_in(path)
        groups.setdefault((before, after, message), []).append(name)
    found: list[str] = []
    for (before, after, message), names in groups.items():
        if len(names) < FOLDED_FROM or not names[0]:
            found += [f"{before}{name}{after}: {message}" if message else f"{before}{name}{after}" for name in names]
        else:
            listed = f"{', '.join(names[:FOLDED_NAMES])} and {len(names) - FOLDED_NAMES} more"
            found.append(f"{before}*{after} ({listed}): {message}")
    return found


def _name_in(path: str) -> tuple[str, str, str]:
    """A key path before, at and behind the name of a pool or service."""
    match = re.fullmatch(r"((?:platform\.)?(?:services|gpuPools)\.)([a-z0-9-]+)((?:\..*)?)", path)
    return (match[1], match[2], match[3]) if match else (path, "", "")


def _joined(path: str, rest: str) -> str:
    return ".".join(filter(None, (path, rest)))


def _walk(model: Any, loc: tuple[int | str, ...], python: bool) -> tuple[str, list[Any]]:
    """The path to `loc` below `model` as the caller writes it, and which types the value there may have.

    Only fields are spelled as the caller spells fields. Keys of mappings are the caller's own words.
    """
    path, types = "", _branches(model)
    for part in loc:
        name, inner = _step(types, part, python)
        if name is not None:
            types = inner
            path = f"{path}{name}" if isinstance(part, int) else _joined(path, name)
    return path, types


def _step(types: list[Any], part: int | str, python: bool) -> tuple[str | None, list[Any]]:
    """How `part` is written where one of `types` stands, and where it leads; None: a step of pydantic's own."""
    if isinstance(part, int):
        return f"[{part}]", [inner for type_ in types for arg in get_args(type_)[:1] for inner in _branches(arg)]
    for type_ in types:
        if isinstance(type_, type) and issubclass(type_, BaseModel):
            for name, field in type_.model_fields.items():
                if part in (name, field.alias):
                    return (name if python else field.alias or name), _branches(field.annotation)
    values = [arg for type_ in types if get_origin(type_) in (dict, Mapping) for arg in get_args(type_)[1:]]
    if part == "[key]" or (not values and ("[" in part or part in _PLAIN)):
        return None, []  # such as function-after[...], and the members of a union
    return part, [inner for arg in values for inner in _branches(arg)]


_PLAIN = {"str", "int", "float", "bool", "none"}


def _branches(annotation: Any) -> list[Any]:
    """The types that a value may have: without annotations, each member of a union."""
    if get_origin(annotation) is Annotated:
        return _branches(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [inner for arg in get_args(annotation) for inner in _branches(arg)]
    return [annotation]


def _keys(types: list[Any], python: bool) -> list[str]:
    """The keys that are allowed where one of `types` stands."""
    models = [type_ for type_ in types if isinstance(type_, type) and issubclass(type_, BaseModel)]
    fields = [item for model in models for item in model.model_fields.items()]
    return [name if python else field.alias or name for name, field in fields]


def _sentence(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message[:1].lower() + message[1:] if message[1:2].islower() else message
