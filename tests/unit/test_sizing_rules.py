"""Which parallelism and which formats run where."""

import pytest

from eks_llm.catalog.instances import GPUS, INSTANCES
from eks_llm.catalog.models import MODELS
from eks_llm.sizing.parallelism import legal_sizes, problem
from eks_llm.sizing.validity import problems

P4D = INSTANCES["p4d.24xlarge"]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("phi-4", [1, 2, 5]),  # 40 and 10 heads: 4 and 8 are refused by vLLM
        ("qwen2.5-7b-instruct", [1, 2, 4]),  # 28 heads
        ("llama-3.3-70b-instruct", [1, 2, 4, 8]),
        ("qwen3-30b-a3b", [1, 2, 4, 8]),  # 4 key/value heads, replicated at 8
        ("deepseek-v3", [1, 2, 4, 8]),
    ],
)
def test_legal_tensor_parallel_sizes(name: str, sizes: list[int]):
    assert legal_sizes(MODELS[name], 8) == sizes


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("llama-3.3-70b-instruct", 3, "3 does not divide 64 attention heads (use 1, 2, 4 or 8)"),
        ("phi-4", 4, "4 and 10 key/value heads: neither divides the other (use 1, 2 or 5)"),
        ("llama-3.3-70b-instruct", 16, "16 and 8"),
    ],
)
def test_illegal_tensor_parallel_sizes(name: str, size: int, message: str):
    found = problem(MODELS[name], size, P4D)
    if size == 16:  # a legal size of the model, but larger than the node
        assert found == "16 is more than the 8 GPU(s) of a node (use 1, 2, 4 or 8)"
    else:
        assert found == message


def test_pipeline_stages_take_gpus():
    assert problem(MODELS["llama-3.3-70b-instruct"], 4, P4D, pipeline_parallel=2) is None
    assert "8 x 2 stages" in str(problem(MODELS["llama-3.3-70b-instruct"], 8, P4D, pipeline_parallel=2))


def found(model: str, gpu: str, quantization: str, kv: str = "auto") -> list[tuple[bool, str]]:
    items = problems(MODELS[model], GPUS[gpu], quantization, kv, "services.s")
    return [(item.error, str(item)) for item in items]


def test_fp8_arithmetic_is_refused_on_a100():
    ((error, message),) = found("llama-3.3-70b-instruct", "a100-40gb", "fp8")
    assert error
    assert message == (
        "services.s.quantization: FP8 W8A8 needs compute capability 8.9; NVIDIA A100-SXM4-40GB has 8.0; "
        "use fp8-weight-only or int8 or awq"
    )


def test_fp8_cache_is_refused_on_a100():
    ((error, message),) = found("llama-3.3-70b-instruct", "a100-40gb", "none", "fp8")
    assert error
    assert message.startswith("services.s.engine.kvCacheDtype: a fp8 KV cache needs compute capability 8.9")
    assert "use auto" in message


@pytest.mark.parametrize("quantization", ["none", "awq", "gptq", "int8", "fp8-weight-only"])
def test_a100_runs_these(quantization: str):
    assert found("llama-3.3-70b-instruct", "a100-40gb", quantization) == []


def test_h100_runs_fp8():
    assert found("llama-3.3-70b-instruct", "h100-80gb", "fp8", "fp8") == []


@pytest.mark.parametrize("model", ["gpt-oss-20b", "deepseek-v3"])
def test_published_formats_are_weight_only_on_a100(model: str):
    ((error, message),) = found(model, "a100-40gb", "none")
    assert not error
    assert "weight-only" in message


def test_a_published_format_cannot_be_changed():
    ((error, message),) = found("gpt-oss-20b", "a100-40gb", "awq")
    assert error
    assert "published in mxfp4" in message


@pytest.mark.parametrize(("quantization", "kv"), [("int3", "auto"), ("none", "int2")])
def test_unknown_formats_list_the_known(quantization: str, kv: str):
    ((error, message),) = found("qwen3-8b", "a100-40gb", quantization, kv)
    assert error
    assert "is not one of" in message
