"""Estimated speed against public and own measurements. Estimates rank placements: a quarter off is good enough."""

import pytest

from eks_llm.catalog.instances import GPUS
from eks_llm.catalog.models import MODELS
from eks_llm.sizing.memory import Engine, fit
from eks_llm.sizing.performance import latency, prefill_seconds, step_seconds

CLOSE = 0.25


def test_hundred_streams_of_llama_8b_on_one_h200():
    # Measured: dummy weights, vLLM 0.26.0, chunked prefill of 2,048: TTFT p99 284 ms, TPOT p99 24.0 ms, 4,473 tok/s.
    shape = MODELS["llama-3-8b-instruct"]
    memory = fit("m", shape, GPUS["h200"], Engine("0.26.0", 8192))
    seen = latency(shape, memory, 100, prompt=0.9 * 856 + 0.1 * 4000, longest_prompt=4000, output=256)
    assert seen.ttft_p99 == pytest.approx(0.284, rel=CLOSE)
    assert seen.tpot_p99 == pytest.approx(0.0240, rel=CLOSE)
    assert seen.tokens_per_second == pytest.approx(4473, rel=CLOSE)


def test_prefill_of_llama_8b_on_a100_80():
    # 2,065 tokens in about 140 ms, vLLM 0.31.
    shape = MODELS["llama-3.1-8b-instruct"]
    memory = fit("m", shape, GPUS["a100-80gb"], Engine("0.31.0", 8192))
    assert prefill_seconds(shape, memory, 2065) == pytest.approx(0.140, rel=CLOSE)


def test_concurrency_eight_on_a100_40():
    # 1,024 tokens in, 128 out: 75 tok/s alone, 6.6 times that with eight streams, vLLM 0.23.
    shape = MODELS["llama-3.1-8b-instruct"]
    memory = fit("m", shape, GPUS["a100-40gb"], Engine("0.23.0", 8192))
    seen = latency(shape, memory, 8, prompt=1024, longest_prompt=1024, output=128)
    assert seen.tokens_per_second == pytest.approx(6.6 * 75, rel=CLOSE)


def test_more_streams_are_slower_each_and_faster_together():
    shape = MODELS["qwen3-30b-a3b"]
    memory = fit("m", shape, GPUS["h100-80gb"], Engine("0.27.1", 8192))
    rows = [latency(shape, memory, streams, prompt=800, longest_prompt=1200, output=256) for streams in (1, 8, 64)]
    assert [row.tpot_p99 for row in rows] == sorted(row.tpot_p99 for row in rows)
    assert [row.ttft_p99 for row in rows] == sorted(row.ttft_p99 for row in rows)
    assert [row.tokens_per_second for row in rows] == sorted(row.tokens_per_second for row in rows)


def test_a_batch_wakes_more_experts():
    # One token reads 8 of 128 experts; 64 tokens read nearly all, so a step takes several times as long.
    shape = MODELS["qwen3-30b-a3b"]
    memory = fit("m", shape, GPUS["h100-80gb"], Engine("0.27.1", 8192))
    assert step_seconds(shape, memory, 64, 100) > 5 * step_seconds(shape, memory, 1, 100)
