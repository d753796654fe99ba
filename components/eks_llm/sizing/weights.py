"""How many parameters a model has, how large its weights are in a format, and its share on each GPU."""

from dataclasses import dataclass

from ..catalog.models import ModelShape
from ..catalog.quantization import QUANTIZATIONS

GIB = 2**30


@dataclass(frozen=True)
class Parameters:
    """Counts of parameters."""

    linear: int
    """In linear layers, which a quantisation shrinks."""
    experts: int
    """Those of them in experts."""
    embedding: int
    """In one vocabulary table; a model with untied embeddings has two."""
    tables: int
    other: int
    """Norms, biases and routers, which stay in bfloat16."""
    active: int
    """Linear parameters that one token passes through, `lm_head` included."""

    @property
    def total(self) -> int:
        return self.linear + self.embedding * self.tables + self.other


def parameters(shape: ModelShape) -> Parameters:
    """Parameters of the language model (a vision tower is `extra_gib`)."""
    attention, other = _attention(shape)
    other += shape.layers * 2 * shape.hidden + shape.hidden
    dense_layers = shape.dense_layers if shape.experts else shape.layers
    dense_width = shape.dense_intermediate if shape.experts else shape.intermediate
    moe_layers = shape.layers - dense_layers
    expert = 3 * shape.hidden * shape.intermediate
    common = shape.layers * attention + dense_layers * 3 * shape.hidden * dense_width
    common += moe_layers * 3 * shape.hidden * shape.shared_intermediate
    embedding = shape.vocab * shape.hidden
    return Parameters(
        linear=common + moe_layers * shape.experts * expert,
        experts=moe_layers * shape.experts * expert,
        embedding=embedding,
        tables=1 if shape.tied_embeddings else 2,
        other=other + moe_layers * shape.hidden * shape.experts,
        active=common + moe_layers * shape.active_experts * expert + embedding,
    )


def _attention(shape: ModelShape) -> tuple[int, int]:
    """Linear parameters of one layer's attention; biases of all layers."""
    hidden, heads = shape.hidden, shape.heads
    if shape.kv_lora_rank:
        rope, nope, value = shape.qk_rope_head_dim, shape.qk_nope_head_dim, shape.v_head_dim
        query_in = hidden * shape.q_lora_rank if shape.q_lora_rank else 0
        query = query_in + (shape.q_lora_rank or hidden) * heads * (nope + rope)
        latent = hidden * (shape.kv_lora_rank + rope) + shape.kv_lora_rank * heads * (nope + value)
        return query + latent + heads * value * hidden, 0
    into = shape.head_dim * (heads + 2 * shape.kv_heads)
    bias = shape.layers * into if shape.qkv_bias else 0
    return hidden * into + heads * shape.head_dim * hidden, bias


def effective_quantization(shape: ModelShape, quantization: str) -> str:
    """The format that the weights have on the GPU: `none` leaves published weights as they are."""
    return shape.native_quantization if quantization == "none" and shape.native_quantization else quantization


def linear_gib(shape: ModelShape, quantization: str) -> float:
    """Size of all weights but the vocabulary tables, GiB."""
    return weights_gib(shape, quantization) - table_gib(shape) * parameters(shape).tables


def table_gib(shape: ModelShape) -> float:
    """Size of one vocabulary table, GiB."""
    return shape.vocab * shape.hidden * 2 / GIB


def weights_gib(shape: ModelShape, quantization: str) -> float:
    """Size of the whole model on the GPUs, GiB. `quantization` is a key of `QUANTIZATIONS`."""
    used = effective_quantization(shape, quantization)
    facts = QUANTIZATIONS[used]
    if used == "none" and shape.bf16_gib:
        return shape.bf16_gib + shape.extra_gib
    if used == shape.native_quantization and shape.native_gib:
        return shape.native_gib * facts.overhead + shape.extra_gib
    count = parameters(shape)
    shrunk = count.experts if facts.experts_only else count.linear
    size = shrunk * facts.linear_bits / 8 + (count.total - shrunk) * 2
    return size * facts.overhead / GIB + shape.extra_gib


def weights_per_gpu_gib(
    shape: ModelShape, quantization: str, tensor_parallel: int, pipeline_parallel: int = 1
) -> float:
    """Weights on the fullest GPU, GiB: tensor parallelism divides all, a pipeline stage has one table at most."""
    if pipeline_parallel == 1:
        return weights_gib(shape, quantization) / tensor_parallel
    layers = -(-shape.layers // pipeline_parallel) / shape.layers
    return (linear_gib(shape, quantization) * layers + table_gib(shape)) / tensor_parallel


def lora_gib(shape: ModelShape, adapters: int, rank: int, tensor_parallel: int) -> float:
    """What vLLM sets aside for `adapters` LoRA adapters of `rank` on one GPU, GiB, in bfloat16.

    Of each pair of matrices, the one on the side of the hidden state is not divided by tensor parallelism.
    """
    attention = shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    blocks = max(1, shape.experts)
    whole = shape.hidden * (4 + 3 * blocks)
    divided = attention + 3 * blocks * shape.intermediate
    return adapters * rank * shape.layers * (whole + divided / tensor_parallel) * 2 / GIB


def active_gib(shape: ModelShape, quantization: str) -> float:
    """What one decoding step reads for one sequence: all weights of a dense model, of a mixture its active experts."""
    count = parameters(shape)
    everything = weights_gib(shape, quantization) - shape.extra_gib - table_gib(shape) * (count.tables - 1)
    return everything if not shape.experts else everything * count.active / (count.linear + count.embedding)
