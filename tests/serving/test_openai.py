"""The second runtime: `vllm serve` from the same engine.json, with the flags that the component makes of it."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.serving.metrics import BUSY_MACHINE, gauge, missing, samples, types, wait_for
from tests.serving.openai_server import OpenAIServer, running
from tests.serving.reference import Reference
from tests.serving.server import engine_document
from tests.serving.test_metrics import CONTRACT


def test_answers_like_the_other_runtime(openai: OpenAIServer, reference: Reference) -> None:
    status, answer = openai.complete()
    assert status == 200
    assert answer["choices"][0]["text"] == reference.greedy("The quick brown fox", 8)[0]


def test_the_key_is_asked_for(openai: OpenAIServer) -> None:
    assert openai.complete(key="another")[0] == 401
    assert openai.get("/health")[0] == 200, "probes have no key"


def test_the_same_metric_names(openai: OpenAIServer) -> None:
    openai.complete()
    found = types(openai.get("/metrics")[1])
    assert {name: found.get(name) for name in CONTRACT} == CONTRACT
    assert not missing("openai", openai.get("/metrics")[1])


LONG: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True}


def taken(server: OpenAIServer) -> float:
    """Requests that the engine has taken."""
    scrape = server.get("/metrics")[1]
    ended = sum(value for _, value in samples(scrape, "vllm:request_success_total"))
    return ended + gauge(scrape, "vllm:num_requests_running") + gauge(scrape, "vllm:num_requests_waiting")


def end(server: OpenAIServer) -> None:
    """SIGTERM, after which it ends by itself."""
    began = time.monotonic()
    assert server.process
    server.process.terminate()
    server.process.wait(BUSY_MACHINE)
    print(f"ended {time.monotonic() - began:.1f} s after SIGTERM")


def drained_without_loss(server: OpenAIServer) -> None:
    """preStop refuses what is new and waits for what is in flight; SIGTERM then finds nothing to wait for."""
    before = taken(server)
    with ThreadPoolExecutor(34) as clients:
        streams = [clients.submit(server.stream, **LONG) for _ in range(32)]
        wait_for(lambda: taken(server) == before + 32)
        hook = clients.submit(server.pre_stop)
        wait_for(lambda: (server.run_directory / "draining").exists())
        assert not all(stream.done() for stream in streams), "nothing was in flight"
        status, refusal = server.complete()
        assert hook.result() == 0
        unfinished = [stream for stream in streams if not stream.done()]
    assert (status, refusal["error"]["message"]) == (
        503,
        "this server is shutting down; send the request to another one",
    )
    assert len(unfinished) < 32, "the hook did not wait"
    usages = [stream.result()[-1]["usage"]["completion_tokens"] for stream in streams]
    assert usages == [400] * 32
    assert server.get("/health")[0] == 200
    end(server)


@pytest.mark.ends_server
def test_no_stream_of_two_api_servers_is_lost(openai: OpenAIServer) -> None:
    drained_without_loss(openai)


def test_no_stream_of_one_api_server_is_lost(model: Path, tmp_path: Path) -> None:
    with running(tmp_path, engine_document(model, frontends=1)) as server:
        drained_without_loss(server)


def test_after_the_budget_the_pod_ends_all_the_same(model: Path, tmp_path: Path) -> None:
    """The engine runs two at a time, so that no machine finishes all of them in time."""
    document = engine_document(model, frontends=1, drain={"exitTimeoutSeconds": 1}, engine={"max_num_seqs": 2})
    with running(tmp_path, document) as server, ThreadPoolExecutor(64) as clients:
        asked = [clients.submit(server.complete, max_tokens=1000, ignore_eos=True) for _ in range(64)]
        wait_for(lambda: gauge(server.get("/metrics")[1], "eks_llm_requests_in_flight") > 50)
        assert server.pre_stop() == 0
        end(server)
        statuses = {request.result()[0] for request in asked}
    assert 503 in statuses, "the budget was long enough after all"
    assert statuses <= {200, 503}, "told at once, and not at their deadline"
