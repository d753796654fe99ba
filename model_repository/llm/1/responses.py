"""Outputs of the engine → responses of one request, the last of them marked final exactly once."""

import enum
import json
import logging
import queue
import threading
from collections.abc import Collection
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from request_checks import clip

logger = logging.getLogger("eks_llm.responses")
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Code(enum.Enum):
    """Triton's error codes that requests end with, and what a client should make of them."""

    INVALID_ARG = pb_utils.TritonError.INVALID_ARG
    """The request is wrong: do not repeat it."""
    UNAVAILABLE = pb_utils.TritonError.UNAVAILABLE
    """This server cannot take it now: repeat it, later or elsewhere."""
    CANCELLED = pb_utils.TritonError.CANCELLED
    """The client is gone, or the deadline is over."""
    INTERNAL = pb_utils.TritonError.INTERNAL


class Outbox:
    """Sends responses from a thread of its own: a send is a round trip to Triton, for which the event loop cannot wait.

    What an answer gains while the thread is busy leaves as one piece, so a server under load sends less often.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="outbox")
        self._thread.start()

    def put(self, answer: "Answer") -> None:
        self._waiting.put(answer)

    def close(self) -> None:
        """Returns when everything is sent."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (answer := self._waiting.get()) is not None:
            answer.send()
            del answer  # a frame must not keep Triton's sender while it waits, see Answer


class Answer:
    """The responses of one request: the event loop adds to them, the outbox sends them, the watcher watches."""

    def __init__(self, sender: Any, wanted: Collection[str], outbox: Outbox) -> None:
        """`wanted`: the outputs that the request asked for.

        No other may be sent: Triton's sender drops it without holding Python's lock, and the process dies (seen with
        2.51 through an ensemble, which asks for the outputs that it maps).
        """
        self.tokens = 0
        self._wanted = wanted
        self.end_reason: tuple[Code, str] | None = None
        # It holds shared memory of Triton and dies badly if it outlives that: no frame, task or traceback may keep it
        # until the interpreter ends.
        self._sender = sender
        self._outbox = outbox
        self._lock = threading.Lock()
        """Held while the answer changes, and while it is sent: is_cancelled must not meet the final response."""
        self._stream = False
        self._parts: list[str] = []
        self._end: dict[str, str] | tuple[str, Code] | None = None
        """How it ends: the outputs beside the text, or an error."""
        self._queued = False
        self._prompt_tokens = 0

    def begin(self, head: str, stream: bool, prompt_tokens: int) -> None:
        self._stream, self._prompt_tokens = stream, prompt_tokens
        if head:
            self._parts.append(head)

    def add(self, output: Any, finish_reason: str | None = None) -> None:
        """Takes the new text of an engine output: to be sent now, or with the end of a request without STREAM.

        `finish_reason` replaces the engine's own.
        """
        completion = output.outputs[0]
        self.tokens += len(completion.token_ids)
        end = None
        if output.finished:
            usage = {
                "prompt_tokens": self._prompt_tokens,
                "completion_tokens": self.tokens,
                "total_tokens": self._prompt_tokens + self.tokens,
                "cached_tokens": output.num_cached_tokens or 0,
            }
            end = {"FINISH_REASON": finish_reason or str(completion.finish_reason), "USAGE": json.dumps(usage)}
        self._change(completion.text, end)

    def fail(self, code: Code, reason: str) -> None:
        """Ends the request with an error, if it has not ended yet."""
        self._change("", (reason, code))

    def client_gone(self) -> bool:
        """Cancelled by the client, or not to be reached."""
        with self._lock:
            return self._end is None and (self._sender is None or self._sender.is_cancelled())

    def send(self) -> None:
        """Sends what has come together. Called by the outbox only."""
        with self._lock:
            self._queued = False
            if self._sender is None:
                return
            try:
                self._send("".join(self._parts))
            except Exception:
                logger.exception("a response could not be sent")
                self._give_up()
            finally:
                self._parts.clear()

    def _change(self, text: str, end: "dict[str, str] | tuple[str, Code] | None") -> None:
        with self._lock:
            if self._end is not None or self._sender is None:
                return
            if text:  # a piece of a character has no text yet
                self._parts.append(text)
            self._end = end
            if self._queued or not (end or (text and self._stream)):
                return
            self._queued = True
        self._outbox.put(self)

    def _send(self, text: str) -> None:
        if isinstance(self._end, dict):
            self._sender.send(self._response(TEXT_OUTPUT=text, **self._end), flags=_FINAL)
            self._sender = None
            return
        if text and self._stream and "TEXT_OUTPUT" in self._wanted:
            self._sender.send(self._response(TEXT_OUTPUT=text))
        if self._end:
            reason, code = self._end
            self._send_error(clip(reason), code)

    def _give_up(self) -> None:
        """Ends a request whose answer failed on its way with a fixed text: without a final response it never ends."""
        try:
            if self._sender is not None:
                self._send_error("the answer could not be sent; the server's log has the reason", Code.INTERNAL)
        except Exception:
            logger.exception("nor could that it was not")
        self._sender = None  # the watcher finds that nobody listens

    def _send_error(self, reason: str, code: Code) -> None:
        failure = pb_utils.InferenceResponse(error=pb_utils.TritonError(reason, code.value))
        self._sender.send(failure, flags=_FINAL)
        self._sender = None

    def _response(self, **texts: str) -> Any:
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor(name, np.array([text.encode("utf-8", "replace")], dtype=np.object_))
                for name, text in texts.items()
                if name in self._wanted
            ]
        )
