"""Writes docs/reference/stack-file.md from the settings models and the docstrings of the components' arguments.

Run it after a change of a setting: `.venv/bin/python docs/reference/build.py`. A unit test compares.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from eks_llm.catalog.instances import GPUS, INSTANCES
from eks_llm.catalog.models import MODELS, ModelShape
from eks_llm.catalog.quantization import KV_CACHES, QUANTIZATIONS
from eks_llm.catalog.regions import REGIONS
from eks_llm.core.model import Model
from eks_llm.core.quantities import Quantity
from eks_llm.platform.schema import EksPlatform, ExistingPlatform, StackService

PAGE = Path(__file__).with_name("stack-file.md")
HEAD = """# The stack file

Written by `docs/reference/build.py` from the code; do not edit.

A stack is described by one object, `<project>:platform`, in `Pulumi.<stack>.yaml`, beside `aws:region`. Unknown keys
are refused, and every problem is reported at once. Times and sizes carry a unit: `820ms`, `90s`, `10m`, `2h`; `512MiB`,
`200GiB`, `2TiB`. Secrets are never part of it: set them with `pulumi config set --secret <key>`;
a `secure:` value below it is refused. Dates stand in quotes.
`Pulumi.dev.yaml` and `Pulumi.prod.yaml` are complete examples. A stack whose services run in a cluster that exists says
less: see [below](#platform-with-existingcluster) and `Pulumi.local.yaml`.

Beside it, `aws:region` is required, and `aws:profile`, `aws:assumeRoles` (each `roleArn`, `externalId`, `sessionName`)
and `aws:allowedAccountIds` reach the AWS provider; no other `aws:` key does, so others are refused. Project and stack
name the cluster, `<project>-<stack>`: at most 37 lower-case letters, digits and '-'.
"""
EXISTING = """## `platform` with `existingCluster`

Services in a cluster that exists, with its operators: [what it must have](../existing-cluster.md). Nothing is made in
AWS, so the other sections above, and `aws:` keys but the region, are refused. `aws:region` is the region of the bucket
of weights; without it, the pods use the region that EKS Pod Identity tells them.
"""

LISTS = {
    "catalog.models.MODELS": "[models](#models)",
    "catalog.models.ModelShape": "[modelShape](#modelshape)",
    "catalog.quantization.QUANTIZATIONS": "[quantizations](#quantizations)",
    "catalog.quantization.KV_CACHES": "[KV-cache formats](#kv-cache-formats)",
}
"""Where the page shows what docstrings name in Python's way."""

PHRASES = {" of `subnet_id`": "", "all keys above but `region`": "all keys above"}
"""What docstrings say of arguments that the program fills in, so that a stack file does not have them."""


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in get_args(annotation) for model in models_in(arg)]


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
    docs: dict[str, str] = {}
    for owner in reversed([item for item in model.__mro__ if issubclass(item, Model) and item is not Model]):
        for name, item in vars(sys.modules[owner.__module__]).items():
            if name.endswith("Args") and set(owner.model_fields) <= set(getattr(item, "__annotations__", {})):
                docs |= field_docs(item)
                break
        docs |= field_docs(owner)
    return docs


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
    if annotation is ModelShape:
        return "object, [below](#modelshape)"
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
    if value is None or isinstance(value, Model) or value in ({}, [], ""):
        return "optional"
    if isinstance(value, Enum):
        return f"default `{value.value}`"
    if isinstance(value, list):
        value = "[" + ", ".join(str(item.value if isinstance(item, Enum) else item) for item in value) + "]"
    return f"default `{str(value).lower() if isinstance(value, bool) else value}`"


def section(path: str, model: type[Model], head: str = "", said: tuple[type[Model], ...] = ()) -> str:
    """The table of a model's keys below `head`, and those of the models in it, without those that are `said` before."""
    docs = documented(model)
    lines = [head or f"## `{path}`\n"]
    if model.__doc__ and path != "platform" and not model.__doc__.startswith("What a stack file says"):
        lines += [" ".join(model.__doc__.split()), ""]
    lines += ["| key | value | |", "|---|---|---|"]
    below: list[str] = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        doc = _in_words_of_the_file(docs.get(name, ""))
        kind = type_name(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
        needed = default_text(field) if field.is_required() or "default" not in doc.lower() else ""
        lines.append(f"| `{key}` | {'; '.join(filter(None, (kind, needed)))} | {doc.replace('|', chr(92) + '|')} |")
        named = get_origin(field.annotation) is dict
        inner = [model for model in models_in(field.annotation) if issubclass(model, Model) and model not in said]
        below += [section(f"{path}.{key}{'.<name>' if named else ''}", model) for model in inner]
    return "\n".join([*lines, "", *below])


def keys_of(model: type[BaseModel]) -> dict[str, str]:
    """Every key below a model: its name in Python, and in a stack file."""
    keys = {name: field.alias or name for name, field in model.model_fields.items()}
    for field in model.model_fields.values():
        for inner in models_in(field.annotation):
            keys |= keys_of(inner)
    return keys


KEYS = keys_of(EksPlatform) | keys_of(ExistingPlatform)


def _in_words_of_the_file(doc: str) -> str:
    """A docstring, which names arguments in Python's way, for readers of a stack file."""
    for phrase, instead in PHRASES.items():
        doc = doc.replace(phrase, instead)
    doc = re.sub(r"`([a-z_.]+)`", lambda m: "`" + ".".join(KEYS.get(key, key) for key in m[1].split(".")) + "`", doc)
    return re.sub(r"`(catalog\.\w+\.\w+)`", lambda m: LISTS[m[1]], doc)


def table(*rows: Iterable[object]) -> str:
    head, *rest = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([head, "|" + "---|" * head.count(" | ") + "---|", *rest])


def lists() -> Iterator[str]:
    """What the catalogue knows, and so a stack file may name."""
    yield "## Models\n\nFor `model`. Any other model needs a `modelShape`."
    yield table(
        ("name", "Hugging Face", "longest context"),
        *((f"`{name}`", shape.huggingface, f"{shape.max_position:,}") for name, shape in MODELS.items()),
    )
    yield (
        "## modelShape\n\nFor a model that is not in the list: `{configJson: path}`, or these fields, which the "
        "model's `config.json` has under other names."
    )
    docs = field_docs(ModelShape)
    yield table(
        ("key", "value", "", ""),
        *(
            (
                f"`{field.alias}`",
                type_name(field.annotation),
                default_text(field),
                _in_words_of_the_file(docs.get(name, "")),
            )
            for name, field in ModelShape.model_fields.items()
        ),
    )
    yield "## Quantizations"
    yield table(
        ("name", "format", "bits per weight", "compute capability at least", "on A100"),
        *(
            (f"`{name}`", item.name, f"{item.linear_bits:g}", item.min_compute_capability, item.on_a100)
            for name, item in QUANTIZATIONS.items()
        ),
    )
    yield "## KV-cache formats\n\nFor `engine.kvCacheDtype`."
    yield table(
        ("name", "bytes", "compute capability at least"),
        *((f"`{name}`", item.bytes, item.min_compute_capability) for name, item in KV_CACHES.items()),
    )
    yield "## Instance types\n\nFor `gpuPools.<name>.instanceType`."
    yield table(
        ("name", "GPUs", "vCPUs", "NVMe, GB", "EFA interfaces"),
        *(
            (
                f"`{name}`",
                f"{item.gpus} x {GPUS[item.gpu].name}",
                item.vcpus,
                item.nvme_gb or "none",
                item.efa or "none",
            )
            for name, item in INSTANCES.items()
        ),
    )
    yield f"## Regions\n\nFor `aws:region`: {', '.join(f'`{region}`' for region in REGIONS)}."


def page() -> str:
    new = section("platform", EksPlatform)
    existing = section("platform", ExistingPlatform, EXISTING, said=(StackService,))
    return "\n\n".join([f"{HEAD}\n{new.rstrip()}", existing.rstrip(), *lists()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
