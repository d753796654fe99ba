"""Every call into vLLM that is not its public interface, with a check that the installed vLLM has them as expected.

Several front ends on one engine is what `vllm serve --api-server-count N` does; vLLM offers no public function for it.
Verified with 0.26 (H200) and 0.27.1 (CPU, tests/serving). `probe()` fails at start, with the name of what does not fit,
where image and model repository belong to different releases.
"""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import vllm
import vllm.exceptions as vllm_exceptions
from engine_config import ConfigError, EngineConfig, unknown_key
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine import utils as engine_utils
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.executor import Executor

_EXPECTED: list[tuple[str, Any, tuple[str, ...]]] = [
    ("launch_core_engines", engine_utils.launch_core_engines, ("executor_class", "log_stats", "addresses")),
    ("AsyncLLM.from_vllm_config", AsyncLLM.from_vllm_config, ("client_addresses", "client_count", "client_index")),
    ("AsyncLLM.generate", AsyncLLM.generate, ("lora_request", "priority")),
    ("AsyncEngineArgs", AsyncEngineArgs, ("_api_process_count", "_api_process_rank")),
]


class IncompatibleVllmError(RuntimeError):
    """The installed vLLM lacks an internal that this model repository uses."""


def probe() -> None:
    """Raises IncompatibleVllmError where the installed vLLM does not fit this model repository."""
    missing = [
        f"{name} has no parameter {parameter!r}"
        for name, function, parameters in _EXPECTED
        for parameter in parameters
        if parameter not in inspect.signature(function).parameters
    ]
    if _address_function() is None:
        missing.append("vllm.v1.engine.utils has no get_engine_zmq_addresses")
    if missing:
        raise IncompatibleVllmError(
            f"vLLM {vllm.__version__} does not fit this model repository: {'; '.join(missing)}. "
            "Use an image with the version in model_repository/requirements.txt, or a model repository made for it."
        )


def check_devices(config: EngineConfig) -> None:
    """Raises ConfigError where the engine needs more GPUs than this container sees."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return
    visible = 0 if current_platform.is_unspecified() else current_platform.device_count()
    require_devices(config, visible)


def require_devices(config: EngineConfig, visible: int) -> None:
    """The rule of `check_devices`, for a given number of visible GPUs."""
    tensor, pipeline = (int(config.engine.get(f"{kind}_parallel_size", 1)) for kind in ("tensor", "pipeline"))
    if visible == 0:
        raise ConfigError("no GPU is visible: does the pod request nvidia.com/gpu, and does the node have a driver?")
    if tensor * pipeline > visible:
        raise ConfigError(
            f"engine.tensor_parallel_size {tensor} × pipeline_parallel_size {pipeline} needs {tensor * pipeline} GPUs, "
            f"but {visible} are visible"
        )


def _address_function() -> Any:
    for name in ("get_engine_zmq_addresses", "get_engine_zmq_bind_addresses"):  # until 0.31; since 0.32
        if function := getattr(engine_utils, name, None):
            return function
    return None


def engine_args(config: EngineConfig, rank: int) -> AsyncEngineArgs:
    """The arguments of vLLM for a front end (`rank` from 0) or for the engine's own process (-1)."""
    valid = {field.name for field in dataclasses.fields(AsyncEngineArgs) if not field.name.startswith("_")}
    unknown = [unknown_key(key, valid, "engine.") for key in config.engine if key not in valid]
    if unknown:
        raise ConfigError("\n".join(f"{line} in vLLM {vllm.__version__}" for line in unknown))
    arguments = AsyncEngineArgs(
        **{
            "model": config.model,
            "served_model_name": config.served_model_name,
            "shutdown_timeout": int(config.drain_seconds),  # a signal to the whole process group must not cut streams
            "enable_lora": bool(config.lora_adapters),
            **config.engine,
        }
    )
    arguments._api_process_count = config.frontends
    arguments._api_process_rank = rank
    return arguments


def vllm_config(config: EngineConfig, rank: int) -> Any:
    """The complete configuration. The usage context decides defaults, so it is the same everywhere."""
    return engine_args(config, rank).create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


@contextlib.contextmanager
def launch_engine(settings: Any, frontends: int) -> Iterator[tuple[Any, list[dict[str, str]]]]:
    """Starts the engine processes; gives their manager and one address pair per front end.

    The engine is up when the block is left; leaving it raises where the engine failed to start.
    """
    addresses = _address_function()(settings, frontends)
    arguments = (settings, Executor.get_class(settings), True, addresses)
    if len(inspect.signature(engine_utils.launch_core_engines).parameters) > 4:  # until 0.26
        arguments = (*arguments, frontends)
    with engine_utils.launch_core_engines(*arguments) as (manager, *_):
        pairs = zip(addresses.inputs, addresses.outputs, strict=True)
        yield manager, [{"input_address": receive, "output_address": send} for receive, send in pairs]


CLIENT_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    getattr(vllm_exceptions, "VLLMClientError", vllm_exceptions.VLLMNotFoundError),  # one family since 0.27
)
"""What vLLM raises where a request is at fault."""


class StepClock:
    """When the engine made the outputs that a front end is handling (monotonic seconds): vLLM tells no logger."""

    def __init__(self) -> None:
        self.at = 0.0


def connect(  # noqa: PLR0917
    settings: Any, addresses: Mapping[str, str], frontends: int, index: int, stat_logger: Any, clock: StepClock
) -> AsyncLLM:
    """A client of the running engine. Call it on the event loop that will use it."""
    engine = AsyncLLM.from_vllm_config(
        settings,
        usage_context=UsageContext.OPENAI_API_SERVER,
        stat_loggers=[stat_logger],
        client_addresses=dict(addresses),
        client_count=frontends,
        client_index=index,
    )
    receive = engine.engine_core.get_output_async

    async def receive_timed() -> Any:
        outputs = await receive()
        clock.at = outputs.timestamp
        return outputs

    engine.engine_core.get_output_async = receive_timed
    return engine
