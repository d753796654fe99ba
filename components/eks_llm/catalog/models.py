"""Shapes of well-known models: `MODELS`. A shape is what a Hugging Face `config.json` says."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from ..core.faults import Fault
from ._load import Fact, load

Count = Annotated[int, Field(ge=1, le=10**7)]
MaybeCount = Annotated[int, Field(ge=0, le=10**7)]
Gib = Annotated[float, Field(gt=0, le=10**5)]


class ModelShape(Fact):
    """The numbers from which memory and parallelism follow."""

    layers: Count
    hidden: Count
    heads: Count
    """Attention (query) heads."""
    kv_heads: Count
    """Key/value heads; fewer than `heads` with grouped-query attention."""
    head_dim: Count
    intermediate: Count
    """Width of the feed-forward block; of one expert in a mixture of experts."""
    vocab: Count
    max_position: Count
    """Longest context that the model was trained for, tokens."""
    tied_embeddings: bool = False
    qkv_bias: bool = False
    experts: MaybeCount = 0
    """Experts per layer that all stay in memory; 0: a dense model."""
    active_experts: MaybeCount = 0
    shared_intermediate: MaybeCount = 0
    """Width of the feed-forward block that every token takes beside its experts; 0: none."""
    dense_layers: MaybeCount = 0
    """First layers of a mixture of experts that have one dense feed-forward block instead."""
    dense_intermediate: MaybeCount = 0
    """Width of that dense block."""
    kv_lora_rank: MaybeCount = 0
    """Multi-head latent attention (MLA): width of the cached latent; 0: ordinary attention."""
    q_lora_rank: MaybeCount = 0
    """MLA: width of the compressed query; 0: the query is not compressed."""
    qk_rope_head_dim: MaybeCount = 0
    """MLA: rotary part of a key, cached once per token."""
    qk_nope_head_dim: MaybeCount = 0
    v_head_dim: MaybeCount = 0
    sliding_window: MaybeCount = 0
    """Tokens that a layer with windowed attention keeps; 0: no such layers."""
    window_layers: MaybeCount = 0
    """Layers with windowed attention; the rest cache the whole context."""
    extra_gib: float = Field(default=0, ge=0, le=10**5)
    """Weights beside the language model that stay in bfloat16 on every GPU's share: a vision tower, GiB in total."""
    native_quantization: str = ""
    """Key into `QUANTIZATIONS` of the published weights, where they are not bfloat16."""
    native_gib: Gib | None = None
    """Size of the published weights, where `native_quantization` is set, GiB."""
    bf16_gib: Gib | None = None
    """Weights in bfloat16, GiB, where measured or stated by the source; otherwise computed."""
    huggingface: str = ""
    """Repository on the Hugging Face hub, for people; nothing downloads it."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.kv_heads:
            raise Fault("kv_heads", "{kv} does not divide the {all} heads", kv=self.kv_heads, all=self.heads)
        for name, part, whole, most in (
            ("window_layers", self.window_layers, "layers", self.layers),
            ("dense_layers", self.dense_layers, "layers", self.layers),
            ("active_experts", self.active_experts, "experts", self.experts),
        ):
            if part > most:
                raise Fault(name, "{part} is more than the {most} {whole}", part=part, most=most, whole=whole)
        if self.experts and not self.active_experts:
            raise Fault("active_experts", "0 of {count} experts; say how many one token takes", count=self.experts)
        return self


class _File(Fact):
    sources: list[str]
    date: str
    models: dict[str, ModelShape]


_file = load("models.yaml", _File)

MODELS: dict[str, ModelShape] = _file.models
"""Known models by the name that a stack file uses."""
