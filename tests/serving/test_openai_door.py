"""The door of `vllm serve`: who may call which route of the pinned server, limits, exact answers, a hung engine."""

import http.client
import json
import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.serving.metrics import gauge, wait_for
from tests.serving.openai_server import KEY, NEXT_KEY, OpenAIServer, running
from tests.serving.reference import Reference
from tests.serving.server import engine_document

OPEN, KEYED, CLOSED = "everybody", "whoever has a key", "nobody"
ROUTES = {
    "GET /health": OPEN,
    "GET /metrics": OPEN,
    "GET /v1/models": KEYED,
    "GET /version": KEYED,
    "POST /tokenize": KEYED,
    "POST /detokenize": KEYED,
    "POST /v1/chat/completions": KEYED,
    "POST /v1/completions": KEYED,
    "POST /v1/responses": KEYED,
    "GET /load": CLOSED,
    "GET /ping": CLOSED,
    "POST /ping": CLOSED,
    "POST /generative_scoring": CLOSED,
    "POST /inference/v1/generate": CLOSED,
    "POST /invocations": CLOSED,
    "POST /is_scaling_elastic_ep": CLOSED,
    "POST /scale_elastic_ep": CLOSED,
    "POST /v1/chat/completions/batch": CLOSED,
    "POST /v1/chat/completions/derender": CLOSED,
    "POST /v1/chat/completions/render": CLOSED,
    "POST /v1/completions/derender": CLOSED,
    "POST /v1/completions/render": CLOSED,
    "POST /v1/messages": CLOSED,
    "POST /v1/messages/count_tokens": CLOSED,
    "GET /v1/responses/{response_id}": CLOSED,
    "POST /v1/responses/{response_id}/cancel": CLOSED,
}
"""Every route of the pinned server, and who may call it. A new one is to be thought about before it is put here."""


def ask(openai: OpenAIServer, method: str, path: str, body: Any = None, key: str | None = KEY) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{openai.port}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_every_route_of_the_pinned_server_is_listed(openai: OpenAIServer) -> None:
    said = re.findall(r"Route: (\S+), Methods: (.+)", openai.log.read_text(errors="replace"))
    found = {f"{method} {path}" for path, methods in said for method in methods.strip().split(", ")}
    assert found - {f"HEAD {path}" for path, _ in said} == set(ROUTES)


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_is_open_to_those_who_may_call_it(openai: OpenAIServer, route: str) -> None:
    method, path = route.replace("{response_id}", "resp_1").split(" ")
    body = {"model": "tiny"} if method == "POST" else None
    without, with_key = (ask(openai, method, path, body, key)[0] for key in (None, KEY))
    expected = {OPEN: (200, 200), KEYED: (401, {200, 400}), CLOSED: (404, 404)}[ROUTES[route]]
    assert without == expected[0]
    assert with_key == expected[1] or with_key in (expected[1] if isinstance(expected[1], set) else ())


def test_two_keys_are_good_at_a_time(openai: OpenAIServer) -> None:
    assert [openai.complete(key=key)[0] for key in (KEY, NEXT_KEY, f"{KEY} {NEXT_KEY}", "")] == [200, 200, 401, 401]


@pytest.mark.parametrize(
    "path", ["/docs", "/openapi.json", "/redoc", "//v1/completions", "/v1/../invocations", "/metrics/x"]
)
def test_nothing_else_is_there(openai: OpenAIServer, path: str) -> None:
    assert ask(openai, "GET", path)[0] == 404


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "stop token that ends the engine": ({"stop_token_ids": [10**9], "min_tokens": 4}, "stop_token_ids"),
    "many answers": ({"n": 200}, "n: "),
    "unknown key": ({"top_q": 1}, "top_q: no such key (did you mean top_"),
    "priority without the policy": ({"priority": 5}, "priority"),
    "many bad words": ({"bad_words": ["w"] * 10_000}, "bad_words"),
    "blank bad word": ({"bad_words": [" "]}, "bad_words"),
    "half a character": ({"stop": "\ud83d"}, "Unicode"),
    "huge enum": ({"structured_outputs": {"json": {"enum": [f"{i:035}" for i in range(9000)]}}}, "structured_outputs"),
    "deep schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": {}}}}},
        "response_format",
    ),
    "memory of another server": ({"kv_transfer_params": {"remote_host": "x"}}, "kv_transfer_params"),
    "grammar that cannot be compiled": ({"structured_outputs": {"grammar": "root ::= root"}}, "cannot compile"),
    "grammar with two roots": ({"structured_outputs": {"grammar": 'root ::= "a"\nroot ::= "b"'}}, "cannot compile"),
    "regex with a lookahead": ({"structured_outputs": {"regex": "(?=a)a"}}, "cannot compile"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_gets_its_reason_and_harms_nobody(
    openai: OpenAIServer, reference: Reference, name: str, stream: bool
) -> None:
    changes, words = WRONG[name]
    status, answer = openai.complete(**changes, stream=stream)
    assert status == 400
    assert words in answer["error"]["message"]
    status, after = openai.complete()
    assert (status, after["choices"][0]["text"]) == (200, reference.greedy("The quick brown fox", 8)[0])


def test_an_answer_without_a_length_is_as_long_as_the_other_runtimes(openai: OpenAIServer) -> None:
    """The model's generation config says 24, vLLM's default for completions is 16; before it the context may end."""
    assert openai.complete(max_tokens=None, ignore_eos=True)[1]["usage"]["completion_tokens"] == 24
    status, answer = openai.complete(prompt=[5] * 1015, max_tokens=None, ignore_eos=True)
    assert status == 200, answer
    assert answer["usage"]["completion_tokens"] == 1024 - 1015


def engine_pid(server: OpenAIServer) -> int:
    """vLLM's engine, in the process group of the server."""
    assert server.process
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            group = int(stat.read_text().rsplit(")", 1)[1].split()[2])
            if group == server.process.pid and b"EngineCore" in (stat.parent / "cmdline").read_bytes():
                return int(stat.parent.name)
        except OSError:
            continue
    raise AssertionError("no engine")


def broken_stream(server: OpenAIServer, begun: threading.Event) -> tuple[int, list[str], bool]:
    """Status and events of a long stream, and whether its connection was cut before the response was complete.

    `begun` is set with its first event.
    """
    asked = server.request(stream=True, max_tokens=900, ignore_eos=True)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v1/completions", asked.data, dict(asked.header_items()))
    answer = connection.getresponse()
    first = answer.read1()
    begun.set()
    try:
        rest, cut = answer.read(), False
    except http.client.IncompleteRead as error:
        rest, cut = error.partial, True
    return answer.status, (first + rest).decode().strip().split("\n\n"), cut


def test_a_hung_engine_is_seen_told_and_ended(model: Path, tmp_path: Path) -> None:
    """Nobody is left waiting: streams end with the reason and are cut, new requests go elsewhere, the pod restarts."""
    document = engine_document(model, health={"staleSeconds": 1, "stallSeconds": 6})
    with running(tmp_path, document) as server, ThreadPoolExecutor(8) as clients:
        assert server.process
        engine, begun = engine_pid(server), threading.Event()
        streams = [clients.submit(broken_stream, server, begun) for _ in range(6)]
        assert begun.wait(60)
        os.kill(engine, signal.SIGSTOP)
        stopped = time.monotonic()
        wait_for(lambda: server.get("/health")[0] == 503, 5)
        assert gauge(server.get("/metrics")[1], "eks_llm_engine_step_age_seconds") > 1
        answers = [stream.result(60) for stream in streams]
        for status, events, cut in answers:
            assert "the engine hangs: no step for" in events[-1]
            assert cut == (status == 200), "nobody may take the part for the whole"
        assert any(cut for _, _, cut in answers)
        server.process.wait(60)
        print(f"told and ended {time.monotonic() - stopped:.1f} s after the stop")
