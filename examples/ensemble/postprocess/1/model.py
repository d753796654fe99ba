"""New text → a JSON event."""

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One response per request."""

    def execute(self, requests: list[Any]) -> list[Any]:
        return [_answer(request) for request in requests]


def _answer(request: Any) -> Any:
    text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode()
    event = json.dumps({"delta": text}).encode()
    return pb_utils.InferenceResponse([pb_utils.Tensor("EVENT", np.array([event], dtype=np.object_))])
