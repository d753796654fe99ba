"""Does this GPU run this format? FP8 on an A100 and its like, refused with what to use instead."""

from dataclasses import dataclass

from ..catalog.instances import Gpu
from ..catalog.models import ModelShape
from ..catalog.quantization import KV_CACHES, QUANTIZATIONS


@dataclass(frozen=True)
class Finding:
    """Something to say about a stack. Errors stop it; warnings do not."""

    path: str
    """Where, as a key path below `platform`, e.g. `services.llama-70b.tensorParallel`."""
    message: str
    error: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def problems(
    shape: ModelShape, gpu: Gpu, quantization: str, kv_cache_dtype: str = "auto", path: str = ""
) -> list[Finding]:
    """What the GPU cannot run (errors), or runs in another way than the name says (warnings).

    `path` is the key path of the service. Unknown names are errors that list the known ones.
    """
    return [*_weights(shape, gpu, quantization, path), *_cache(gpu, kv_cache_dtype, path)]


def _weights(shape: ModelShape, gpu: Gpu, quantization: str, path: str) -> list[Finding]:
    key = _join(path, "quantization")
    if quantization not in QUANTIZATIONS:
        return [Finding(key, f"{quantization!r} is not one of {', '.join(QUANTIZATIONS)}", error=True)]
    native = shape.native_quantization
    if native and quantization not in ("none", native):
        return [Finding(key, f"the model is published in {native}; use none (or {native})", error=True)]
    used = native if native and quantization == "none" else quantization
    facts = QUANTIZATIONS[used]
    # Weights that come in FP8 run weight-only where the GPU has no FP8 arithmetic; asking for W8A8 by name does not.
    least = QUANTIZATIONS["fp8-weight-only"].min_compute_capability if used == native == "fp8" else ""
    if older(gpu, least or facts.min_compute_capability):
        instead = f"; use {' or '.join(facts.alternatives)}" if facts.alternatives else ""
        return [Finding(key, f"{_needs(gpu, facts.name, facts.min_compute_capability)}{instead}", error=True)]
    widened = facts.compute_capability and older(gpu, facts.compute_capability)
    if widened:
        return [Finding(key, f"{facts.name} on {gpu.name}: weight-only, so memory is saved but no arithmetic")]
    return []


def _cache(gpu: Gpu, kv_cache_dtype: str, path: str) -> list[Finding]:
    key = _join(path, "engine.kvCacheDtype")
    if kv_cache_dtype not in KV_CACHES:
        return [Finding(key, f"{kv_cache_dtype!r} is not one of {', '.join(KV_CACHES)}", error=True)]
    facts = KV_CACHES[kv_cache_dtype]
    if not older(gpu, facts.min_compute_capability):
        return []
    needs = _needs(gpu, f"a {kv_cache_dtype} KV cache", facts.min_compute_capability)
    instead = " or ".join(facts.alternatives) or "float16"
    return [Finding(key, f"{needs}; use {instead} and, for room, a shorter longest request or more GPUs", error=True)]


def _needs(gpu: Gpu, what: str, capability: str) -> str:
    return f"{what} needs compute capability {capability}; {gpu.name} has {gpu.compute_capability}"


def older(gpu: Gpu, capability: str) -> bool:
    """Whether the GPU is of an earlier generation than `capability`, e.g. `8.9`."""
    return _number(gpu.compute_capability) < _number(capability)


def _number(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return int(major), int(minor)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
