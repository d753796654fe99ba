"""The answer of one request on its way to the client: errors get their status, and a broken stream no clean end."""

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from request_checks import clip

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    413: "RequestTooLargeError",
    503: "ServiceUnavailableError",
    504: "DeadlineExceededError",
}
BROKEN = "the answer broke off: the engine gave the request up; repeat it"
ENGINE_DEAD = "EngineCore encountered an issue"
"""How vLLM's EngineDeadError begins: another server can answer this request, so it is no error of the server's own."""
NO_GRAMMAR = (
    "the grammar's library cannot compile it (a rule or reference that only leads to itself, or an unknown construct); "
    "the log of the engine has its words"
)
_ABORTED = re.compile(rb'"finish_reason": ?"(abort|error)"')
"""Never part of a text, where quotes are escaped."""
_ERROR_EVENT = re.compile(rb'(?:^|\n)data: ?(\{"error":.*)')


def error_body(status: int, message: str, param: str | None = None) -> bytes:
    """An error as the OpenAI API writes it."""
    error = {"message": clip(message), "type": TYPES.get(status, "InternalServerError"), "param": param, "code": status}
    return json.dumps({"error": error}).encode()


async def refuse(
    send: Send, status: int, message: str, param: str | None = None, headers: dict[str, str] | None = None
) -> None:
    """The whole answer is this error."""
    body = error_body(status, message, param)
    fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    pairs = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


class Answer:
    """Holds the first message back until there is a body, so that what fails before its first token gets a status.

    Once a stream has begun, an error is an event in it, and then the connection is cut: what follows is dropped, so
    that the server closes a response that it never completed, and no client takes the part for the whole.
    """

    def __init__(self, send: Send, structured: bool) -> None:
        self._send, self._structured = send, structured
        self._start: Message | None = None
        self.begun = self.closed = False

    async def send(self, message: Message) -> None:
        """What the application sends."""
        if self.closed:
            return
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            await self._body(message)
        else:
            await self._send(message)

    async def fail(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        """Ends the answer with an error, if it has not ended."""
        if self.closed:
            return
        self.closed = True
        if not self.begun:
            await refuse(self._send, status, reason, headers=headers)
        elif self._streams:
            event = b"data: " + error_body(status, reason) + b"\n\n"
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    @property
    def _streams(self) -> bool:
        headers = dict(self._start["headers"]) if self._start else {}
        return headers.get(b"content-type", b"").startswith(b"text/event-stream")

    async def _body(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if not body and more:
            return
        if self._streams and (found := _ERROR_EVENT.search(body)):
            await self._fail_as(found.group(1))
            return
        if _ABORTED.search(body):
            await self.fail(503, BROKEN, {"retry-after": "1"})
            return
        if self._start and self._start["status"] == 500 and not self.begun:
            await self._fail_as(body)
            return
        if not self.begun and self._start:
            self.begun = True
            await self._send(self._start)
        self.closed = not more
        await self._send(message)

    async def _fail_as(self, text: bytes) -> None:
        """VLLM answers with 500 what is the engine's fault, and also a grammar that the engine could not compile."""
        try:
            error = json.loads(text)["error"]
            status, reason = int(error.get("code") or 500), str(error.get("message") or "")
        except (ValueError, KeyError, TypeError, AttributeError):
            status, reason = 500, ""
        if status >= 500 and self._structured and not self.begun and ENGINE_DEAD not in reason:
            status, reason = 400, NO_GRAMMAR
        if ENGINE_DEAD in reason:
            await self.fail(503, BROKEN, {"retry-after": "1"})
            return
        await self.fail(status, reason or "the server failed; its log has the reason")
