"""What the pinned vLLM takes as arguments: `ENGINE_ARGUMENTS` and, of `vllm serve` alone, `SERVER_ARGUMENTS`."""

from typing import Any

from ._load import Fact, load

Takes = str | tuple[Any, ...]
"""Kinds of values, such as `boolean` or `list or text`; or the values themselves."""


class _File(Fact):
    vllm: str
    engine: dict[str, Takes]
    server: dict[str, Takes]


_file = load("engine_arguments.yaml", _File)

VLLM: str = _file.vllm
"""Version of the engine that the list is of."""
ENGINE_ARGUMENTS: dict[str, Takes] = _file.engine
"""By name, those of `AsyncEngineArgs`."""
SERVER_ARGUMENTS: dict[str, Takes] = _file.server
"""By name, those of `FrontendArgs` beside them."""
