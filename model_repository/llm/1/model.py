"""Triton's entry point of the model `llm`: one instance is one front end of the pod's engine.

frontend.py         requests → engine → responses             request_parser.py   every check of a request
request_checks.py   the checks of both runtimes               request_limits.py   how much a request may ask for
responses.py        what is sent, and the final flag          engine_config.py    engine.json
engine_process.py   the process that owns the engine          engine_client.py    a front end's line to it
vllm_internals.py   vLLM calls that are not public            pod_state.py        what the processes share
takedown.py         the end of a server that lost its engine  self_test.py     does everything fit?
"""

import json
import locale
import logging
import os
import sys
from typing import Any

import triton_python_backend_utils as pb_utils

# The stub starts in the C locale, in which vLLM cannot read its own files.
locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
logging.basicConfig(
    level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"
)

from engine_client import EngineFailedError, start_engine_process  # noqa: E402
from engine_config import ConfigError, check_model_files, load  # noqa: E402
from pod_state import RunDirectory  # noqa: E402

INPUTS = ("PROMPT", "MAX_TOKENS", "TEMPERATURE", "SAMPLING_PARAMETERS", "STREAM", "EXCLUDE_PROMPT")


class TritonPythonModel:
    """See the Python backend's documentation for when Triton calls what."""

    def initialize(self, args: dict[str, str]) -> None:
        try:
            self._start(json.loads(args["model_config"]), args["model_instance_name"], args["model_version"])
        except (ConfigError, EngineFailedError) as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def _start(self, model: dict[str, Any], instance: str, version: str) -> None:
        config, directory = load(), RunDirectory.of_environment()
        count = sum(group.get("count", 1) for group in model["instance_group"])
        if count != config.frontends:
            raise ConfigError(
                f"instance_group has count {count}, engine.json has frontends {config.frontends}: they must be equal"
            )
        index = int(instance.rsplit("_", 1)[1])
        check_model_files(config.model)  # by every instance, or the others would wait for an engine that never starts
        for adapter in config.lora_adapters.values():
            check_model_files(adapter, "adapter_config.json")
        if index == 0:
            directory.claim(version)
            start_engine_process(directory, version)
        os.environ["VLLM_RPC_BASE_PATH"] = str(directory.root)
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory.metrics)  # before prometheus_client is imported

        from frontend import FrontEnd
        from responses import Answer, Outbox

        self._answer, self._outbox = Answer, Outbox()
        self._frontend = FrontEnd(config, directory, index, version)
        self._frontend.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            tensors = {
                name: tensor.as_numpy()
                for name in INPUTS
                if (tensor := pb_utils.get_input_tensor_by_name(request, name)) is not None
            }
            answer = self._answer(request.get_response_sender(), request.requested_output_names(), self._outbox)
            self._frontend.submit(tensors, request.parameters(), request.timeout(), answer)

    def is_ready(self) -> bool:
        """Asked by Triton 26.03 and later with every readiness probe."""
        return self._frontend.ready

    def finalize(self) -> None:
        if frontend := getattr(self, "_frontend", None):
            self._outbox.close()
            frontend.stop()
