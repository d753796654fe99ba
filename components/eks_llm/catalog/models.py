"""Shapes of well-known models: `MODELS`. A shape is what a Hugging Face `config.json` says."""

from ._load import Fact, load


class ModelShape(Fact):
    """The numbers from which memory and parallelism follow."""

    layers: int
    hidden: int
    heads: int
    """Attention (query) heads."""
    kv_heads: int
    """Key/value heads; fewer than `heads` with grouped-query attention."""
    head_dim: int
    intermediate: int
    """Width of the feed-forward block; of one expert in a mixture of experts."""
    vocab: int
    max_position: int
    """Longest context that the model was trained for, tokens."""
    tied_embeddings: bool = False
    qkv_bias: bool = False
    experts: int = 0
    """Experts per layer that all stay in memory; 0: a dense model."""
    active_experts: int = 0
    shared_intermediate: int = 0
    """Width of the feed-forward block that every token takes beside its experts; 0: none."""
    dense_layers: int = 0
    """First layers of a mixture of experts that have one dense feed-forward block instead."""
    dense_intermediate: int = 0
    """Width of that dense block."""
    kv_lora_rank: int = 0
    """Multi-head latent attention (MLA): width of the cached latent; 0: ordinary attention."""
    q_lora_rank: int = 0
    """MLA: width of the compressed query; 0: the query is not compressed."""
    qk_rope_head_dim: int = 0
    """MLA: rotary part of a key, cached once per token."""
    qk_nope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int = 0
    """Tokens that a layer with windowed attention keeps; 0: no such layers."""
    window_layers: int = 0
    """Layers with windowed attention; the rest cache the whole context."""
    extra_gib: float = 0
    """Weights beside the language model that stay in bfloat16 on every GPU's share: a vision tower, GiB in total."""
    native_quantization: str = ""
    """Key into `QUANTIZATIONS` of the published weights, where they are not bfloat16."""
    native_gib: float | None = None
    """Size of the published weights, where `native_quantization` is set, GiB."""
    bf16_gib: float | None = None
    """Weights in bfloat16, GiB, where measured or stated by the source; otherwise computed."""
    huggingface: str = ""
    """Repository on the Hugging Face hub, for people; nothing downloads it."""


class _File(Fact):
    sources: list[str]
    date: str
    models: dict[str, ModelShape]


_file = load("models.yaml", _File)

MODELS: dict[str, ModelShape] = _file.models
"""Known models by the name that a stack file uses."""
