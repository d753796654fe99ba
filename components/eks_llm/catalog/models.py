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
