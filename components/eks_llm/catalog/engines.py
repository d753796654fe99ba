"""What vLLM keeps for itself on a GPU, by its version: `reserve`."""

import re

from ._load import Fact, load


class Reserve(Fact):
    """GPU memory beside weights and KV cache. Meaning and evidence of each figure: engines.yaml."""

    since: str
    """First vLLM version that it holds for."""
    sampler_bytes: float
    non_torch_gib: dict[int, float]
    graphs_gib: float = 0
    moe_gib: float = 0
    vision_gib: float = 0


class _File(Fact):
    sources: list[str]
    date: str
    reserves: list[Reserve]


RESERVES: list[Reserve] = load("engines.yaml", _File).reserves
"""Newest first."""


def version(text: str) -> tuple[int, int]:
    """Major and minor of a vLLM version such as `0.27.1` or `0.29.1rc`. Raises `ValueError`."""
    match = re.match(r"v?(\d+)\.(\d+)", text)
    if not match:
        raise ValueError(f"{text!r} is not a vLLM version such as 0.27.1")
    return int(match[1]), int(match[2])


def reserve(vllm: str) -> Reserve:
    """The reserve of a vLLM version. Raises `ValueError` for those before the first that was measured."""
    for entry in RESERVES:
        if version(vllm) >= version(entry.since):
            return entry
    raise ValueError(f"vLLM {vllm}: memory use is known from {RESERVES[-1].since} on (the V1 engine)")
