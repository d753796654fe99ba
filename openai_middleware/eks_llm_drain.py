"""What `vllm serve` lacks to end without losing a request: the part of the door that counts and refuses.

vLLM's own drain (`--shutdown-timeout`) loses requests with more than one API server: at SIGTERM each of them closes its
sockets to the engine at once, because it does not own the engine process, and then waits for answers that cannot come.
New requests get an empty answer with status 200 meanwhile. So the pod waits before SIGTERM, in its preStop hook:

    touch DIRECTORY/draining                         from now on new requests are refused
    flock --timeout BUDGET DIRECTORY/busy true       an API server holds this lock while it has requests in flight
"""

import fcntl
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

DIRECTORY = "/dev/shm/eks-llm"  # noqa: S108 a memory volume of the pod
"""Default of the variable EKS_LLM_RUN_DIR. Shared by all API servers of the pod."""
DRAIN_MARKER, BUSY_LOCK = "draining", "busy"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Drain:
    """ASGI middleware, one instance per API server. Probes and metrics (GET) pass always."""

    def __init__(self, app: App) -> None:
        self.app = app
        directory = Path(os.environ.get("EKS_LLM_RUN_DIR", DIRECTORY))
        directory.mkdir(parents=True, exist_ok=True)
        self._marker = directory / DRAIN_MARKER
        self._marker.unlink(missing_ok=True)  # the volume outlives a container that was drained and restarted
        self._lock = os.open(directory / BUSY_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        self._in_flight = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
        elif self._enter():
            try:
                await self.app(scope, receive, send)
            finally:
                self._leave()
        else:
            await _refuse(send)

    def _enter(self) -> bool:
        """Counts a request in, unless the pod drains. The lock comes first, so that preStop never misses a request."""
        if self._in_flight == 0:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:  # preStop has it: everything was finished
                return False
        self._in_flight += 1
        if self._marker.exists():
            self._leave()
            return False
        return True

    def _leave(self) -> None:
        self._in_flight -= 1
        if self._in_flight == 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


async def _refuse(send: Send) -> None:
    error = {"message": "this server is shutting down; send the request to another one", "type": "Unavailable"}
    body = json.dumps({"error": {**error, "param": None, "code": 503}}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "retry-after": "1"}
    # A client that keeps this connection would send its next request here too.
    pairs = [(name.encode(), value.encode()) for name, value in {**headers, "connection": "close"}.items()]
    await send({"type": "http.response.start", "status": 503, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
