"""The metrics contract: vLLM's own names, types and labels, each series once for the whole pod, true when idle."""

import math

import pytest

from tests.serving.client import ask_all, tensors
from tests.serving.metrics import gauge, missing, samples, types, wait_for
from tests.serving.metrics import used as used_series
from tests.serving.server import Server

# Names and types as vLLM documents them (docs.vllm.ai, "Production metrics"); what scaling, alerts and dashboards read.
CONTRACT = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:cache_config_info": "gauge",
    "vllm:prefix_cache_queries": "counter",
    "vllm:prefix_cache_hits": "counter",
    "vllm:num_preemptions": "counter",
    "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:request_success": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:iteration_tokens_total": "histogram",
    "vllm:request_prompt_tokens": "histogram",
    "vllm:request_generation_tokens": "histogram",
}


@pytest.fixture(scope="module")
def used(server: Server) -> Server:
    """The server after some work of every front end."""
    seen = ask_all(server.grpc, *(tensors(PROMPT=f"fox {index}", MAX_TOKENS=20, STREAM=True) for index in range(16)))
    assert all(result.error is None for result in seen)
    return server


def test_names_and_types(used: Server) -> None:
    found = types(used.scrape())
    assert {name: found.get(name) for name in CONTRACT} == CONTRACT


def test_what_queries_read_is_still_there(used: Server) -> None:
    """The metric contract checks queries on a recorded scrape; this holds the server of today to it."""
    assert len(used_series("triton")) > 15
    assert not missing("triton", f"{used.scrape()}\n{used.scrape_triton()}")


def test_labels(used: Server) -> None:
    scrape = used.scrape()
    for name, labels in {
        "vllm:num_requests_running": {"model_name": "tiny", "engine": "0"},
        "vllm:generation_tokens_total": {"model_name": "tiny", "engine": "0"},
    }.items():
        assert [found for found, _ in samples(scrape, name)] == [labels]
    reasons = {labels["finished_reason"] for labels, _ in samples(scrape, "vllm:request_success_total")}
    assert {"stop", "length", "abort"} <= reasons
    waiting = [found for found, _ in samples(scrape, "vllm:num_requests_waiting_by_reason")]
    assert sorted(found["reason"] for found in waiting) == ["capacity", "deferred"]


def test_counters_add_up_over_the_front_ends(server: Server) -> None:
    def generated() -> float:
        return samples(server.scrape(), "vllm:generation_tokens_total")[0][1]

    before = generated()
    extra = {"ignore_eos": True}
    ask_all(
        server.grpc,
        *(tensors(PROMPT=f"box {i}", MAX_TOKENS=25, STREAM=True, SAMPLING_PARAMETERS=extra) for i in range(12)),
    )
    wait_for(lambda: generated() == before + 12 * 25)


def test_gauges_return_to_zero_when_idle(used: Server) -> None:
    """The statistics of a step go to one front end only, and the last ones come without any output."""
    for _ in range(5):
        ask_all(used.grpc, *(tensors(PROMPT=f"jugs {index}", MAX_TOKENS=30, STREAM=True) for index in range(6)))
        wait_for(
            lambda: all(
                gauge(used.scrape(), f"vllm:{name}") == 0
                for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
            )
        )


def test_prefix_cache_hits_are_counted_and_told_to_the_client(server: Server) -> None:
    prompt = "The quick brown fox jumps over the lazy dog. " * 12  # more than one block
    first, second = (ask_all(server.grpc, tensors(PROMPT=prompt, MAX_TOKENS=4))[0] for _ in range(2))
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage["cached_tokens"] > 0
    assert samples(server.scrape(), "vllm:prefix_cache_hits_total")[0][1] >= second.usage["cached_tokens"]


def test_buckets_are_vllms(used: Server) -> None:
    """vllm/v1/metrics/buckets.py: TTFT from 0.001 s to 2560 s."""
    edges = [float(labels["le"]) for labels, _ in samples(used.scrape(), "vllm:time_to_first_token_seconds_bucket")]
    assert edges[0] == 0.001
    assert edges[-2:] == [2560.0, math.inf]
