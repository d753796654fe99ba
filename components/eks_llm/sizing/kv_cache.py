"""How much KV cache a request takes on one GPU, and the longest request that a pool holds.

The rules are vLLM's (v1/kv_cache_interface.py, v1/core/kv_cache_utils.py of 0.32).
"""

from dataclasses import dataclass
from math import ceil, floor

from ..catalog.models import ModelShape

BLOCK = 16
"""Tokens per block of vLLM's paged cache."""
IN_FLIGHT_STEPS = 2
"""Scheduler steps whose tokens a window holds in addition, with asynchronous scheduling."""


@dataclass(frozen=True)
class KvCost:
    """KV cache of one request on one GPU."""

    layer_bytes: int
    """Per token and layer."""
    full_layers: int
    """Layers that keep the whole context."""
    window_layers: int
    """Layers that keep `window` tokens, padded to whole groups of the allocator."""
    window: int
    """Tokens that a windowed layer keeps, those in flight included."""

    @property
    def token_bytes(self) -> int:
        """What one more token takes once every window is full."""
        return self.layer_bytes * (self.full_layers or self.window_layers)

    def request_bytes(self, tokens: int) -> int:
        """What a request of `tokens` takes at its end, in whole blocks."""
        full = ceil(tokens / BLOCK)
        windowed = min(ceil(min(self.window, tokens) / BLOCK) + 1, full) if self.window_layers else 0
        return self.layer_bytes * BLOCK * (self.full_layers * full + self.window_layers * windowed)

    def longest(self, pool_bytes: float, limit: int) -> int:
        """The longest request that `pool_bytes` hold, in tokens of whole blocks, `limit` at most; 0: none."""
        low, high = 0, limit // BLOCK
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.request_bytes(middle * BLOCK) <= pool_bytes else (low, middle - 1)
        return low * BLOCK

    def pool_tokens(self, pool_bytes: float, max_model_len: int) -> int:
        """What vLLM logs as "GPU KV cache size": whole blocks, or for windowed models concurrency x `max_model_len`."""
        if not self.window_layers:
            return max(0, floor(pool_bytes / (self.token_bytes * BLOCK))) * BLOCK
        return max(0, int(pool_bytes / self.request_bytes(max_model_len) * max_model_len))


def kv_cost(
    shape: ModelShape,
    tensor_parallel: int,
    element_bytes: int = 2,
    max_num_batched_tokens: int = 2048,
    pipeline_parallel: int = 1,
) -> KvCost:
    """The KV cost of a model at a parallelism. Latent attention (MLA) is replicated on every GPU."""
    if shape.kv_lora_rank:
        per_layer = (shape.kv_lora_rank + shape.qk_rope_head_dim) * element_bytes
    else:
        per_layer = 2 * max(1, shape.kv_heads // tensor_parallel) * shape.head_dim * element_bytes
    window_layers = shape.window_layers if shape.sliding_window else 0
    full = shape.layers - window_layers
    if full and window_layers > full:
        window_layers = ceil(window_layers / full) * full  # the allocator makes groups of equal size
    return KvCost(
        layer_bytes=per_layer,
        full_layers=ceil(full / pipeline_parallel),
        window_layers=ceil(window_layers / pipeline_parallel),
        window=shape.sliding_window - 1 + IN_FLIGHT_STEPS * max_num_batched_tokens if window_layers else 0,
    )
