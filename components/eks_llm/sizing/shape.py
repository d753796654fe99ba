"""A Hugging Face `config.json` as a `ModelShape`."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from ..catalog.models import ModelShape
from ..catalog.quantization import QUANTIZATIONS
from .weights import GIB

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "mixtral": {},
    "qwen2": {},
    "qwen2_moe": {},
    "qwen3": {},
    "qwen3_moe": {},
    "phi3": {},
    "gemma2": {"tie_word_embeddings": True, "head_dim": 256},
    "gemma3_text": {
        "tie_word_embeddings": True, "vocab_size": 262208, "max_position_embeddings": 131072,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window_pattern": 6,
    },
    "gpt_oss": {"attention_bias": True},
    "deepseek_v2": {},
    "deepseek_v3": {},
    "mistral3": {},
    "gemma3": {},
    "qwen2_vl": {},
    "qwen2_5_vl": {},
}  # fmt: skip
"""Model types that are understood, with the defaults of their transformers classes that a config.json may leave out."""

TOWER_FACTOR = 1.5
"""Loaded vision towers are 1.1 to 2 times what their layers add up to (Mistral-Small-3.2, Gemma-3, Qwen2.5-VL)."""

BY_HAND = (
    "give the shape by hand instead: modelShape: {layers, hidden, heads, kvHeads, headDim, intermediate, vocab, "
    "maxPosition, …}"
)


def from_config(text: str | Mapping[str, Any]) -> ModelShape:
    """The shape that a `config.json` (its text, or what it holds) describes.

    Raises `ValueError`: not JSON, an unknown model type, or missing and absurd fields, all of them at once.
    """
    config = _parsed(text)
    kind = str(config.get("model_type", ""))
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        said = f"model_type {kind!r} is not one of {known}" if kind else f"model_type is missing (known: {known})"
        raise ValueError(f"config.json: {said}; {BY_HAND}")
    inner = config.get("text_config")
    language = {**config, **inner} if isinstance(inner, Mapping) else config
    inner_kind = str(language.get("model_type", kind))
    fields = {**FAMILIES.get(inner_kind, {}), **{key: value for key, value in language.items() if value is not None}}
    numbers = _Numbers(fields)
    shape = _shape(inner_kind, numbers, fields, config)
    if numbers.problems:
        raise ValueError(f"config.json: {'; '.join(numbers.problems)}; {BY_HAND}")
    try:
        return ModelShape(**shape)
    except ValidationError as error:
        told = [
            ": ".join([*(to_camel(str(part)) for part in item["loc"]), item["msg"].removeprefix("Value error, ")])
            for item in error.errors(include_url=False)
        ]
        raise ValueError(f"config.json: {'; '.join(told)}; {BY_HAND}") from None


def _parsed(text: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(text, Mapping):
        return text
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"config.json: not JSON: {error.msg} in line {error.lineno}; {BY_HAND}") from None
    except RecursionError:
        raise ValueError(f"config.json: nested too deeply to be one; {BY_HAND}") from None
    if not isinstance(config, dict):
        raise ValueError(f"config.json: holds a {type(config).__name__}, not an object; {BY_HAND}")
    return config


class _Numbers:
    """Reads whole numbers and collects what is wrong with them."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self.problems: list[str] = []

    def __call__(self, *names: str, default: int | None = None) -> int:
        """The first of `names` that is there; without a default it must be there and positive."""
        for name in names:
            if name in self._fields:
                value = self._fields[name]
                least = 1 if default is None else 0
                if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10**7:
                    self.problems.append(f"{name} is {value!r}, not a whole number from {least} to 10,000,000")
                    return least
                return value
        if default is None:
            self.problems.append(f"{names[0]} is missing")
            return 1
        return default


def _shape(kind: str, number: _Numbers, fields: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    layers, hidden, heads = number("num_hidden_layers"), number("hidden_size"), number("num_attention_heads")
    experts = number("num_experts", "num_local_experts", "n_routed_experts", default=0)
    dense_width = number("intermediate_size")
    expert_width = number("moe_intermediate_size", default=dense_width) if experts else dense_width
    dense_layers = min(number("first_k_dense_replace", default=0), layers) if experts else 0
    window, window_layers = _windows(kind, number, fields, layers)
    shape: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": number("num_key_value_heads", default=heads),
        "head_dim": number("head_dim", default=hidden // heads),
        "intermediate": expert_width,
        "vocab": number("vocab_size"),
        "max_position": number("max_position_embeddings"),
        "tied_embeddings": bool(config.get("tie_word_embeddings", fields.get("tie_word_embeddings", False))),
        "qkv_bias": bool(fields.get("attention_bias", kind.startswith("qwen2"))),
        "sliding_window": window,
        "window_layers": window_layers,
        "extra_gib": _tower_gib(config.get("vision_config")),
        "native_quantization": _quantization(number, config.get("quantization_config")),
    }
    if experts:
        shared = number("shared_expert_intermediate_size", default=0)
        shape |= {
            "experts": experts,
            "active_experts": number("num_experts_per_tok", "experts_per_token"),
            "shared_intermediate": shared or number("n_shared_experts", default=0) * expert_width,
            "dense_layers": dense_layers,
            "dense_intermediate": dense_width if dense_layers else 0,
        }
    if "kv_lora_rank" in fields:
        shape |= {
            "kv_lora_rank": number("kv_lora_rank"),
            "q_lora_rank": number("q_lora_rank", default=0),
            "qk_rope_head_dim": number("qk_rope_head_dim"),
            "qk_nope_head_dim": number("qk_nope_head_dim"),
            "v_head_dim": number("v_head_dim"),
            "head_dim": number("v_head_dim"),
        }
    return shape


def _windows(kind: str, number: _Numbers, fields: Mapping[str, Any], layers: int) -> tuple[int, int]:
    """The window and how many layers have it: as `layer_types` says, else by the rule of the family."""
    window = number("sliding_window", default=0)
    if not window or fields.get("use_sliding_window") is False:
        return 0, 0
    types = fields.get("layer_types")
    if isinstance(types, list):
        windowed = sum(name == "sliding_attention" for name in types)
    elif kind == "gemma2":
        windowed = layers - layers // 2
    elif kind == "gemma3_text":
        windowed = layers - layers // number("sliding_window_pattern", default=6)
    else:
        windowed = layers
    return (window, windowed) if windowed else (0, 0)


def _quantization(number: _Numbers, settings: Any) -> str:
    """The format of the published weights, a key of `QUANTIZATIONS`; empty: bfloat16."""
    if not isinstance(settings, Mapping):
        return ""
    method = str(settings.get("quant_method", ""))
    if method == "compressed-tensors":
        found = _compressed_tensors(settings)
    elif method == "modelopt":
        found = str(settings.get("quant_algo", "")).lower()
    else:
        found = "int8" if method in ("awq", "gptq") and settings.get("bits") == 8 else method
    if found not in QUANTIZATIONS:
        number.problems.append(f"quantization_config: {found or method or 'no quant_method'} is not understood")
        return ""
    return found


def _compressed_tensors(settings: Mapping[str, Any]) -> str:
    """By the number and type of bits of the first group; activations in FP8 mean FP8 arithmetic."""
    groups = settings.get("config_groups")
    group = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = group.get("weights") or {}
    kind = f"{weights.get('type')}{weights.get('num_bits')}"
    if kind == "float8":
        return "fp8" if group.get("input_activations") else "fp8-weight-only"
    return {"int4": "gptq", "int8": "int8", "float4": "nvfp4"}.get(kind, f"compressed-tensors with {kind} weights")


def _tower_gib(tower: Any) -> float:
    """A vision tower from its layers, GiB in bfloat16."""
    if not isinstance(tower, Mapping):
        return 0.0
    layers = tower.get("num_hidden_layers") or tower.get("depth") or 0
    # Qwen2-VL states its width as embed_dim, and the language model's as hidden_size.
    hidden = tower.get("embed_dim") or tower.get("hidden_size") or 0
    width = tower.get("intermediate_size") or 4 * hidden
    return round(layers * (4 * hidden**2 + 3 * hidden * width) * 2 / GIB * TOWER_FACTOR, 2)
