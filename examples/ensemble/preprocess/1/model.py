"""Chat messages (JSON: a list of role and content) → one prompt. Put your model's own template here."""

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One response per request."""

    def execute(self, requests: list[Any]) -> list[Any]:
        return [_answer(request) for request in requests]


def _answer(request: Any) -> Any:
    try:
        messages = json.loads(pb_utils.get_input_tensor_by_name(request, "MESSAGES").as_numpy()[0])
        prompt = "".join(f"{message['role']}: {message['content']}\n" for message in messages) + "assistant:"
    except (ValueError, KeyError, TypeError) as error:
        code = pb_utils.TritonError.INVALID_ARG
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"MESSAGES: {error!r}", code))
    return pb_utils.InferenceResponse([pb_utils.Tensor("PROMPT", np.array([prompt.encode()], dtype=np.object_))])
