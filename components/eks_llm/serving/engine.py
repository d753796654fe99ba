"""What vLLM is told: engine settings of a service, the profiles they start from, and the engine.json made of them.

Both runtimes read the same settings. For Triton, engine.json is mounted into the pod; for vLLM's OpenAI server the same
values become command-line flags. docs/reference/engine-json.md describes the file.
"""

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, NotRequired, TypedDict

from pydantic import Field, field_validator, model_validator

from ..catalog.models import ModelShape
from ..catalog.quantization import KV_CACHES
from ..core.faults import Fault, Faults
from ..core.model import Model
from ..core.problems import nearest
from ..core.timing import STALE_SECONDS, STALL_SECONDS, Drain
from .extra import extra_problems
from .limits import Limits
from .risks import RISKS, risky

# Arguments ----------------------------------------------------------------------------------------------------------


class Profile(Enum):
    """What a service optimises for; sets the defaults of `max_num_seqs`, `max_num_batched_tokens`, `frontends`."""

    LOW_LATENCY = "lowLatency"
    BALANCED = "balanced"
    HIGH_THROUGHPUT = "highThroughput"


class SpeculativeMethod(Enum):
    """How tokens are guessed ahead. `ngram` and `suffix` switch vLLM's asynchronous scheduling off."""

    NGRAM = "ngram"
    DRAFT_MODEL = "draft_model"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    SUFFIX = "suffix"


class SpeculativeArgs(TypedDict):
    method: SpeculativeMethod
    """`ngram` and `suffix` need no second model; `mtp` uses heads of the model itself."""
    num_speculative_tokens: int
    """Tokens guessed per step, at least 1."""
    model: NotRequired[str]
    """Folder of the draft model below the weights prefix, e.g. `draft`. Required for `draft_model`, `eagle`,
    `eagle3`."""
    prompt_lookup_max: NotRequired[int]
    """`ngram`: longest pattern looked up in the prompt, tokens. Default: vLLM's."""


class EngineArgs(TypedDict):
    max_model_len: NotRequired[int]
    """Prompt and answer together, tokens. Default: the model's longest context, at most 8,192, so that a long-context
    model does not ask for more KV cache than the GPUs hold; raise it on purpose."""
    max_num_seqs: NotRequired[int]
    """Requests that run at once. Default: the profile's. Always passed: vLLM's default depends on who starts it."""
    max_num_batched_tokens: NotRequired[int]
    """Tokens per engine step, prefill and decode together; at least `max_num_seqs`. Default: the profile's."""
    gpu_memory_utilization: NotRequired[float]
    """Share of GPU memory that vLLM may use, 0 to 1. Default 0.92, vLLM's own since 0.2x."""
    kv_cache_dtype: NotRequired[str]
    """Format of the KV cache, a key of `catalog.quantization.KV_CACHES`. Default `auto`: the model's."""
    enable_prefix_caching: NotRequired[bool]
    """Keep KV blocks of shared prompt beginnings. Default true."""
    speculative: NotRequired[SpeculativeArgs]
    """Speculative decoding. Default: none."""
    lora_adapters: NotRequired[dict[str, str]]
    """LoRA adapters: name that requests use (letters, digits and `._-`, not the service's own), and folder below the
    weights prefix. Default: none."""
    max_lora_rank: NotRequired[int]
    """Largest rank among the adapters: 1, 8, 16, 32, 64, 128, 256, 320 or 512. Default 16."""
    frontends: NotRequired[int]
    """Processes that serve requests in front of the one engine process: Triton instances, or API servers of `vllm
    serve`. Default: derived from the pod's vCPUs and the profile, see `frontends()`."""
    extra: NotRequired[dict[str, Any]]
    """Any other argument of the pinned vLLM's `AsyncEngineArgs`, in its own spelling and type, e.g.
    `{"scheduling_policy": "priority"}`; with runtime `openai` also those of `vllm serve` for tools and chat templates.
    What listens where and who may call (address, API key, TLS, …) is refused. Default: none."""
    accept_risk: NotRequired[list[str]]
    """Arguments in `extra` that are meant although they weaken what keeps clients, pods and node apart, e.g.
    `[trust_remote_code]`. Default: none, and such arguments are refused."""


@dataclass(frozen=True)
class Preset:
    """Defaults of a profile."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_frontends: int


PRESETS = {
    # Sarathi-Serve (arXiv 2403.02310) found 512 tokens per step right for strict and 2,048 for relaxed token latency.
    Profile.LOW_LATENCY: Preset(max_num_seqs=64, max_num_batched_tokens=1024, max_frontends=4),
    # What `vllm serve` takes on an A100 (vllm/engine/arg_utils.py, get_batch_defaults). Measured on an H200 with an 8B
    # model and 100 streams (docs/performance.md): half the P99 gap of 8,192 at the same rate; 512 starve prompts. Four
    # front ends have the shortest gaps with a 1B model and 200 streams.
    Profile.BALANCED: Preset(max_num_seqs=256, max_num_batched_tokens=2048, max_frontends=4),
    # In the same record 5,120 bring first tokens soonest, and 8,192 and 16,384 no more tokens; eight front ends carry
    # no more than four.
    Profile.HIGH_THROUGHPUT: Preset(max_num_seqs=512, max_num_batched_tokens=5120, max_frontends=4),
}
DEFAULT_MAX_MODEL_LEN = 8192
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM has kernels for. Source: vllm/config/lora.py."""
STRUCTURED_OUTPUTS = "xgrammar"
"""The library for structured outputs. vLLM's own choice, `auto`, is made by the first request of a pod and kept for the
others, so that two pods answer the same request differently; xgrammar is what it tries first."""


class Speculative(Model):
    method: SpeculativeMethod
    num_speculative_tokens: int = Field(ge=1)
    model: str | None = None
    prompt_lookup_max: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _model_of_the_method(self) -> "Speculative":
        wants = self.method in (SpeculativeMethod.DRAFT_MODEL, SpeculativeMethod.EAGLE, SpeculativeMethod.EAGLE3)
        if wants and not self.model:
            raise ValueError(f"method {self.method.value} needs model, the folder of its weights below the prefix")
        if self.model and not wants:
            raise ValueError(f"method {self.method.value} has no second model; remove model")
        if self.model:
            _relative(self.model)
        return self


class Engine(Model):
    max_model_len: int | None = Field(default=None, ge=2)  # a token of prompt, and one of answer
    max_num_seqs: int | None = Field(default=None, ge=1)
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)
    kv_cache_dtype: str = "auto"
    enable_prefix_caching: bool = True
    speculative: Speculative | None = None
    lora_adapters: dict[str, str] = {}
    max_lora_rank: int = 16
    frontends: int | None = Field(default=None, ge=1)
    extra: dict[str, Any] = {}
    accept_risk: list[str] = []

    @field_validator("kv_cache_dtype")
    @classmethod
    def _known_cache(cls, value: str) -> str:
        if value not in KV_CACHES:
            raise ValueError(f"unknown KV-cache format{nearest(value, list(KV_CACHES))}")
        return value

    @field_validator("lora_adapters")
    @classmethod
    def _adapter_folders(cls, adapters: dict[str, str]) -> dict[str, str]:
        for name, folder in adapters.items():
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
                raise ValueError(f"{name!r} is not an adapter's name: letters, digits and ._-, such as support-v2")
            _relative(folder)
        return adapters

    @field_validator("max_lora_rank")
    @classmethod
    def _known_rank(cls, rank: int) -> int:
        if rank not in LORA_RANKS:
            raise ValueError(f"vLLM has no kernels for this rank; use one of {', '.join(map(str, LORA_RANKS))}")
        return rank

    @field_validator("extra")
    @classmethod
    def _only_others(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if found := list(extra_problems(extra)):
            raise Faults(*found)
        return extra

    @model_validator(mode="after")
    def _risks_are_meant(self) -> "Engine":
        used = set(risky(self.extra))
        found = [
            Fault(
                "extra",
                "{risk}; if that is meant, add {name} to {key.engine.accept_risk}",
                at=name,
                name=name,
                risk=RISKS[name],
            )
            for name in sorted(used - set(self.accept_risk))
        ]
        for number, name in enumerate(self.accept_risk):
            if name not in RISKS:
                text = "{name!r} is no argument that is refused otherwise{hint}"
                found.append(Fault(f"accept_risk[{number}]", text, name=name, hint=nearest(name, list(RISKS))))
            elif name not in used:
                found.append(Fault(f"accept_risk[{number}]", "{key.engine.extra} does not set {name}", name=name))
        if found:
            raise Faults(*found)
        return self


def _relative(folder: str) -> None:
    if not re.fullmatch(r"(?!\.\.?(/|$))[\w.-]+(/(?!\.\.?(/|$))[\w.-]+)*", folder):
        raise ValueError(f"{folder!r} is not a folder below the weights prefix, such as adapters/support")


# Builders -----------------------------------------------------------------------------------------------------------


def max_model_len(engine: Engine, shape: ModelShape) -> int:
    return engine.max_model_len or min(shape.max_position, DEFAULT_MAX_MODEL_LEN)


def max_num_seqs(engine: Engine, profile: Profile) -> int:
    return engine.max_num_seqs or PRESETS[profile].max_num_seqs


def max_num_batched_tokens(engine: Engine, profile: Profile) -> int:
    """The profile's, but never below `max_num_seqs`, which vLLM refuses."""
    return engine.max_num_batched_tokens or max(PRESETS[profile].max_num_batched_tokens, max_num_seqs(engine, profile))


def frontends(engine: Engine, profile: Profile, vcpus: int, gpus: int) -> int:
    """Front-end processes of a pod that owns `vcpus` vCPUs of its node.

    One busy core per GPU worker and one for the engine are set aside; a front end gets two of the rest, one for Python
    and one for the server's own threads. The profile caps it: beyond that the engine process is the limit.
    """
    return engine.frontends or max(1, min(PRESETS[profile].max_frontends, (vcpus - gpus - 1) // 2))


def engine_args(
    engine: Engine,
    profile: Profile,
    shape: ModelShape,
    model_path: str,
    *,
    tensor_parallel: int,
    pipeline_parallel: int,
) -> dict[str, Any]:
    """What vLLM's `AsyncEngineArgs` takes, by name.

    `quantization` is not among them: vLLM reads the method from the checkpoint and picks the fastest kernel for it.
    """
    args: dict[str, Any] = {
        "tensor_parallel_size": tensor_parallel,
        "pipeline_parallel_size": pipeline_parallel,
        "max_model_len": max_model_len(engine, shape),
        "max_num_seqs": max_num_seqs(engine, profile),
        "max_num_batched_tokens": max_num_batched_tokens(engine, profile),
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "kv_cache_dtype": engine.kv_cache_dtype,
        "enable_prefix_caching": engine.enable_prefix_caching,
    }
    if engine.speculative:
        args["speculative_config"] = _speculative_config(engine.speculative, model_path)
    if engine.lora_adapters:
        # All adapters stay on the GPU, so that a request never waits for one to be swapped in.
        args |= {"enable_lora": True, "max_loras": len(engine.lora_adapters), "max_lora_rank": engine.max_lora_rank}
    structured = {"backend": STRUCTURED_OUTPUTS, **engine.extra.get("structured_outputs_config", {})}
    return args | engine.extra | {"structured_outputs_config": structured}


def _speculative_config(speculative: Speculative, model_path: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "method": speculative.method.value,
        "num_speculative_tokens": speculative.num_speculative_tokens,
    }
    if speculative.model:
        config["model"] = f"{model_path}/{speculative.model}"
    if speculative.prompt_lookup_max:
        config["prompt_lookup_max"] = speculative.prompt_lookup_max
    return config


def adapter_paths(engine: Engine, model_path: str) -> dict[str, str]:
    """Where each LoRA adapter lies in the container."""
    return {name: f"{model_path}/{folder}" for name, folder in engine.lora_adapters.items()}


def engine_json(
    *,
    service: str,
    model_path: str,
    args: dict[str, Any],
    adapters: dict[str, str],
    frontends: int,
    limits: Limits,
    max_queued: int,
    budget: Drain,
    metrics_port: int,
) -> dict[str, Any]:
    """The content of engine.json. Schema 1; a change that old readers would misread raises it."""
    tokens = limits.max_queued_tokens
    if tokens is None:  # a longer queue is meant to hold more
        tokens = max(args["max_num_seqs"], max_queued // 2) * args["max_model_len"]
    return {
        "schema": 1,
        "model": model_path,
        "servedModelName": service,
        "frontends": frontends,
        "engine": {**args, "max_logprobs": limits.max_logprobs},
        "loraAdapters": adapters,
        "limits": {
            "maxQueuedRequests": max_queued,
            "maxQueuedTokens": tokens,
            "requestTimeoutSeconds": round(float(limits.request_timeout)),
            **limits.per_request,
        },
        "drain": {"exitTimeoutSeconds": budget.exit_timeout},
        "health": {"stallSeconds": STALL_SECONDS, "staleSeconds": STALE_SECONDS},
        "metrics": {"port": metrics_port, "intervalSeconds": 1},
    }


def dumps(document: dict[str, Any]) -> str:
    """JSON for a ConfigMap: stable, so that only a real change rolls the pods."""
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
