"""Outputs of the engine → responses of one request, the last of them marked final exactly once."""

import enum
import json
import threading
from collections.abc import Collection
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

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


class Answer:
    """The responses of one request. Used by the event loop; `client_gone` by the watching thread."""

    def __init__(self, sender: Any, wanted: Collection[str]) -> None:
        """`wanted`: the outputs that the request asked for.

        No other may be sent: Triton's sender drops it without holding Python's lock, and the process dies (seen with
        2.51 through an ensemble, which asks for the outputs that it maps).
        """
        self.tokens = 0
        self._wanted = wanted
        self.end_reason: tuple[Code, str] | None = None
        self._sender = sender
        self._closed = False
        self._closing = threading.Lock()  # is_cancelled must not meet the final response on its way
        self._stream = False
        self._parts: list[str] = []
        self._prompt_tokens = 0

    def begin(self, head: str, stream: bool, prompt_tokens: int) -> None:
        self._stream, self._prompt_tokens = stream, prompt_tokens
        if head:
            self._parts.append(head)

    def add(self, output: Any) -> None:
        """Sends the new text of an engine output, or keeps it for the one response of a request without STREAM."""
        completion = output.outputs[0]
        self.tokens += len(completion.token_ids)
        if output.finished:
            usage = {
                "prompt_tokens": self._prompt_tokens,
                "completion_tokens": self.tokens,
                "total_tokens": self._prompt_tokens + self.tokens,
                "cached_tokens": output.num_cached_tokens or 0,
            }
            self._close(
                self._response(
                    TEXT_OUTPUT="".join((*self._parts, completion.text)),
                    FINISH_REASON=str(completion.finish_reason),
                    USAGE=json.dumps(usage),
                )
            )
        elif not self._stream:
            self._parts.append(completion.text)
        elif completion.text and "TEXT_OUTPUT" in self._wanted:  # a piece of a character has no text yet
            self._sender.send(self._response(TEXT_OUTPUT=completion.text))

    def fail(self, code: Code, reason: str) -> None:
        """Ends the request with an error, if it has not ended yet."""
        self._close(pb_utils.InferenceResponse(error=pb_utils.TritonError(reason, code.value)))

    def client_gone(self) -> bool:
        with self._closing:
            return not self._closed and self._sender.is_cancelled()

    def _response(self, **texts: str) -> Any:
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor(name, np.array([text.encode()], dtype=np.object_))
                for name, text in texts.items()
                if name in self._wanted
            ]
        )

    def _close(self, response: Any) -> None:
        with self._closing:
            if not self._closed:
                self._closed = True
                self._sender.send(response, flags=_FINAL)
                # It holds shared memory of Triton and dies badly if it outlives that: no frame, task or traceback may
                # keep it until the interpreter ends.
                self._sender = None
