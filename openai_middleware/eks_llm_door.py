"""ASGI middleware in front of `vllm serve`'s application: `--middleware=eks_llm_door.Door`, one per API server.

door_routes.py     who may call what                  door_answers.py   errors, and streams that broke off
door_requests.py   what a request may say             door_pod.py       the queue, and the engine's pulse
door_vllm.py       what it knows of vLLM              eks_llm_drain.py  the end of a pod without losing a request

Standard library only, but for door_vllm.py. The pod finds these files, and those of Triton's model repository that they
share, in one folder on its PYTHONPATH.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import door_vllm
import engine_config
from door_answers import Answer, refuse
from door_pod import Pod
from door_requests import Model, check, has_structure
from door_routes import Access, Keys, access
from eks_llm_drain import Drain
from pod_state import pod_gauges
from request_checks import VALUES, InvalidRequestError, parse_json

logger = logging.getLogger("eks_llm.door")
LARGE_BYTES = 65_536
"""A body of this size is parsed beside the event loop."""
ENDED = "the server has ended before the answer was complete; repeat the request"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class TooLargeError(ValueError):
    """The body is larger than the limit: status 413."""


class Door:
    """Everything that a request passes before vLLM sees it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._config = engine_config.load()
        self._keys = Keys.of_environment()
        self._drain = Drain(self._serve)
        self._pod: Pod | None = None
        self._model: Model | None = None
        self._tasks: dict[asyncio.Task[None], Answer] = {}
        self._first_answer = 1.0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._start(scope["app"].state)
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._route(scope, receive, send)
        else:  # no listed route is a WebSocket; closing before accepting is answered with 403
            await send({"type": "websocket.close", "code": 1008})

    def _start(self, state: Any) -> None:
        core = door_vllm.engine_core(state)
        self._model = door_vllm.model(state, self._config)
        self._pod = Pod(self._config, core.client_index)
        self._pod.listen(core)
        loop = asyncio.get_running_loop()
        self._pod.watch(loop, self._lose)
        door_vllm.when_engine_ended(state, lambda: loop.call_soon_threadsafe(self._lose, ENDED))
        door_vllm.no_short_answers(state)

    async def _route(self, scope: Message, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        allowed = access(method, path)
        headers = dict(scope["headers"])
        if allowed is None:
            await refuse(send, 404, f"{method} {path} is not served here")
        elif allowed is Access.KEYED and not self._keys.admit(headers.get(b"authorization", b"")):
            await refuse(send, 401, "a valid API key is needed", headers={"www-authenticate": "Bearer"})
        elif path == "/health" and self._pod and (reason := self._pod.unready()):
            await refuse(send, 503, reason)
        elif path == "/metrics":
            await self._metrics(scope, receive, send)
        elif method == "POST":
            await self._drain(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    # Requests --------------------------------------------------------------------------------------------------------

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        """A POST that the drain has let in: it is checked, takes its place, and has its deadline."""
        pod, model, seconds = self._pod, self._model, self._config.limits.request_timeout_seconds
        if pod is None or model is None:
            await refuse(send, 503, "the server starts", headers={"retry-after": "1"})
            return
        until = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(until):
                body = await self._body(receive)
            if body is None:
                return  # the client has left
            parse = asyncio.to_thread(self._parse, body) if len(body) > LARGE_BYTES else None
            document = await parse if parse else self._parse(body)
            sequences = check(scope["path"], document, self._config.requests, model)
        except TooLargeError as error:
            await refuse(send, 413, str(error), headers={"connection": "close"})
            return
        except InvalidRequestError as error:
            await refuse(send, 400, str(error), error.field)
            return
        except TimeoutError:
            await refuse(send, 504, f"no complete request within {seconds:g} s", headers={"connection": "close"})
            return
        if reason := pod.lost or pod.full(sequences):
            retry = str(max(1, math.ceil(self._first_answer)))
            await refuse(send, 503, f"{reason}; retry after {retry} s", headers={"retry-after": retry})
            return
        pod.enter(sequences)
        try:
            await self._answer(scope, _Replay(body, receive), Answer(send, has_structure(document)), until)
        finally:
            pod.leave(sequences)

    async def _answer(self, scope: Message, receive: Receive, answer: Answer, until: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def send(message: Message) -> None:
            if not answer.begun and message["type"] == "http.response.body":
                self._first_answer += 0.1 * (loop.time() - began - self._first_answer)
            await answer.send(message)

        task = loop.create_task(self.app(scope, receive, send))  # type: ignore[arg-type]
        self._tasks[task] = answer
        try:
            done, _ = await asyncio.wait({task}, timeout=max(0.0, until - loop.time()))
            if not done:
                await answer.fail(504, f"not finished within {self._config.limits.request_timeout_seconds:g} s")
            elif not task.cancelled() and (error := task.exception()):
                logger.error("request failed", exc_info=error)
                await answer.fail(500, "the server failed; its log has the reason")
        finally:
            del self._tasks[task]
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    def _lose(self, reason: str) -> None:
        """Tells everybody who waits why; then they are cancelled."""

        async def end(task: asyncio.Task[None], answer: Answer) -> None:
            with contextlib.suppress(Exception):
                await answer.fail(503, reason, {"retry-after": "1"})
            task.cancel()

        self._ending = [asyncio.ensure_future(end(*entry)) for entry in self._tasks.items()]

    async def _body(self, receive: Receive) -> bytes | None:
        limit, parts, size, more = self._config.requests.max_body_bytes, list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > limit:
                raise TooLargeError(f"the body has more than {limit} bytes, which is the limit")
        return b"".join(parts)

    def _parse(self, body: bytes) -> Any:
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"the body is not UTF-8 text: {error.reason} at byte {error.start}") from None
        tokens = int(self._config.engine["max_model_len"]) * self._config.requests.max_sequences
        return parse_json(text, "the body", len(text), max_values=VALUES + tokens)

    # Metrics ---------------------------------------------------------------------------------------------------------

    async def _metrics(self, scope: Message, receive: Receive, send: Send) -> None:
        """VLLM's metrics and those of the pod, as plain text: two formats cannot be joined."""
        own = self._own_metrics()
        plain = [pair for pair in scope["headers"] if pair[0] not in (b"accept", b"accept-encoding")]

        async def joined(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [pair for pair in message["headers"] if pair[0].lower() != b"content-length"]
            elif not message.get("more_body"):
                message["body"] = message.get("body", b"") + own
            await send(message)

        await self.app({**scope, "headers": plain}, receive, joined)

    def _own_metrics(self) -> bytes:
        lines: list[str] = []
        if self._pod:
            for name, (text, value) in pod_gauges(self._pod.state.totals()).items():
                lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
                lines.append(f'{name}{{model_name="{self._config.served_model_name}"}} {value!r}')
        return "".join(f"{line}\n" for line in lines).encode()


class _Replay:
    """Gives the body that was read already once, and then what the connection says: that the client has left."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
