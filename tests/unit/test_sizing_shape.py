"""Reading config.json: public models must give the catalogue's shapes; bad files must say what is wrong."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from eks_llm.catalog.models import MODELS, ModelShape
from eks_llm.sizing.shape import from_config
from eks_llm.sizing.weights import parameters, weights_gib

# What the files on the Hugging Face hub say, without keys that do not matter here.
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
    "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.3-70b-instruct": LLAMA,
    "qwen2.5-7b-instruct": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
        "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
        "sliding_window": 131072, "use_sliding_window": False, "tie_word_embeddings": False,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 4, "head_dim": 128,
        "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960,
        "attention_bias": False, "sliding_window": None, "tie_word_embeddings": False,
    },
    "mixtral-8x7b-instruct": {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
        "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": None,
    },
    "phi-4": {
        "model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17920, "num_attention_heads": 40,
        "num_hidden_layers": 40, "num_key_value_heads": 10, "vocab_size": 100352, "max_position_embeddings": 16384,
        "sliding_window": None, "attention_bias": False,
    },
    "gemma-2-27b-it": {
        "model_type": "gemma2", "hidden_size": 4608, "intermediate_size": 36864, "num_attention_heads": 32,
        "num_hidden_layers": 46, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 256000,
        "max_position_embeddings": 8192, "sliding_window": 4096,
    },
    "gemma-3-27b-it": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text", "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
            "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "sliding_window": 1024,
        },
        "vision_config": {
            "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
            "num_attention_heads": 16, "num_hidden_layers": 27,
        },
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
        "num_hidden_layers": 24, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32,
        "num_experts_per_tok": 4, "vocab_size": 201088, "max_position_embeddings": 131072, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 12, "attention_bias": True,
        "quantization_config": {"quant_method": "mxfp4"}, "tie_word_embeddings": False,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512,
        "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280,
        "max_position_embeddings": 163840, "quantization_config": {"quant_method": "fp8"}, "attention_bias": False,
    },
    "qwen2.5-vl-72b-instruct": {
        "model_type": "qwen2_5_vl", "hidden_size": 8192, "intermediate_size": 29568, "num_attention_heads": 64,
        "num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 128000,
        "use_sliding_window": False, "sliding_window": 32768, "tie_word_embeddings": False,
        "vision_config": {"model_type": "qwen2_5_vl", "depth": 32, "hidden_size": 1280, "intermediate_size": 3456,
                          "out_hidden_size": 8192},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_public_configs_give_the_catalogue_shape(name: str):
    measured = {"huggingface", "bf16_gib", "native_gib", "extra_gib"}
    read = from_config(json.dumps(CONFIGS[name]))
    assert read.model_dump(exclude=measured) == MODELS[name].model_dump(exclude=measured)


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_from_a_config_are_the_measured_ones(name: str):
    # FP8 DeepSeek: 671e9 bytes and bfloat16 tables. Within 2 % although nothing but the config is known.
    assert weights_gib(from_config(CONFIGS[name]), "none") == pytest.approx(weights_gib(MODELS[name], "none"), rel=0.02)


@pytest.mark.parametrize(("name", "measured"), [("gemma-3-27b-it", 1.14), ("qwen2.5-vl-72b-instruct", 2.3)])
def test_vision_towers_are_counted(name: str, measured: float):
    assert from_config(CONFIGS[name]).extra_gib == pytest.approx(measured, rel=0.35)


def test_defaults_of_heads():
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    shape = from_config(config)
    assert (shape.kv_heads, shape.head_dim) == (64, 128)


def test_tied_embeddings():
    assert from_config({**LLAMA, "tie_word_embeddings": True}).tied_embeddings


def test_all_layers_of_an_old_mistral_are_windowed():
    shape = from_config({**LLAMA, "model_type": "mistral", "sliding_window": 4096})
    assert (shape.sliding_window, shape.window_layers) == (4096, 80)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "holds a list, not an object"),
        ("{}", "config.json: model_type is missing (known: deepseek_v2"),
        ("[" * 100_000, "config.json: nested too deeply to be one"),
        (json.dumps({**LLAMA, "num_key_value_heads": 7}), "config.json: kvHeads: 7 does not divide the"),
        (json.dumps({**LLAMA, "num_key_value_heads": 0}), "config.json: kvHeads: Input should be greater than"),
        (json.dumps({"model_type": "mamba"}), "model_type 'mamba' is not one of deepseek_v2"),
        (json.dumps({"model_type": "llama"}), "num_hidden_layers is missing; hidden_size is missing"),
        (json.dumps({**LLAMA, "num_hidden_layers": -3}), "num_hidden_layers is -3, not a whole number from 1"),
        (json.dumps({**LLAMA, "vocab_size": "many"}), "vocab_size is 'many'"),
        (json.dumps({**LLAMA, "hidden_size": 10**12}), "hidden_size is 1000000000000"),
        (json.dumps({**LLAMA, "num_attention_heads": 0}), "num_attention_heads is 0"),
        (json.dumps({**LLAMA, "num_hidden_layers": True}), "num_hidden_layers is True"),
    ],
)
def test_bad_files_say_what_is_wrong_and_what_to_do(text: str, message: str):
    with pytest.raises(ValueError, match="give the shape by hand") as raised:
        from_config(text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "format_"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 4, "type": "int", "group_size": 128}, "input_activations": None}}}, "gptq"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}}}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 8, "type": "float"}, "input_activations": None}}}, "fp8-weight-only"),
    ],
)  # fmt: skip
def test_formats_of_published_weights(settings: dict, format_: str):
    assert from_config({**LLAMA, "quantization_config": settings}).native_quantization == format_


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"quant_method": "bitsandbytes"}, "bitsandbytes is not understood"), ({}, "no quant_method"),
     ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 3, "type": "int"}}}},
      "compressed-tensors with int3 weights is not understood")],
)  # fmt: skip
def test_unknown_formats_are_told(settings: dict, message: str):
    with pytest.raises(ValueError, match="quantization_config") as raised:
        from_config({**LLAMA, "quantization_config": settings})
    assert message in str(raised.value)


def test_a_sparse_gemma_takes_its_class_defaults():
    # gemma-3-4b-it says only this; transformers fills in 8 heads, 4 key/value heads of 256, and the vocabulary.
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "sliding_window": 1024}  # fmt: skip
    shape = from_config({"model_type": "gemma3", "text_config": text})
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.vocab) == (8, 4, 256, 262208)
    assert (shape.window_layers, shape.tied_embeddings) == (29, True)
    assert parameters(shape).total / 1e9 == pytest.approx(3.88, rel=0.01)  # the card: 4B with its 0.4B vision tower


def test_several_problems_are_told_at_once():
    with pytest.raises(ValueError, match="vocab_size is -1") as raised:
        from_config({**LLAMA, "vocab_size": -1, "hidden_size": None})
    assert "hidden_size is missing" in str(raised.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("layers", -80, "layers"),
        ("hidden", 0, "hidden"),
        ("hidden", -8192, "hidden"),
        ("heads", 0, "heads"),
        ("kvHeads", 0, "kvHeads"),
        ("vocab", -1, "vocab"),
        ("maxPosition", -5, "maxPosition"),
        ("experts", -4, "experts"),
        ("nativeGib", 0, "nativeGib"),
        ("extraGib", -1, "extraGib"),
        ("kvHeads", 7, "kvHeads: 7 does not divide the 64 heads"),
        ("windowLayers", 81, "windowLayers: 81 is more than the 80 layers"),
        ("activeExperts", 2, "activeExperts: 2 is more than the 0 experts"),
        ("experts", 8, "activeExperts: 0 of 8 experts"),
    ],
)
def test_a_shape_given_by_hand_is_checked(field: str, value: int, message: str):
    by_hand = MODELS["llama-3-70b-instruct"].model_dump(by_alias=True)
    with pytest.raises(ValidationError) as raised:
        ModelShape.model_validate({**by_hand, field: value})
    (error,) = raised.value.errors()
    assert message in f"{'.'.join(map(str, error['loc']))} {error['msg']}"
