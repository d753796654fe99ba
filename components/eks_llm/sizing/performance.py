"""How fast a replica is likely to be: estimates from memory bandwidth and arithmetic rate, each assumption named.

They rank placements and price tokens; they promise nothing. A measured rate always wins where one is passed in, and
where an engine of the same model, format and GPUs was measured (catalog/speeds.yaml) an estimate is corrected by it.
"""

from dataclasses import dataclass

from ..catalog.instances import GPUS
from ..catalog.models import MODELS, ModelShape
from ..catalog.speeds import DATE, SPEEDS, Speed
from .memory import Fit
from .weights import GIB, active_gib, parameters, weights_gib

BANDWIDTH_EFFICIENCY = 0.70
"""Share of the memory bandwidth that decoding reaches. Llama-3.1-8B, one stream: 75 tok/s on A100-40 (77 % of the
bound, vLLM 0.23), 87 tok/s on A100-80 (69 %, vLLM 0.31)."""
PREFILL_EFFICIENCY = 0.6
"""Share of the arithmetic rate that prefill reaches. Llama-3.1-8B on A100-80, 2,065 tokens in 140 ms is 76 %; tensor
parallelism loses some."""
DECODE_EFFICIENCY = 0.5
"""Share of the arithmetic rate in a decoding batch, whose matrices are thin. Assumed."""
ALL_REDUCE_SECONDS = {True: 15e-6, False: 60e-6}
"""One all-reduce of a decoding step with and without NVLink; two per layer. Assumed."""
P99_OVER_MEAN = 1.25
"""How much the 99th percentile of time per token exceeds its mean. Assumed."""
P99_WAIT = 4.6
"""The 99th percentile of an exponential wait, in means."""
METHOD = "estimate by bandwidth and arithmetic rate"


@dataclass(frozen=True)
class Latency:
    """Of one replica under steady load, seconds."""

    ttft_p99: float
    tpot_p99: float
    tokens_per_second: float
    """Output tokens of the whole replica."""


def step_seconds(shape: ModelShape, fit: Fit, batch: int, context: int) -> float:
    """One decoding step of `batch` sequences that have `context` tokens each."""
    shards = fit.tensor_parallel * fit.pipeline_parallel
    read = _read_gib(shape, fit, batch) / shards * GIB + batch * fit.kv.request_bytes(context)
    bandwidth = read / (fit.gpu.bandwidth_gbs * 1e9 * BANDWIDTH_EFFICIENCY)
    work = 2 * parameters(shape).active * batch / (shards * fit.gpu.bf16_tflops * 1e12 * DECODE_EFFICIENCY)
    links = 2 * shape.layers * ALL_REDUCE_SECONDS[fit.gpu.nvlink_gbs > 0] if fit.tensor_parallel > 1 else 0.0
    return max(bandwidth, work) + links


def prefill_seconds(shape: ModelShape, fit: Fit, tokens: float) -> float:
    """The forward pass over a prompt of `tokens`, alone on the GPUs."""
    attention = 2 * shape.layers * shape.heads * shape.head_dim * tokens**2
    work = 2 * parameters(shape).active * tokens + attention
    return work / (fit.tensor_parallel * fit.pipeline_parallel * fit.gpu.bf16_tflops * 1e12 * PREFILL_EFFICIENCY)


def latency(
    shape: ModelShape, fit: Fit, streams: int, *, prompt: float, longest_prompt: float, output: float
) -> Latency:
    """`streams` clients in a closed loop: each sends a prompt when its last answer has ended."""
    seen = _estimate(shape, fit, streams, prompt=prompt, longest_prompt=longest_prompt, output=output)
    if not (speed := measured(shape, fit)):
        return seen
    point = {"prompt": speed.prompt_tokens, "longest_prompt": speed.prompt_tokens, "output": speed.output_tokens}
    ratio = speed.tokens_per_second / _estimate(shape, fit, speed.streams, **point).tokens_per_second
    return Latency(seen.ttft_p99, seen.tpot_p99 / ratio, seen.tokens_per_second * ratio)


def measured(shape: ModelShape, fit: Fit) -> Speed | None:
    """An engine of this shape, format and GPUs whose rate is known."""
    for speed in SPEEDS:
        known = MODELS[speed.model]
        asked = (fit.gpu, fit.quantization, fit.tensor_parallel, fit.pipeline_parallel)
        same = asked == (GPUS[speed.gpu], speed.quantization, speed.tensor_parallel, 1)
        if same and (known.layers, known.heads, parameters(known)) == (shape.layers, shape.heads, parameters(shape)):
            return speed
    return None


def method(shape: ModelShape, fit: Fit) -> str:
    """How `latency` knows."""
    return f"{METHOD}, corrected by a measurement of {DATE}" if measured(shape, fit) else METHOD


def _estimate(
    shape: ModelShape, fit: Fit, streams: int, *, prompt: float, longest_prompt: float, output: float
) -> Latency:
    """While one prompt is prefilled the others wait: a token takes a step and its share of all streams' prompts."""
    step = step_seconds(shape, fit, streams, int(prompt + output / 2))
    prefill = prefill_seconds(shape, fit, prompt)
    tpot = step + streams * prefill / output
    busy = min(0.95, streams * prefill / (output * tpot))
    wait = busy * prefill / (2 * (1 - busy))
    return Latency(
        ttft_p99=prefill_seconds(shape, fit, longest_prompt) / (1 - busy) + step + P99_WAIT * wait,
        tpot_p99=tpot * P99_OVER_MEAN,
        tokens_per_second=streams / tpot,
    )


def _read_gib(shape: ModelShape, fit: Fit, batch: int) -> float:
    """Weights that one step reads: a batch of a mixture of experts wakes more experts than one token does."""
    one = active_gib(shape, fit.quantization)
    if not shape.experts:
        return one
    everything = weights_gib(shape, fit.quantization) - shape.extra_gib
    awake = 1 - (1 - shape.active_experts / shape.experts) ** batch
    return one + (everything - one) * awake
