"""The middleware in front of vLLM's server, without vLLM: routes, keys, bodies, and how answers end."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eks_llm.serving import openai
from tests.unit import pod_modules  # noqa: F401 makes the next ones importable

import door_routes  # isort: skip
import door_vllm  # isort: skip
import eks_llm_drain  # isort: skip
from door_requests import Model, check  # isort: skip
from eks_llm_door import Door  # isort: skip
from request_checks import InvalidRequestError  # isort: skip
from request_limits import RequestLimits  # isort: skip

LIMITS = RequestLimits()
FIELDS = {"/v1/completions": frozenset(("model", "prompt", "n", "max_tokens", "temperature", "stop_token_ids", "echo"))}
MODEL = Model(vocabulary=421, priorities=False, fields=FIELDS)
GOOD = {"model": "tiny", "prompt": "fox", "max_tokens": 4}


# Bodies -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"stop_token_ids": [10**9]}, "stop_token_ids: .* outside the vocabulary"),
        ({"top_q": 1}, r"top_q: no such key \(did you mean top_p\?\)"),
        ({"n": 17}, "n: 1 prompts of 17 answers each are more than the limit of 16"),
        ({"prompt": ["a"] * 9, "n": 2}, "more than the limit of 16"),
        ({"prompt": [[1]] * 17}, "prompt: 17 prompts"),
        ({"best_of": 5}, "best_of"),
        ({"priority": 5}, "priority: 5 has no effect"),
        ({"kv_transfer_params": {"remote_host": "x"}}, "kv_transfer_params"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
        ({"response_format": {"json_schema": {"schema": {"enum": ["x"] * 600}}}}, "response_format: has more than 500"),
        ({"structured_outputs": []}, r"structured_outputs: \[\] is not an object"),
        ({"response_format": "json"}, "response_format: 'json' is not an object"),
        ({"tools": {}}, "tools: {} is not a list"),
        ({"tools": [{"function": {"parameters": {"pattern": "a{99999}"}}}]}, "tools: the regex repeats"),
        ({"messages": [{"content": [{"image_url": {"url": "http://169.254.169.254/"}}]}]}, "not a host"),
        ({"messages": [{"content": [{"image_url": {"url": "file:///etc/passwd"}}]}]}, "file: only data, http"),
        ({"messages": [{"content": [{"video_url": {"url": "//example.com/x"}}]}]}, "without scheme"),
        ({"input": [{"content": [{"type": "input_image", "image_url": "https://example.com/x.png"}]}]}, "not a host"),
    ],
)
def test_a_body_is_refused_by_key(body: dict[str, Any], words: str) -> None:
    known = Model(421, False, {"/v1/x": frozenset(("top_p", *body)) - {"top_q"}})
    with pytest.raises(InvalidRequestError, match=words):
        check("/v1/x", body, LIMITS, known)


@pytest.mark.parametrize(
    ("body", "sequences"),
    [
        (GOOD, 1),
        ({**GOOD, "n": 4, "prompt": ["a", "b"]}, 8),
        ({**GOOD, "prompt": [1, 2, 3]}, 1),
        ({**GOOD, "echo": True, "max_tokens": 0}, 1),
        ({**GOOD, "user": "me", "metadata": {}, "store": False}, 1),
        ({**GOOD, "temperature": None}, 1),
    ],
)
def test_a_good_body_says_how_many_answers_it_wants(body: dict[str, Any], sequences: int) -> None:
    assert check("/v1/completions", body, LIMITS, MODEL) == sequences


ADDRESSES = {
    "https://images.example.com/a.png": True,
    "HTTPS://IMAGES.EXAMPLE.COM/a.png": True,
    "data:image/png;base64,AAAA": True,
    "https://images.example.com.evil.com/a.png": False,
    "https://evil.com/images.example.com": False,
    "https://images.example.com@evil.com/a.png": False,
    "https://evil.com\\@images.example.com/a.png": False,
    "https://[::1/a.png": False,
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_media_come_from_named_hosts_only(address: str) -> None:
    limits = RequestLimits(media_domains=("images.example.com",))
    body = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}]}
    if ADDRESSES[address]:
        assert check("/v1/chat/completions", body, limits, MODEL) == 1
    else:
        with pytest.raises(InvalidRequestError, match="messages"):
            check("/v1/chat/completions", body, limits, MODEL)


def test_the_hook_and_the_door_mean_the_same_files() -> None:
    ours = (openai.RUN_DIRECTORY, openai.DRAIN_MARKER, openai.BUSY_LOCK)
    assert ours == (eks_llm_drain.DIRECTORY, eks_llm_drain.DRAIN_MARKER, eks_llm_drain.BUSY_LOCK)
    assert openai.KEYS_VARIABLE == door_routes.KEYS_VARIABLE


# Keys ---------------------------------------------------------------------------------------------------------------


def test_either_of_two_keys_is_good() -> None:
    keys = door_routes.Keys("old\nnew")
    admitted = [
        key for key in (b"Bearer old", b"bearer new", b"Bearer old new", b"Basic old", b"old", b"") if keys.admit(key)
    ]
    assert admitted == [b"Bearer old", b"bearer new"]


def test_without_a_variable_there_is_no_key_and_with_an_empty_one_no_server() -> None:
    assert door_routes.Keys(None).admit(b"")
    with pytest.raises(ValueError, match="holds no key"):
        door_routes.Keys(" \n")


# The door as a whole ------------------------------------------------------------------------------------------------


class Core:
    """What an API server's client of the engine has."""

    client_index = 0

    async def get_output_async(self) -> None:
        return None


class Client:
    """Sends requests to a door and keeps what comes back."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.engine = SimpleNamespace(engine_core=Core(), shutdown=lambda timeout: None)

    async def start(self) -> None:
        state = SimpleNamespace(engine_client=self.engine)
        await self.door({"type": "lifespan", "app": SimpleNamespace(state=state)}, _nothing, _ignore)

    async def ask(self, method: str, path: str, body: bytes = b"", key: str = "secret") -> tuple[int, bytes, bool]:
        """Status, body, and whether the answer was complete."""
        status, parts, complete = 0, list[bytes](), False
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return pending.pop() if pending else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            nonlocal status, complete
            assert not complete, "nothing may follow the end"
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))
                complete = not message.get("more_body")

        headers = [(b"authorization", f"Bearer {key}".encode())]
        await self.door({"type": "http", "method": method, "path": path, "headers": headers}, receive, send)
        return status, b"".join(parts), complete


async def _nothing() -> Any:
    return {"type": "lifespan.startup"}


async def _ignore(_: Any) -> None:
    pass


async def _nothing_happens(_: Client) -> None:
    pass


App = Callable[[Any, Any, Any], Any]
Meanwhile = Callable[[Client], Awaitable[None]]
Ask = Callable[..., tuple[int, bytes, bool]]


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Asks an application through a door that has one key; `changes` are to engine.json."""
    monkeypatch.setenv(openai.KEYS_VARIABLE, "secret")
    monkeypatch.setenv("EKS_LLM_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("EKS_LLM_ENGINE_CONFIG", str(tmp_path / "engine.json"))
    monkeypatch.setattr(door_vllm, "model", lambda *_: MODEL)
    monkeypatch.setattr(door_vllm, "no_short_answers", lambda _: None)

    def run(
        app: App, *requests: tuple[Any, ...], meanwhile: Meanwhile = _nothing_happens, **limits: Any
    ) -> list[tuple[int, bytes, bool]]:
        document = {
            "schema": 1,
            "model": "/models/tiny",
            "servedModelName": "tiny",
            "frontends": 1,
            "engine": {"max_model_len": 64, "max_num_seqs": 2, "max_num_batched_tokens": 64},
            "limits": {"maxQueuedRequests": 1, **limits},
        }
        (tmp_path / "engine.json").write_text(json.dumps(document))

        async def whole(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "lifespan":
                await app(scope, receive, send)

        async def go() -> list[tuple[int, bytes, bool]]:
            client = Client(Door(whole))
            await client.start()
            answers = asyncio.gather(*(client.ask(*request) for request in requests))
            await meanwhile(client)
            return list(await answers)

        return asyncio.run(go())

    return run


async def _say(send: Any, *parts: bytes, status: int = 200, kind: bytes = b"application/json") -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def answers(_: Any, receive: Any, send: Any) -> None:
    """Repeats the request's body."""
    await _say(send, (await receive()).get("body", b""))


POST = ("POST", "/v1/completions")
BODY = json.dumps(GOOD).encode()


def error(body: bytes) -> dict[str, Any]:
    return json.loads(body)["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/invocations", 404),
        ("GET", "/docs", 404),
        ("GET", "/v1/completions", 404),
        ("POST", "/v1/completions/", 404),
        ("POST", "//v1/completions", 404),
        ("OPTIONS", "/invocations", 404),
        ("OPTIONS", "/v1/completions", 200),
        ("GET", "/health", 200),
        ("GET", "/metrics", 200),
        ("GET", "/v1/models", 401),
        ("POST", "/v1/completions", 401),
    ],
)
def test_what_is_not_listed_is_not_there_and_what_is_wants_a_key(
    through: Callable[..., Any], method: str, path: str, status: int
) -> None:
    (seen,) = through(answers, (method, path, BODY, "another"))
    assert seen[0] == status


def test_vllm_gets_the_body_as_it_came(through: Callable[..., Any]) -> None:
    body = b' {"model": "tiny",\n"prompt": "\xe2\x82\xac"} '
    assert through(answers, (*POST, body)) == [(200, body, True)]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "JSON object"),
        (b"\xff", 400, "UTF-8"),
        (b"[" * 5000, 400, "nested"),
        (b" " * 2001, 413, "2000 bytes"),
        (b'{"prompt": "a", "stop_token_ids": [-1]}', 400, "vocabulary"),
        (b'{"prompt": "\\ud83d"}', 400, "Unicode"),
    ],
)
def test_a_wrong_body_gets_its_reason(through: Callable[..., Any], body: bytes, status: int, words: str) -> None:
    ((seen, text, complete),) = through(answers, (*POST, body), maxBodyBytes=2000 if status == 413 else 10_000)
    assert (seen, complete) == (status, True)
    assert words in error(text)["message"]


def test_a_full_queue_says_so(through: Callable[..., Any]) -> None:
    """Two run and one may wait."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.sleep(0.2)
        await _say(send, b"{}")

    seen = through(slow, *[(*POST, BODY)] * 5)
    assert sorted(status for status, _, _ in seen) == [200, 200, 200, 503, 503]
    assert "queue is full" in next(error(text)["message"] for status, text, _ in seen if status == 503)


STREAM = b"text/event-stream"


def test_a_deadline_ends_what_has_not_begun_with_a_status(through: Callable[..., Any]) -> None:
    cancelled: list[bool] = []

    async def never(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    ((status, text, _),) = through(never, (*POST, BODY), requestTimeoutSeconds=0.05)
    assert status == 504
    assert "0.05 s" in error(text)["message"]
    assert cancelled == [True], "the engine must be free again"


def test_a_deadline_cuts_a_stream_after_an_event_that_says_so(through: Callable[..., Any]) -> None:
    async def stalls(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", STREAM)]})
        await send({"type": "http.response.body", "body": b'data: {"a": 1}\n\n', "more_body": True})
        await asyncio.Event().wait()

    ((status, text, complete),) = through(stalls, (*POST, BODY), requestTimeoutSeconds=0.05)
    events = text.decode().split("\n\n")
    assert (status, complete) == (200, False)
    assert error(events[1].removeprefix("data: ").encode())["code"] == 504


def test_who_waits_when_the_server_has_ended_its_engine_is_told(through: Callable[..., Any]) -> None:
    """VLLM shuts the engine down on a thread, and says nothing to the requests that it was answering."""
    begun = asyncio.Event()

    async def stalls(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/v1/chat/completions":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", STREAM)]})
            await send({"type": "http.response.body", "body": b'data: {"a": 1}\n\n', "more_body": True})
            begun.set()
        await asyncio.Event().wait()

    async def end(client: Client) -> None:
        await begun.wait()
        await asyncio.to_thread(client.engine.shutdown, timeout=10)

    chat = json.dumps({"messages": []}).encode()
    waiting, stream = through(stalls, (*POST, BODY), ("POST", "/v1/chat/completions", chat), meanwhile=end)
    assert (waiting[0], waiting[2]) == (503, True)
    assert "has ended before the answer was complete" in error(waiting[1])["message"]
    assert (stream[0], stream[2]) == (200, False)
    assert error(stream[1].split(b"\n\n")[1].removeprefix(b"data: "))["code"] == 503


def test_a_request_that_the_engines_death_cuts_off_may_be_repeated(through: Callable[..., Any]) -> None:
    async def dies(scope: Any, receive: Any, send: Any) -> None:
        await _say(send, DEAD, status=500)

    ((status, text, _),) = through(dies, (*POST, BODY))
    assert (status, error(text)["code"]) == (503, 503)
    structured = json.dumps({"messages": [], "response_format": {"type": "json_object"}}).encode()
    ((status, _, _),) = through(dies, ("POST", "/v1/chat/completions", structured))
    assert status == 503, "the grammar is not at fault"


DEAD = b'{"error": {"message": "EngineCore encountered an issue. See stack trace (above) ...", "code": 500}}'


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"message": "EngineCore encountered an issue", "code": 500}}\n\n',
        b'data: {"choices":[{"text":"","finish_reason":"abort"}]}\n\n',
    ],
)
def test_a_stream_that_broke_off_has_no_clean_end(through: Callable[..., Any], event: bytes) -> None:
    """As vLLM ends it: the error, and then `[DONE]` as if nothing had been."""

    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        await _say(send, b'data: {"a": 1}\n\n', event, b"data: [DONE]\n\n", kind=STREAM)

    ((status, text, complete),) = through(breaks, (*POST, BODY))
    assert (status, complete) == (200, False)
    assert b"[DONE]" not in text
    assert b'"error"' in text


def test_an_error_before_the_first_token_gets_its_status(through: Callable[..., Any]) -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        await _say(send, b'data: {"error": {"message": "no", "code": 400}}\n\n', b"data: [DONE]\n\n", kind=STREAM)

    ((status, text, complete),) = through(fails, (*POST, BODY))
    assert (status, error(text)["message"], complete) == (400, "no", True)


def test_an_answer_that_was_aborted_is_no_answer(through: Callable[..., Any]) -> None:
    async def aborted(scope: Any, receive: Any, send: Any) -> None:
        await _say(send, b'{"choices":[{"text":"par","finish_reason":"abort"}]}')

    ((status, text, _),) = through(aborted, (*POST, BODY))
    assert status == 503
    assert "repeat it" in error(text)["message"]


def test_a_text_that_speaks_of_aborting_is_one(through: Callable[..., Any]) -> None:
    said = json.dumps({"choices": [{"text": '"finish_reason":"abort"', "finish_reason": "stop"}]}).encode()

    async def speaks(scope: Any, receive: Any, send: Any) -> None:
        await _say(send, said)

    assert through(speaks, (*POST, BODY)) == [(200, said, True)]


def test_metrics_have_the_pods_own_beside_vllms(through: Callable[..., Any]) -> None:
    async def metrics(scope: Any, receive: Any, send: Any) -> None:
        assert not [name for name, _ in scope["headers"] if name.startswith(b"accept")]
        await _say(send, b"vllm:x 1.0\n", kind=b"text/plain")

    ((status, text, _),) = through(metrics, ("GET", "/metrics"))
    assert status == 200
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    assert lines == [
        "vllm:x 1.0",
        'eks_llm_engine_step_age_seconds{model_name="tiny"} 0.0',
        'eks_llm_requests_in_flight{model_name="tiny"} 0.0',
    ]
