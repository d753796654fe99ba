"""One request to a deployed service, as its answer streams in: the proof that it serves."""

import json
from collections.abc import Iterator
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request

from .near import opener
from .process import PlatformError

TEXT = "The quick brown fox"


def body(triton: bool, model: str, text: str, tokens: int) -> tuple[str, dict[str, object]]:
    """Path and JSON of a streamed request to either runtime, which ignores the end-of-sequence token."""
    if triton:
        sampling = json.dumps({"ignore_eos": True})
        values = {"PROMPT": text, "MAX_TOKENS": tokens, "STREAM": True, "SAMPLING_PARAMETERS": sampling}
        return "/v2/models/llm/generate_stream", values
    values = {"model": model, "prompt": text, "max_tokens": tokens, "stream": True, "ignore_eos": True}
    return "/v1/completions", values


def stream(url: str, triton: bool, model: str, text: str = TEXT, tokens: int = 16) -> Iterator[str]:
    """The answer's pieces of text as they come.

    Raises:
        OSError: nothing listens there, or the stream breaks off.
        PlatformError: the server answers with an error.
    """
    path, values = body(triton, model, text, tokens)
    request = Request(url + path, json.dumps(values).encode(), {"Content-Type": "application/json"})
    try:
        with opener().open(request, timeout=60) as response:
            for line in response:
                if line.startswith(b"data: {"):
                    yield from _text(json.loads(line.removeprefix(b"data: ")))
    except HTTPError as error:
        answer = error.read(2000).decode(errors="replace")
        raise PlatformError(f"{url}{path} answers with status {error.code}: {answer}") from None
    except HTTPException as error:
        raise OSError(f"{url}: {type(error).__name__}") from error


def _text(event: dict[str, object]) -> Iterator[str]:
    if "error" in event:
        raise PlatformError(f"the service answers with an error: {event['error']}")
    choices = event.get("choices")
    piece = choices[0].get("text") if isinstance(choices, list) and choices else event.get("TEXT_OUTPUT")
    if piece:
        yield str(piece)
