"""The client processes of `./dev load` against a server whose answers are known."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from embedded.load.client import Stream, Task, message, refusal
from embedded.load.report import Totals
from embedded.load.run import Clients
from embedded.load.shape import Ramp

# Answers of real servers (Triton 2.51 with this repository's model, vLLM 0.27), shortened.
TRITON = [
    {"TEXT_OUTPUT": "he"},
    {
        "FINISH_REASON": "length",
        "TEXT_OUTPUT": " fox",
        "USAGE": '{"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16, "cached_tokens": 0}',
    },
]
OPENAI = [
    {"choices": [{"index": 0, "text": "he", "finish_reason": None}], "usage": None},
    {"choices": [{"index": 0, "text": " fox", "finish_reason": "length"}], "usage": None},
    {"choices": [], "usage": {"prompt_tokens": 12, "total_tokens": 16, "completion_tokens": 4}},
]
REFUSED = (
    "the queue is full: {} requests are in flight, the engine runs 8 at most and 16 may wait; retry after 2 s",
    "{} prompt tokens wait (limit 4096); retry after 2 s",
)
"""What a full server of ours says, with status 400, as an event, though no stream begins."""


class Handler(BaseHTTPRequestHandler):
    server: "Server"  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, document))
        self.server.answer(self, next(self.server.numbers))

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def events(self, events: list[dict[str, Any]], complete: bool = True) -> None:
        for event in events:
            data = f"data: {json.dumps(event)}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
        if complete:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def refuse(self, number: int, reason: int = 0) -> None:
        body = f"data: {json.dumps({'error': REFUSED[reason].format(24 + number)})}\n\n".encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    answer: Callable[[Handler, int], None]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.numbers = itertools.count()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def good(handler: Handler, _: int) -> None:
    time.sleep(0.05)
    handler.begin()
    handler.events(TRITON)


def task(server: Server, **more: Any) -> Task:
    ramp = more.pop("ramp", Ramp(1, 4, 0.2, 1))
    return Task(**{
        "url": server.url, "triton": True, "model": "tiny", "tokens_in": 12, "tokens_out": 4, "ramp": ramp,
        "rate": 0.0, "seed": 1, **more,
    })  # fmt: skip


def totals(*tasks: Task, end_early: bool = False) -> Totals:
    """`end_early`: told to stop after the first answer."""
    found, begin = Totals(), time.monotonic()
    with Clients(list(tasks)) as clients:
        while clients.running or not clients.reports.empty():
            assert time.monotonic() - begin < 60
            if end_early and found.counts["finished"]:
                clients.end()
            if clients.reports.empty():
                time.sleep(0.05)
            else:
                found.add(*clients.reports.get(), time.monotonic() - begin)
    return found


def test_what_is_sent_to_triton(server: Server) -> None:
    server.answer = good
    found = totals(task(server))
    path, document = server.asked[0]
    assert path == "/v2/models/llm/generate_stream"
    assert len(document.pop("PROMPT")) == 11
    sampling = json.dumps({"ignore_eos": True})
    assert document == {"MAX_TOKENS": 4, "TEMPERATURE": 0.0, "STREAM": True, "SAMPLING_PARAMETERS": sampling}
    counts = found.counts
    assert counts["sent"] == counts["finished"] == len(server.asked) > 4
    assert counts["tokens_in"] == 12 * counts["finished"]
    assert counts["tokens_out"] == 4 * counts["finished"]
    assert len(found.ttft) == counts["finished"]
    assert min(found.ttft) >= 0.05
    assert found.open == found.queued == 0
    assert found.cpu > 0


def test_what_is_sent_to_the_openai_server(server: Server) -> None:
    def answer(handler: Handler, _: int) -> None:
        handler.begin()
        handler.events(OPENAI)

    server.answer = answer
    found = totals(task(server, triton=False, ramp=Ramp(1, 1, 0, 0.5)))
    path, document = server.asked[0]
    assert path == "/v1/completions"
    assert document["model"] == "tiny"
    assert document["max_tokens"] == 4
    assert document["stream_options"] == {"include_usage": True}
    assert found.counts["finished"] == len(server.asked)
    assert found.counts["tokens_out"] == 4 * len(server.asked)


def test_refused_and_lost_are_told_apart(server: Server) -> None:
    def answer(handler: Handler, number: int) -> None:
        kind = number % 4
        if kind == 0:
            handler.refuse(number)
        elif kind == 1:  # the connection breaks after the first token
            handler.begin()
            handler.events(TRITON[:1], complete=False)
        elif kind == 2:  # an error in the stream, as Triton sends it
            handler.begin()
            handler.events([TRITON[0], {"error": "the drain budget of 4 s is over"}])
        else:
            good(handler, number)

    server.answer = answer
    found = totals(task(server, ramp=Ramp(8, 8, 0, 3)))
    asked = len(server.asked)
    by_kind = [len(range(kind, asked, 4)) for kind in range(4)]
    counts = found.counts
    assert counts["refused"] == by_kind[0] > 0
    assert counts["lost"] == by_kind[1] + by_kind[2] > 1
    assert counts["finished"] == by_kind[3] > 0
    full = "400 the queue is full: … requests are in flight, the engine runs 8 at most and 16 may wait"
    assert found.problems[full] == by_kind[0]
    assert found.problems["the drain budget of 4 s is over"] == by_kind[2]
    assert sum(found.problems.values()) == sum(by_kind[:3])


def test_a_full_server_says_when_to_come_back(server: Server) -> None:
    """50 connections that pause for 2 s on average come back 50 times within 2 s, with a deviation of √50."""
    server.answer = lambda handler, number: handler.refuse(number, reason=1)
    found = totals(task(server, ramp=Ramp(50, 50, 0, 2)))
    assert found.problems == {"400 … prompt tokens wait (limit 4096)": found.counts["sent"]}
    assert found.counts["refused"] == found.counts["sent"]
    assert found.counts["sent"] - 50 < 50 + 4 * 50**0.5  # with pauses of 1 s, 100 would come back


def test_a_stream_that_ends_early_is_lost(server: Server) -> None:
    def answer(handler: Handler, _: int) -> None:
        handler.begin()
        handler.events(TRITON[:1])

    server.answer = answer
    found = totals(task(server, ramp=Ramp(1, 1, 0, 0.5)))
    assert found.counts["lost"] == len(server.asked)
    assert found.problems == {"the stream ended before its last event": len(server.asked)}


def test_nobody_there(server: Server) -> None:
    found = totals(task(server, url="http://127.0.0.1:9", ramp=Ramp(1, 2, 0, 1)))
    assert found.counts["refused"] == found.counts["sent"] > 0
    assert all("Cannot connect to host 127.0.0.1:9" in problem for problem in found.problems)


def test_times_count_from_the_arrival(server: Server) -> None:
    """One connection, answers of 0.5 s, 8 arrivals a second: those that wait for the connection show it."""

    def answer(handler: Handler, _: int) -> None:
        time.sleep(0.5)
        handler.begin()
        handler.events(TRITON)

    server.answer = answer
    found = totals(task(server, ramp=Ramp(1, 1, 0, 4), rate=8.0))
    assert max(found.ttft) > 1.5  # from sending, it would be 0.5
    assert found.counts["unsent"] > 0
    assert found.counts["sent"] == len(server.asked) <= 9


def test_it_stops_when_it_is_told(server: Server) -> None:
    server.answer = good
    found = totals(task(server, ramp=Ramp(2, 2, 0, 300)), end_early=True)
    assert found.counts["finished"] == found.counts["sent"] == len(server.asked) > 0


@pytest.mark.parametrize("events", [TRITON, OPENAI], ids=["triton", "openai"])
def test_streams_are_complete_with_their_usage(events: list[dict[str, Any]]) -> None:
    stream = Stream()
    for event in events:
        assert stream.usage is None
        stream.read(event)
        assert stream.first is not None
    assert stream.usage is not None
    assert (stream.usage["prompt_tokens"], stream.usage["completion_tokens"]) == (12, 4)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"error": "queue full"}, "queue full"),
        ({"error": {"message": "no such model", "code": 404}}, "no such model"),
        ({"detail": "x"}, "{'detail': 'x'}"),
    ],
)
def test_messages_of_errors(answer: dict[str, Any], expected: str) -> None:
    assert message(answer) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('data: {"error":"MAX_TOKENS 100000 is too many"}\n\n', "MAX_TOKENS 100000 is too many"),
        ('{"error": {"message": "no such model", "code": 404}}', "no such model"),
        ("<h1>Bad Gateway</h1>", "<h1>Bad Gateway</h1>"),
        ("", ""),
    ],
)
def test_refusals_are_read(body: str, expected: str) -> None:
    assert refusal(body) == expected
