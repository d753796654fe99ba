"""Does a model fit on its GPUs? What vLLM will find at start, term by term.

budget (visible memory x gpuMemoryUtilization) - weights - non-torch - activation - CUDA graphs = KV cache, which must
hold at least one request of `maxModelLen`. docs/sizing.md compares the result with logs of real engines.
"""

from dataclasses import dataclass
from enum import Enum

from ..catalog.engines import Reserve, reserve
from ..catalog.instances import Gpu
from ..catalog.models import ModelShape
from ..catalog.quantization import KV_CACHES, QUANTIZATIONS
from .kv_cache import KvCost, kv_cost
from .weights import GIB, effective_quantization, lora_gib, weights_gib, weights_per_gpu_gib

UNCERTAINTY_GIB = 1.5
"""A margin below this is called marginal: predicted and logged KV caches differ by up to about that much per GPU."""


class Verdict(Enum):
    """Whether an engine will start."""

    FITS = "fits"
    MARGINAL = "marginal"
    DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True)
class Engine:
    """The engine settings on which memory depends. Defaults are vLLM's for an A100, but for the version."""

    vllm: str
    """Version of vLLM, e.g. `0.27.1`."""
    max_model_len: int
    """Longest request, prompt and output, tokens."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    gpu_memory_utilization: float = 0.92
    kv_cache_dtype: str = "auto"
    enforce_eager: bool = False
    lora_adapters: int = 0
    """Adapters that the GPU holds at once, vLLM's `max_loras`."""
    max_lora_rank: int = 16


@dataclass(frozen=True)
class Fit:
    """The memory of one GPU of a replica, GiB."""

    model: str
    gpu: Gpu
    quantization: str
    """What the weights have on the GPU: the model's own format where the stack asks for none."""
    tensor_parallel: int
    pipeline_parallel: int
    engine: Engine
    weights_total: float
    weights: float
    adapters: float
    """Slots of LoRA adapters."""
    non_torch: float
    activation: float
    activation_of: str
    """What decides `activation`."""
    graphs: float
    kv: KvCost
    max_position: int

    @property
    def budget(self) -> float:
        return self.gpu.visible_gib * self.engine.gpu_memory_utilization

    @property
    def kv_cache(self) -> float:
        """Left for the KV cache; negative: the engine does not start."""
        return self.budget - self.weights - self.adapters - self.non_torch - self.activation - self.graphs

    @property
    def needed(self) -> float:
        """KV cache of one request of maximum length."""
        return self.kv.request_bytes(self.engine.max_model_len) / GIB

    @property
    def margin(self) -> float:
        return self.kv_cache - self.needed

    @property
    def verdict(self) -> Verdict:
        if self.margin < 0:
            return Verdict.DOES_NOT_FIT
        return Verdict.MARGINAL if self.margin < UNCERTAINTY_GIB else Verdict.FITS

    @property
    def pool_tokens(self) -> int:
        """Size of the KV pool of a replica, tokens."""
        return self.kv.pool_tokens(self.kv_cache * GIB, self.engine.max_model_len)

    def concurrency(self, tokens: int | None = None) -> float:
        """Requests of `tokens` (default: maximum length) that the pool holds at once, without shared prefixes."""
        return max(0.0, self.kv_cache * GIB / self.kv.request_bytes(tokens or self.engine.max_model_len))

    @property
    def largest_max_model_len(self) -> int:
        """The largest `maxModelLen` that fits, tokens; 0: none."""
        return self.kv.longest(self.kv_cache * GIB, self.max_position)

    @property
    def summary(self) -> str:
        """One line: verdict, margin, pool and concurrency."""
        if self.verdict is Verdict.DOES_NOT_FIT:
            return f"does not fit (short of {-self.margin:.1f} GiB per GPU)"
        return (
            f"{self.verdict.value} (margin {self.margin:.1f} GiB per GPU): KV cache of {self.pool_tokens:,} tokens, "
            f"{self.concurrency():.1f} requests of {self.engine.max_model_len:,}"
        )

    def arithmetic(self) -> list[str]:
        """The calculation, one term a line."""
        shards = self.tensor_parallel * self.pipeline_parallel
        rows = [
            (self.budget, "budget", f"{self.gpu.visible_gib} visible x {self.engine.gpu_memory_utilization:g}"),
            (-self.weights, "weights", f"{self.weights_total:.1f} {QUANTIZATIONS[self.quantization].name} on {shards}"),
            (-self.adapters, "adapters", f"{self.engine.lora_adapters} LoRA of rank {self.engine.max_lora_rank}"),
            (-self.non_torch, "non-torch", f"CUDA and NCCL at tensor parallel {self.tensor_parallel}"),
            (-self.activation, "activation", self.activation_of),
            (-self.graphs, "CUDA graphs", "set aside before capture"),
            (self.kv_cache, "= KV cache", f"{self.kv.token_bytes:,} bytes per token and GPU"),
            (self.needed, "needed", f"one request of {self.engine.max_model_len:,} tokens"),
        ]
        return [f"{label:<12}{value:>8.1f} GiB  {note}" for value, label, note in rows if value]


def fit(
    model: str,
    shape: ModelShape,
    gpu: Gpu,
    engine: Engine,
    *,
    quantization: str = "none",
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    kept: Reserve | None = None,
) -> Fit:
    """The memory of `shape` on `gpu`. `model` names it in messages; `kept` replaces the reserve of the engine version.

    Raises `ValueError` for engine versions that nobody measured. Legality is `parallelism.problem`'s business.
    """
    kept = kept or reserve(engine.vllm)
    activation, activation_of = _activation(shape, engine, tensor_parallel, kept)
    return Fit(
        model=model,
        gpu=gpu,
        quantization=effective_quantization(shape, quantization),
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        engine=engine,
        weights_total=weights_gib(shape, quantization),
        weights=weights_per_gpu_gib(shape, quantization, tensor_parallel, pipeline_parallel),
        adapters=lora_gib(shape, engine.lora_adapters, engine.max_lora_rank, tensor_parallel),
        non_torch=_non_torch(kept, tensor_parallel),
        activation=activation,
        activation_of=activation_of,
        graphs=0.0 if engine.enforce_eager else kept.graphs_gib,
        kv=kv_cost(
            shape,
            tensor_parallel,
            KV_CACHES[engine.kv_cache_dtype].bytes,
            engine.max_num_batched_tokens,
            pipeline_parallel,
        ),
        max_position=shape.max_position,
    )


def _non_torch(kept: Reserve, tensor_parallel: int) -> float:
    known = [size for size in sorted(kept.non_torch_gib) if size >= tensor_parallel]
    return kept.non_torch_gib[known[0] if known else max(kept.non_torch_gib)]


def _activation(shape: ModelShape, engine: Engine, tensor_parallel: int, kept: Reserve) -> tuple[float, str]:
    """Peak of a profiled step: the sampler over all sequences, or a forward pass over a full batch; and which it is."""
    sampler = kept.sampler_bytes * engine.max_num_seqs * shape.vocab
    paths = shape.active_experts or 1
    forward = 2 * engine.max_num_batched_tokens * (3 * paths * shape.intermediate / tensor_parallel + 3 * shape.hidden)
    extra = (kept.moe_gib if shape.experts else 0) + (kept.vision_gib if shape.extra_gib else 0)
    seqs = engine.max_num_seqs
    of_sampler = f"logits and work space for {seqs} sequence{'s' * (seqs != 1)}"
    of_forward = f"work space for a batch of {engine.max_num_batched_tokens:,} tokens"
    return max(sampler, forward) / GIB + extra, of_sampler if sampler >= forward else of_forward
