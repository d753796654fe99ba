"""What `vllm serve` and vLLM's engine take as arguments, read from the pinned vLLM itself.

`python -m tests.serving.arguments` in the serving environment writes it to the catalogue.
"""

import collections.abc
import dataclasses
import enum
import types
import typing
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union

import yaml

FILE = Path(__file__).parents[2] / "components" / "eks_llm" / "catalog" / "engine_arguments.yaml"
HEAD = """\
# Arguments of the pinned vLLM by what they take: what `engine.extra` of a service may hold. `engine`: fields of
# AsyncEngineArgs, for both runtimes. `server`: fields of FrontendArgs, which `vllm serve` alone has.
# A list of values: one of these. `any`: anything.
# Written by `python -m tests.serving.arguments`; a test of the serving level holds it to the installed vLLM.
"""


def takes(hint: Any) -> Any:
    """Kinds of JSON values that an argument of this type takes, or the list of values that it has."""
    members = [item for item in _members(hint) if item is not types.NoneType and not _code(item)] or [str]
    if all(typing.get_origin(item) is Literal for item in members):
        return [value for item in members for value in typing.get_args(item)]
    return " or ".join(sorted({_kind(item) for item in members}))


def _members(hint: Any) -> list[Any]:
    if typing.get_origin(hint) in (Union, types.UnionType):
        return [inner for item in typing.get_args(hint) for inner in _members(item)]
    return [hint]


def _kind(hint: Any) -> str:
    origin = typing.get_origin(hint)
    hint = origin or hint
    if hint is Literal:
        return "text"
    if not isinstance(hint, type):
        return "any"
    for kind, classes in {
        "boolean": (bool,),
        "whole number": (enum.IntEnum, int),
        "number": (float,),
        "text": (str, enum.Enum),
        "list": (list, set, tuple),
    }.items():
        if issubclass(hint, classes):
            return kind
    return "mapping"


def _code(hint: Any) -> bool:
    """Whether only a program has such a value; in a file it stands by its name, if at all."""
    return (typing.get_origin(hint) or hint) in (type, collections.abc.Callable) or (
        isinstance(hint, type) and hint.__module__ == "torch"
    )


def read() -> dict[str, Any]:
    """The arguments, by whose they are."""
    # By name: only the serving environment has it.
    version = import_module("vllm").__version__
    arguments = import_module("vllm.engine.arg_utils").AsyncEngineArgs
    frontend = import_module("vllm.entrypoints.openai.cli_args").FrontendArgs
    quantization = import_module("vllm.config.quantization")

    def of(kind: Any) -> dict[str, Any]:
        hints = typing.get_type_hints(kind, localns=vars(quantization))
        names = sorted(field.name for field in dataclasses.fields(kind) if not field.name.startswith("_"))
        return {name: takes(hints[name]) for name in names}

    engine = of(arguments)
    server = {name: kind for name, kind in of(frontend).items() if name not in engine}
    return {"vllm": version, "engine": engine, "server": server}


if __name__ == "__main__":
    content = yaml.safe_dump(read(), sort_keys=False, width=100, default_flow_style=None)
    FILE.write_text(HEAD + content, encoding="utf-8")
