"""What the records of a real GPU say: the page is made of them, and estimates of speed agree with them."""

import pytest

from benchmarks.gpu import report
from eks_llm.catalog.instances import GPUS
from eks_llm.catalog.models import MODELS
from eks_llm.sizing import performance
from eks_llm.sizing.memory import Engine, fit
from eks_llm.sizing.performance import Latency, latency

REFERENCE = {"prompt": 0.9 * 856 + 0.1 * 4000, "longest_prompt": 4000, "output": 256}
"""Means of the load of 512 to 1,200 tokens in, one prompt in ten of 4,000, 128 to 384 out."""


def test_the_page_and_its_picture_are_what_the_records_say() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.document()
    assert report.PICTURE.read_text(encoding="utf-8") == report.picture()


ALONE = pytest.mark.parametrize(
    ("quantization", "record"), [("none", "batched-tokens.2048"), ("fp8", "quantization.fp8")]
)
"""Records of an engine that had a GPU to itself."""


@ALONE
def test_estimated_speed_is_within_15_percent_of_the_engine_alone_on_its_gpu(
    quantization: str, record: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Latency below is an estimate of the 99th percentile: it may be above what was measured, hardly below."""
    monkeypatch.setattr(performance, "SPEEDS", [])  # as for what nobody has measured
    (measured,) = report.record(record)["rows"]
    estimate = _estimate(quantization)
    assert estimate.tokens_per_second == pytest.approx(measured["tokens_per_second"], rel=0.15)
    assert estimate.tpot_p99 * 1e3 > measured["tpot_p99_ms"] * 0.9


@ALONE
def test_what_was_measured_corrects_the_estimate(quantization: str, record: str) -> None:
    (row,) = report.record(record)["rows"]
    assert _estimate(quantization).tokens_per_second == pytest.approx(row["tokens_per_second"], rel=0.001)


def test_another_gpu_is_not_corrected_by_it() -> None:
    name = "llama-3-8b-instruct"
    engine = Engine(vllm="0.26.0", max_model_len=8192, max_num_seqs=256, max_num_batched_tokens=2048)
    a100, h200 = (fit(name, MODELS[name], GPUS[gpu], engine) for gpu in ("a100-80gb", "h200"))
    assert performance.method(MODELS[name], a100) == "estimate by bandwidth and arithmetic rate"
    assert performance.method(MODELS[name], h200).endswith("corrected by a measurement of 2026-11-30")


def _estimate(quantization: str) -> Latency:
    name = "llama-3-8b-instruct"
    engine = Engine(vllm="0.26.0", max_model_len=8192, max_num_seqs=256, max_num_batched_tokens=2048)
    return latency(
        MODELS[name],
        fit(name, MODELS[name], GPUS["h200"], engine, quantization=quantization),
        100,
        **REFERENCE,
    )
