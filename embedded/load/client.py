"""One process of clients: sends requests, reads their streams, and reports what happened.

    python -m embedded.load.client     # started by run.py

Reads a `Task` as one line of JSON. It stops sending when the task's time is over or its stdin ends, so nothing goes on
without the process that started it; running streams then have their grace. Twice a second it writes a `Report` of
what is new as a line of JSON.
"""

import asyncio
import json
import random
import re
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp

from ..prompt import body
from .shape import Ramp, arrivals, prompt

GRACE = 30.0
"""Default of a task's grace. Streams that run on after that are cut."""
REPORT_SECONDS = 0.5
PAUSE_SECONDS = 1.0
"""Between a request that failed and the connection's next one, on average, unless the server says when to come back.
Were it always the same, connections that were refused together would come back together, and the queue would empty in
between."""
RETRY = re.compile(r"; retry after (\d+) s$")
"""How a full server of ours says when to come back."""
COUNT = re.compile(r"\d+(?= (?:requests are in flight|prompt tokens wait)\b)")
"""What differs from one refusal to the next."""
SILENCE_SECONDS = 120.0
"""A stream that says nothing for so long is lost."""


@dataclass(frozen=True)
class Task:
    """What one process does."""

    url: str
    """Of the service, e.g. `http://127.96.0.9:8000`."""
    triton: bool
    """generate_stream of the model `llm`; else the OpenAI server's completions."""
    model: str
    """Name that the OpenAI server knows."""
    tokens_in: int
    tokens_out: int
    ramp: Ramp
    rate: float
    """Requests a second at the ramp's end, a Poisson process. 0: a connection sends when its last answer ended."""
    seed: int
    grace: float = GRACE
    """Seconds for streams that run when it is over."""


@dataclass
class Report:
    """What happened since the last report; `open` and `queued` are as they are now."""

    open: int = 0
    """Requests sent and not answered in full."""
    queued: int = 0
    """Requests that arrived and wait for a connection; only with a rate."""
    sent: int = 0
    finished: int = 0
    refused: int = 0
    """Answered with an error before the first token, or not at all."""
    lost: int = 0
    """Broke off after the first token."""
    cut: int = 0
    """Ended by this process, since they ran too long after the load's end."""
    unsent: int = 0
    """Still waited for a connection when the load was over."""
    tokens_in: int = 0
    tokens_out: int = 0
    ttft: list[float] = field(default_factory=list[float])
    """Seconds from each finished request's arrival to its first token."""
    problems: dict[str, int] = field(default_factory=dict[str, int])
    """How often each error was seen."""
    cpu: float = 0.0
    """Seconds of CPU that this process used."""
    late: float = 0.0
    """Seconds by which this report is late: large if this process, and not the service, is the limit."""


class RequestError(Exception):
    """The server's answer is an error."""


@dataclass
class Stream:
    """An answer, as far as it has come."""

    first: float | None = None
    """When the first token came."""
    usage: dict[str, int] | None = None
    """Tokens, as the last event says; None: the answer is not complete."""

    def read(self, event: dict[str, Any]) -> None:
        """An event of either runtime. Raises `RequestError`."""
        if "error" in event:
            raise RequestError(message(event))
        text = event.get("TEXT_OUTPUT") or any(choice.get("text") for choice in event.get("choices", []))
        if text and self.first is None:
            self.first = time.monotonic()
        if usage := event.get("USAGE") or event.get("usage"):
            self.usage = json.loads(usage) if isinstance(usage, str) else usage


def request(task: Task, text: str) -> tuple[str, dict[str, Any]]:
    """Address and body that ask for a stream of exactly `tokens_out` tokens."""
    path, values = body(task.triton, task.model, text, task.tokens_out)
    usage = {"temperature": 0.0, "stream_options": {"include_usage": True}}  # which Triton sends unasked
    return task.url + path, {**values, **({"TEMPERATURE": 0.0} if task.triton else usage)}


def message(answer: Any) -> str:
    """The text of an error: a string at Triton, an object with `message` at the OpenAI server."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return str(error.get("message", error) if isinstance(error, dict) else error)


def refusal(body: str) -> str:
    """The text of an answer with an error status: JSON, or at Triton's generate_stream an event with JSON."""
    text = body.strip().removeprefix("data: ")
    try:
        return message(json.loads(text))
    except ValueError:
        return text[:200]


class Clients:
    """The connections of one process."""

    def __init__(self, task: Task, session: aiohttp.ClientSession, over: asyncio.Event) -> None:
        self._task, self._session, self._over = task, session, over
        self._began = time.monotonic()
        self._dice = random.Random(task.seed)
        self._free = asyncio.Semaphore(task.ramp.last)
        self._open = self._queued = 0
        self._report = Report()

    async def run(self) -> None:
        """Until the task is over and its streams have ended."""
        working = asyncio.create_task(self._arrive() if self._task.rate else self._connect())
        telling = asyncio.create_task(self._tell())
        await self._until(self._task.ramp.duration)
        self._over.set()
        await asyncio.wait([working], timeout=self._task.grace)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        telling.cancel()
        self._report.unsent += self._queued
        self._queued = 0
        self._send(late=0.0)

    async def _connect(self) -> None:
        """Each connection sends its next request when its last one ended."""

        async def connection(opens: float) -> None:
            await self._until(opens)
            while not self._over.is_set():
                if pause := await self._ask(time.monotonic()):
                    await self._sleep(self._dice.expovariate(1 / pause))

        moments = [self._task.ramp.opens(number) for number in range(self._task.ramp.last)]
        await asyncio.gather(*(connection(opens) for opens in moments if opens is not None))

    async def _arrive(self) -> None:
        """Requests arrive as a Poisson process, and wait if no connection is free."""

        async def arrival(arrived: float) -> None:
            self._queued += 1
            async with self._free:
                self._queued -= 1
                if self._over.is_set():
                    self._report.unsent += 1
                else:
                    await self._ask(arrived)

        ramp, peak = self._task.ramp, self._task.rate
        async with asyncio.TaskGroup() as group:
            for moment in arrivals(self._dice, ramp.rate(peak), peak, ramp.duration):
                await self._until(moment)
                if self._over.is_set():
                    break
                group.create_task(arrival(self._began + moment))

    async def _ask(self, arrived: float) -> float:
        """Sends a request and reads its stream. Returns seconds to pause: 0 if the answer is complete."""
        url, document = request(self._task, prompt(self._dice, self._task.tokens_in))
        stream, pause = Stream(), PAUSE_SECONDS
        self._report.sent += 1
        self._open += 1
        try:
            async with self._session.post(url, json=document) as answer:
                if answer.status >= 400:
                    raise RequestError(f"{answer.status} {refusal(await answer.text())}")
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        stream.read(json.loads(line.removeprefix(b"data: ")))
        except asyncio.CancelledError:
            self._report.cut += 1
            raise
        except (RequestError, aiohttp.ClientError, TimeoutError, ValueError) as error:
            text = str(error) or type(error).__name__
            if told := RETRY.search(text):
                pause = max(pause, float(told[1]))
            self._problem(COUNT.sub("…", RETRY.sub("", text)))
        else:
            if not stream.usage:
                self._problem("the stream ended before its last event")
        finally:
            self._open -= 1
        report = self._report
        if stream.first is None:
            report.refused += 1
        elif stream.usage is None:
            report.lost += 1
        else:
            report.finished += 1
            report.ttft.append(stream.first - arrived)
            report.tokens_in += stream.usage["prompt_tokens"]
            report.tokens_out += stream.usage["completion_tokens"]
            return 0.0
        return pause

    def _problem(self, text: str) -> None:
        self._report.problems[text] = self._report.problems.get(text, 0) + 1

    async def _tell(self) -> None:
        while True:
            due = time.monotonic() + REPORT_SECONDS
            await asyncio.sleep(REPORT_SECONDS)
            self._send(late=time.monotonic() - due)

    def _send(self, late: float) -> None:
        report, self._report = self._report, Report()
        report.open, report.queued = self._open, self._queued
        report.cpu, report.late = time.process_time(), late
        print(json.dumps(asdict(report)), flush=True)

    async def _until(self, moment: float) -> None:
        """Waits for a moment of the load, or for its end."""
        await self._sleep(self._began + moment - time.monotonic())

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), max(0.0, seconds))


async def main(task: Task) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)  # all that can come is its end
    # A connection per request: a Service balances connections, so that kept ones would never reach a new replica.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        await Clients(task, session, over).run()


if __name__ == "__main__":
    given = json.loads(sys.stdin.readline())
    asyncio.run(main(Task(**{**given, "ramp": Ramp(**given["ramp"])})))
