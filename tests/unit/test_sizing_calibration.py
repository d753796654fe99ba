"""Predicted KV caches against logs of real engines (tests/data/calibration.yaml)."""

import pytest

from eks_llm.catalog.models import MODELS
from eks_llm.sizing.kv_cache import KvCost, kv_cost
from eks_llm.sizing.memory import Verdict
from eks_llm.sizing.weights import GIB, weights_per_gpu_gib
from tests.calibration import CASES, DATA, DOC, Case, document

FROM_KV = DATA["fromKv"]


@pytest.mark.parametrize("item", CASES, ids=lambda item: str(item.log["id"]))
def test_predicted_kv_cache_is_within_five_percent(item: Case):
    if "exception" in item.log:
        # An exception stays one only as long as it is needed, and never errs by more than the stated uncertainty.
        assert abs(item.error) > 0.05
        assert item.fit.kv_cache - item.log["kvGib"] < 1.0
    else:
        assert abs(item.error) <= 0.05


@pytest.mark.parametrize("item", CASES, ids=lambda item: str(item.log["id"]))
def test_verdict_is_what_the_engine_did(item: Case):
    assert (item.fit.verdict is not Verdict.DOES_NOT_FIT) == item.log["fits"]


@pytest.mark.parametrize("log", FROM_KV, ids=lambda log: str(log["id"]))
def test_tokens_and_verdict_follow_from_a_logged_cache(log: dict):
    cost = kv_cost(MODELS[log["model"]], log["tensorParallel"])
    if "kvTokens" in log:
        error = cost.pool_tokens(log["kvGib"] * GIB, log["maxModelLen"]) / log["kvTokens"] - 1
        assert abs(error) <= (0.17 if "exception" in log else 0.015)
    assert (cost.request_bytes(log["maxModelLen"]) <= log["kvGib"] * GIB) == log["fits"]


def test_every_public_case_is_used_or_its_absence_explained():
    numbers = {int("".join(filter(str.isdigit, str(log["id"]).split()[0]))) for log in DATA["cases"] + FROM_KV}
    assert numbers | set(DATA["leftOut"]) == set(range(1, 27))


@pytest.mark.parametrize(
    ("tensor_parallel", "pipeline_parallel", "logged"),
    [(1, 1, 14.99), (2, 1, 7.51), (4, 1, 3.77), (1, 2, 7.51), (1, 4, 4.26)],
)
def test_weights_per_gpu_of_case_13(tensor_parallel: int, pipeline_parallel: int, logged: float):
    shape = MODELS["llama-3.1-8b-instruct"]
    assert weights_per_gpu_gib(shape, "none", tensor_parallel, pipeline_parallel) == pytest.approx(logged, rel=0.01)


@pytest.mark.parametrize(
    ("available_gib", "needed_gib", "asked", "estimated"),
    [
        (22.5, 23.25, 196608, 190272),  # case 25: "estimated maximum model length is 190272"
        (3.18, 24.0, 262144, 34736),  # case 26
    ],
)
def test_longest_request_as_the_engine_estimates_it(
    available_gib: float, needed_gib: float, asked: int, estimated: int
):
    cost = KvCost(layer_bytes=round(needed_gib * GIB / asked), full_layers=1, window_layers=0, window=0)
    assert cost.longest(available_gib * GIB, asked) == pytest.approx(estimated, rel=0.001)


def test_windowed_layers_of_gpt_oss_all_grow_in_0_10():
    # Case 9: that engine kept all 36 layers whole. 2,640,144 tokens in 45.32 GiB per GPU at TP 4.
    shape = MODELS["gpt-oss-120b"].model_copy(update={"window_layers": 0})
    assert kv_cost(shape, 4).pool_tokens(45.32 * GIB, 16384) == pytest.approx(2_640_144, rel=0.001)


def test_documented_error_table_is_current():
    assert DOC.read_text(encoding="utf-8") == document(), "run: python -m tests.calibration"
