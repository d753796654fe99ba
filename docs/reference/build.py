"""Writes docs/reference/stack-file.md from the settings models and the docstrings of the components' arguments.

Run it after a change of a setting: `.venv/bin/python docs/reference/build.py`. A unit test compares.
"""

import ast
import inspect
import re
import sys
import textwrap
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "infra")]

from pydantic.fields import FieldInfo  # noqa: E402

from eks_llm.inputs import Model, Quantity  # noqa: E402
from settings import Platform  # noqa: E402

PAGE = Path(__file__).with_name("stack-file.md")
HEAD = """# The stack file

Written by `docs/reference/build.py` from the code; do not edit.

A stack is described by one object, `<project>:platform`, in `Pulumi.<stack>.yaml`, beside `aws:region`. Unknown keys
are refused, and every problem is reported at once. Times and sizes carry a unit: `820ms`, `90s`, `10m`, `2h`; `512MiB`,
`200GiB`, `2TiB`. Secrets are never part of it: set them with `pulumi config set --secret <key>`.
`Pulumi.dev.yaml` and `Pulumi.prod.yaml` are complete examples.
"""


def field_docs(owner: type) -> dict[str, str]:
    """The docstring under each field of a class."""
    body = cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]).body
    docs: dict[str, str] = {}
    for field, text in pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                docs[name] = " ".join(doc.split())
    return docs


def documented(model: type[Model]) -> dict[str, str]:
    """Docs of a model's fields: from its arguments' TypedDict (`PoolSettings` → `GpuNodePoolArgs`), else its own."""
    docs = field_docs(model)
    near = [item for owner in model.__mro__ if owner.__module__ != Model.__module__
            for item in vars(sys.modules[owner.__module__]).items()]  # fmt: skip
    for name, item in near:
        if name.endswith("Args") and set(model.model_fields) <= set(getattr(item, "__annotations__", {})):
            return {**field_docs(item), **docs}
    return docs


def models_in(annotation: Any) -> list[type[Model]]:
    """The settings models that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    return [model for arg in get_args(annotation) for model in models_in(arg)]


def type_name(annotation: Any) -> str:  # noqa: PLR0911 one per kind of type
    """An annotation in a reader's words."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(args[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_name(a) for a in args if a is not type(None) and "Output" not in str(a)))
    if origin in (list, tuple):
        return f"list of {type_name(args[0])}"
    if origin is dict:
        return f"mapping of name to {type_name(args[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " \\| ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, Quantity):
        return f"{annotation.__name__.lower()} such as `{annotation.example}`"
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return "object, below"
    names = {
        "AwareDatetime": "time with a zone",
        "str": "text",
        "int": "whole number",
        "float": "number",
        "bool": "true or false",
    }
    name = getattr(annotation, "__name__", str(annotation))
    return "IPv4 range" if name == "IPv4Network" else names.get(name, name)


def default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, Model) or value in ({}, []):
        return "optional"
    if isinstance(value, Enum):
        return f"default `{value.value}`"
    if isinstance(value, list):
        value = "[" + ", ".join(str(item.value if isinstance(item, Enum) else item) for item in value) + "]"
    return f"default `{str(value).lower() if isinstance(value, bool) else value}`"


def section(path: str, model: type[Model]) -> str:
    docs = documented(model)
    lines = [f"## `{path}`", ""]
    if model.__doc__ and path != "platform" and not model.__doc__.startswith("What a stack file says"):
        lines += [" ".join(model.__doc__.split()), ""]
    lines += ["| key | value | |", "|---|---|---|"]
    below: list[str] = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        # Arguments name themselves in Python's way; the stack file writes the same names in camelCase.
        doc = re.sub(r"`([a-z]+(?:_[a-z]+)+)`", lambda m: "`" + _camel(m[1]) + "`", docs.get(name, ""))
        kind = type_name(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
        needed = default_text(field) if "default" not in doc.lower() else ""
        lines.append(f"| `{key}` | {'; '.join(filter(None, (kind, needed)))} | {doc.replace('|', chr(92) + '|')} |")
        named = get_origin(field.annotation) is dict
        below += [section(f"{path}.{key}{'.<name>' if named else ''}", inner) for inner in models_in(field.annotation)]
    return "\n".join([*lines, "", *below])


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def page() -> str:
    return f"{HEAD}\n{section('platform', Platform).rstrip()}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
