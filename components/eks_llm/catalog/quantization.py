"""Formats of weights and of the KV cache: `QUANTIZATIONS`, `KV_CACHES`."""

from ._load import Fact, load


class Quantization(Fact):
    """A format of model weights."""

    name: str
    linear_bits: float
    """Bits per weight of the linear layers, scales included."""
    experts_only: bool = False
    """Only experts are in this format; attention stays in bfloat16."""
    overhead: float = 1.0
    """Measured size of the loaded weights over the arithmetic one."""
    min_compute_capability: str
    """Oldest GPU generation that can run it at all."""
    compute_capability: str = ""
    """GPU generation from which the arithmetic itself runs in this format; empty: it is weight-only everywhere."""
    alternatives: tuple[str, ...] = ()
    """Keys of the formats to use instead on an older GPU, best first."""
    on_a100: str
    """What it means on compute capability 8.0."""


class KvCache(Fact):
    """A format of the KV cache."""

    bytes: int
    """Per element."""
    min_compute_capability: str
    alternatives: tuple[str, ...] = ()


class _File(Fact):
    sources: list[str]
    date: str
    quantizations: dict[str, Quantization]
    kv_caches: dict[str, KvCache]


_file = load("quantization.yaml", _File)

QUANTIZATIONS: dict[str, Quantization] = _file.quantizations
"""Weight formats by the name that a stack file uses."""
KV_CACHES: dict[str, KvCache] = _file.kv_caches
"""KV-cache formats by vLLM's `kv_cache_dtype`."""
