"""Weights, KV cache and verdicts against published figures."""

import pytest

from eks_llm.catalog.engines import reserve
from eks_llm.catalog.instances import GPUS
from eks_llm.catalog.models import MODELS, ModelShape
from eks_llm.sizing.kv_cache import kv_cost
from eks_llm.sizing.memory import Engine, Fit, Verdict, fit
from eks_llm.sizing.weights import GIB, lora_gib, parameters, weights_gib

A100 = GPUS["a100-40gb"]

# Parameters (billions), and KV bytes per token of the whole model: what the models' cards and configs give.
PUBLISHED = {
    "llama-3-8b-instruct": (8.03, 131072),
    "llama-3.3-70b-instruct": (70.55, 327680),
    "qwen2.5-7b-instruct": (7.62, 57344),
    "qwen2.5-14b-instruct": (14.77, 196608),
    "qwen2.5-32b-instruct": (32.76, 262144),
    "qwen2.5-72b-instruct": (72.71, 327680),
    "qwen3-8b": (8.19, 147456),
    "qwen3-14b": (14.77, 163840),
    "qwen3-32b": (32.76, 262144),
    "qwen3-30b-a3b": (30.53, 98304),
    "qwen3-235b-a22b": (235.1, 192512),
    "mistral-7b-instruct-v0.3": (7.25, 131072),
    "mixtral-8x7b-instruct": (46.70, 131072),
    "mistral-small-24b-instruct": (23.57, 163840),
    "gemma-2-27b-it": (27.23, 188416),
    "gemma-3-27b-it": (27.01, 81920),
    "phi-4": (14.66, 204800),
    "gpt-oss-20b": (20.9, 24576),
    "gpt-oss-120b": (116.8, 36864),
    "deepseek-v3": (671.0, 70272),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_kv_bytes(name: str):
    billions, kv_bytes = PUBLISHED[name]
    assert parameters(MODELS[name]).total / 1e9 == pytest.approx(billions, rel=0.002)
    assert kv_cost(MODELS[name], 1).token_bytes == kv_bytes


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b-instruct", 12.9), ("qwen3-30b-a3b", 3.3), ("deepseek-v3", 37), ("gpt-oss-120b", 5.1)],
)
def test_active_parameters(name: str, billions: float):
    shape = MODELS[name]
    # Cards count the input table too; a token only looks one row of it up.
    assert parameters(shape).active / 1e9 == pytest.approx(billions, rel=0.1)


@pytest.mark.parametrize(
    ("name", "quantization", "measured"),
    [
        ("qwen2.5-7b-instruct", "awq", 5.29),
        ("llama-3.3-70b-instruct", "fp8", 67.72),
        ("gpt-oss-20b", "none", 13.6),
        ("gpt-oss-120b", "none", 64.38),
        ("mistral-small-3.2-24b-instruct", "none", 44.76),
        ("gemma-3-27b-it", "none", 51.45),
        ("llama-3.3-70b-instruct", "awq", 37.0),
    ],
)
def test_quantised_and_multimodal_weights(name: str, quantization: str, measured: float):
    assert weights_gib(MODELS[name], quantization) == pytest.approx(measured, rel=0.025)


def test_latent_cache_is_on_every_gpu():
    assert kv_cost(MODELS["deepseek-v3"], 8).token_bytes == 70272


def test_kv_heads_are_replicated_beyond_their_number():
    assert kv_cost(MODELS["qwen3-30b-a3b"], 8).token_bytes == 98304 // 4


def test_windowed_layers_stop_growing():
    cost = kv_cost(MODELS["gemma-3-27b-it"], 1, max_num_batched_tokens=2048)
    growth = cost.request_bytes(65536) - cost.request_bytes(32768)
    assert growth == 32768 * 81920
    assert cost.window_layers == 60  # 52 in groups of 10, as the allocator makes them


def on_a100(name: str, tensor_parallel: int, quantization: str = "none", max_model_len: int = 4096) -> Fit:
    engine = Engine("0.27.1", max_model_len)
    return fit(name, MODELS[name], A100, engine, quantization=quantization, tensor_parallel=tensor_parallel)


# Pool tokens on A100-40 in thousands at 0.92, calculated by hand with a flat reserve of 1.5 GiB and logged non-torch.
PREVIEW = {
    ("llama-3.1-8b-instruct", "none"): {1: 160, 2: 413, 4: 947, 8: 2015},
    ("llama-3-70b-instruct", "none"): {1: 0, 2: 0, 4: 0, 8: 424},
    ("llama-3-70b-instruct", "awq"): {1: 0, 2: 90, 4: 304, 8: 731},
    ("qwen2.5-72b-instruct", "none"): {1: 0, 2: 0, 4: 0, 8: 411},
    ("qwen3-14b", "none"): {1: 46, 2: 248, 4: 675, 8: 1530},
    ("qwen3-32b", "none"): {1: 0, 2: 18, 4: 285, 8: 819},
    ("qwen3-30b-a3b", "none"): {1: 0, 2: 94, 4: 805, 8: 1115},
    ("mixtral-8x7b-instruct", "none"): {1: 0, 2: 0, 4: 357, 8: 1425},
    ("mistral-small-24b-instruct", "none"): {1: 0, 2: 141, 4: 568, 8: 1423},
    ("phi-4", "none"): {1: 38, 2: 200},
}


@pytest.mark.parametrize(
    ("name", "quantization", "size", "thousands"),
    [(name, form, size, k) for (name, form), row in PREVIEW.items() for size, k in row.items()],
)
def test_fit_preview_of_a100_40(name: str, quantization: str, size: int, thousands: int):
    shape = MODELS[name]
    kept = reserve("0.27.1").model_copy(update={"moe_gib": 0.0})  # the table does not take the reserve for experts
    memory = fit(name, shape, A100, Engine("0.27.1", 4096), quantization=quantization, tensor_parallel=size, kept=kept)
    if thousands:
        assert memory.pool_tokens / 1000 == pytest.approx(thousands, rel=0.05)
    else:
        assert memory.verdict is Verdict.DOES_NOT_FIT


def test_deepseek_does_not_fit_a_p4d():
    assert on_a100("deepseek-r1", 8).verdict is Verdict.DOES_NOT_FIT


def test_llama_70b_on_four_a100s_states_its_arithmetic():
    memory = on_a100("llama-3-70b-instruct", 4, max_model_len=8192)
    assert memory.budget == pytest.approx(36.3, abs=0.05)
    assert memory.weights == pytest.approx(32.9, abs=0.05)
    assert memory.kv_cache == pytest.approx(-0.2, abs=0.15)
    assert memory.summary.startswith("does not fit (short of ")
    assert memory.arithmetic()[1].split() == ["weights", "-32.9", "GiB", "131.4", "bfloat16", "on", "4"]


def test_a_margin_is_stated_and_a_thin_one_is_marginal():
    assert on_a100("llama-3.1-8b-instruct", 2).summary.startswith(
        "fits (margin 25.0 GiB"
    )  # 413k tokens less one request
    assert on_a100("qwen3-32b", 2, max_model_len=8192).verdict is Verdict.MARGINAL


def test_concurrency_and_longest_request():
    memory = on_a100("llama-3.1-8b-instruct", 1, max_model_len=8192)
    assert memory.concurrency() == pytest.approx(memory.kv_cache * GIB / (8192 * 131072))
    assert memory.concurrency(2048) == pytest.approx(4 * memory.concurrency(), rel=0.001)
    assert memory.kv_cache * GIB > 131072 * 131072
    assert memory.largest_max_model_len == 131072  # the model's own limit
    assert on_a100("qwen3-32b", 2).largest_max_model_len == on_a100("qwen3-32b", 2).pool_tokens


def test_eager_mode_keeps_no_graphs():
    shape = MODELS["qwen3-14b"]
    eager = fit("m", shape, A100, Engine("0.27.1", 4096, enforce_eager=True))
    assert eager.kv_cache - on_a100("qwen3-14b", 1).kv_cache == pytest.approx(1.0)


def test_lora_slots_take_memory():
    shape = MODELS["llama-3.1-8b-instruct"]
    # All seven linear layers at rank 16: 41.9 million parameters, as PEFT counts them for Llama-3.1-8B.
    assert lora_gib(shape, 1, 16, 1) * GIB / 2 == pytest.approx(41_943_040)
    many = fit("m", shape, A100, Engine("0.27.1", 4096, lora_adapters=8, max_lora_rank=64))
    assert many.kv_cache == pytest.approx(on_a100("llama-3.1-8b-instruct", 1).kv_cache - 8 * 4 * 41_943_040 * 2 / GIB)
    assert "8 LoRA of rank 64" in "\n".join(many.arithmetic())


def test_more_sequences_take_memory():
    shape = MODELS["llama-3.1-8b-instruct"]
    many = fit("m", shape, GPUS["h100-80gb"], Engine("0.19.0", 8192, max_num_seqs=1024, max_num_batched_tokens=8192))
    assert many.activation == pytest.approx(1.89, abs=0.02)  # logged


@pytest.mark.parametrize(
    ("version", "since"), [("0.10.1.1", "0.10"), ("0.16.0", "0.10"), ("0.17", "0.17"), ("v0.29.1rc", "0.21")]
)
def test_reserve_of_a_version(version: str, since: str):
    assert reserve(version).since == since


@pytest.mark.parametrize(("version", "message"), [("0.8.5", "known from 0.10 on"), ("latest", "not a vLLM version")])
def test_unknown_engine_versions(version: str, message: str):
    with pytest.raises(ValueError, match=message):
        reserve(version)


def test_models_that_are_the_same_share_a_shape():
    def plain(shape: ModelShape) -> dict:
        return shape.model_dump(exclude={"huggingface", "max_position"})

    assert plain(MODELS["deepseek-r1-distill-llama-70b"]) == plain(MODELS["llama-3.3-70b-instruct"])


@pytest.mark.parametrize(
    ("seqs", "batch", "note"),
    [
        (1, 2048, "work space for a batch of 2,048 tokens"),
        (256, 512, "logits and work space for 256 sequences"),
    ],
)
def test_activation_names_the_limit_that_binds(seqs: int, batch: int, note: str):
    engine = Engine("0.27.1", 8192, max_num_seqs=seqs, max_num_batched_tokens=batch)
    memory = fit("m", MODELS["llama-3-8b-instruct"], GPUS["a100-40gb"], engine)
    assert any(line.startswith("activation") and line.endswith(note) for line in memory.arithmetic())
