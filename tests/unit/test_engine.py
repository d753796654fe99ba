"""Engine settings, profiles, engine.json, and the flags of `vllm serve`."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from eks_llm.catalog.engine_arguments import VLLM
from eks_llm.catalog.images import IMAGES
from eks_llm.catalog.models import MODELS
from eks_llm.core.problems import problems
from eks_llm.core.quantities import Duration
from eks_llm.core.timing import drain
from eks_llm.serving.engine import (
    PRESETS,
    Engine,
    Profile,
    adapter_paths,
    dumps,
    engine_args,
    engine_json,
    frontends,
)
from eks_llm.serving.limits import Limits
from eks_llm.serving.observability import Slo
from eks_llm.serving.openai import flags
from eks_llm.serving.scaling import Scaling
from eks_llm.serving.service import ServiceSettings
from eks_llm.serving.targets import targets
from tests.unit import pod_modules  # noqa: F401 makes the next two importable

import engine_config  # isort: skip
from request_limits import RequestLimits  # isort: skip

SERVICE = {"model": "llama-3-8b-instruct", "weights": "s3://acme-models/llama/", "pool": "a100"}
LLAMA_8B = MODELS["llama-3-8b-instruct"]
LLAMA_70B = MODELS["llama-3.3-70b-instruct"]


def args(engine: dict[str, Any], profile: Profile = Profile.BALANCED, shape: Any = LLAMA_8B) -> dict[str, Any]:
    model = Engine.model_validate(engine)
    return engine_args(model, profile, shape, "/models/llm", tensor_parallel=2, pipeline_parallel=1)


def document(engine: dict[str, Any], limits: Limits | None = None) -> dict[str, Any]:
    model, limits = Engine.model_validate(engine), limits or Limits()
    return engine_json(
        service="llm",
        model_path="/models/llm",
        args=args(engine),
        adapters=adapter_paths(model, "/models/llm"),
        frontends=4,
        limits=limits,
        max_queued=targets(Scaling(), limits, Slo(), args(engine)["max_num_seqs"], None).max_queued,
        budget=drain(limits.request_timeout),
        metrics_port=8003,
    )


# Profiles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", Profile)
def test_batch_limits_are_always_said_because_vllm_derives_them_from_who_starts_it(profile: Profile) -> None:
    said = args({}, profile)
    assert said["max_num_seqs"] >= 1
    assert said["max_num_batched_tokens"] >= said["max_num_seqs"]  # vLLM refuses less


def test_balanced_is_what_vllm_serve_takes_on_an_a100() -> None:
    # vllm/engine/arg_utils.py, get_batch_defaults: OPENAI_API_SERVER on a GPU whose name contains a100
    said = args({}, Profile.BALANCED)
    assert (said["max_num_batched_tokens"], said["max_num_seqs"]) == (2048, 256)


def test_profiles_trade_latency_for_throughput_in_one_direction() -> None:
    low, balanced, high = (PRESETS[p] for p in (Profile.LOW_LATENCY, Profile.BALANCED, Profile.HIGH_THROUGHPUT))
    assert low.max_num_batched_tokens < balanced.max_num_batched_tokens < high.max_num_batched_tokens
    assert low.max_num_seqs < balanced.max_num_seqs < high.max_num_seqs


def test_a_larger_batch_of_sequences_raises_the_token_budget_with_it() -> None:
    assert args({"maxNumSeqs": 4096}, Profile.LOW_LATENCY)["max_num_batched_tokens"] == 4096


def test_context_is_bounded_by_default_and_never_beyond_the_model() -> None:
    assert args({}, shape=LLAMA_8B)["max_model_len"] == 8192
    assert args({}, shape=LLAMA_70B)["max_model_len"] == 8192
    assert args({"maxModelLen": 131072}, shape=LLAMA_70B)["max_model_len"] == 131072


@pytest.mark.parametrize(
    ("vcpus", "gpus", "expected"),
    [
        (48, 4, 4),  # half a p4d.24xlarge: the profile's cap
        (12, 1, 4),
        (4, 1, 1),  # g5.xlarge: one worker, one engine, one front end
        (2, 1, 1),
    ],
)
def test_front_ends_leave_cores_to_the_engine_and_its_workers(vcpus: int, gpus: int, expected: int) -> None:
    assert frontends(Engine(), Profile.BALANCED, vcpus, gpus) == expected


def test_front_ends_can_be_set() -> None:
    assert frontends(Engine(frontends=2), Profile.BALANCED, 48, 4) == 2


# Arguments ----------------------------------------------------------------------------------------------------------


def test_quantization_is_left_to_vllm_which_picks_the_kernel_from_the_checkpoint() -> None:
    assert "quantization" not in args({})


def test_draft_model_and_adapters_lie_below_the_weights() -> None:
    engine = {
        "speculative": {"method": "eagle3", "numSpeculativeTokens": 3, "model": "draft"},
        "loraAdapters": {"support": "adapters/support", "sql": "adapters/sql"},
        "maxLoraRank": 32,
    }
    said = args(engine)
    assert said["speculative_config"] == {"method": "eagle3", "num_speculative_tokens": 3, "model": "/models/llm/draft"}
    assert (said["enable_lora"], said["max_loras"], said["max_lora_rank"]) == (True, 2, 32)
    assert document(engine)["loraAdapters"]["sql"] == "/models/llm/adapters/sql"


def test_ngram_needs_no_second_model() -> None:
    engine = {"speculative": {"method": "ngram", "numSpeculativeTokens": 4, "promptLookupMax": 5}}
    assert args(engine)["speculative_config"]["prompt_lookup_max"] == 5


def test_a_risk_that_is_named_is_taken() -> None:
    engine = {"extra": {"trust_remote_code": True, "worker_cls": "auto"}, "acceptRisk": ["trust_remote_code"]}
    assert args(engine)["trust_remote_code"] is True
    assert args({"extra": {"trust_remote_code": False}})["trust_remote_code"] is False


def test_any_other_argument_of_vllm_passes_through() -> None:
    assert args({"extra": {"scheduling_policy": "priority"}})["scheduling_policy"] == "priority"


# engine.json --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [{}, {"loraAdapters": {"sql": "sql"}, "extra": {"seed": 1}}])
def test_the_model_repository_accepts_the_file(engine: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "engine.json"
    file.write_text(dumps(document(engine)))
    config = engine_config.load(file)
    assert (config.served_model_name, config.frontends, config.metrics_port) == ("llm", 4, 8003)
    assert config.drain_seconds > config.limits.request_timeout_seconds
    assert config.requests == RequestLimits(), "both sides have the same defaults"
    assert config.stale_seconds * 3 < config.stall_seconds


def test_limits_of_a_request_reach_the_pod(tmp_path: Path) -> None:
    changed = {"max_sequences": 2, "max_answer_tokens": 512, "max_logprobs": 5, "media_domains": ["images.example.com"]}
    file = tmp_path / "engine.json"
    file.write_text(dumps(document({}, Limits.model_validate(changed))))
    config = engine_config.load(file)
    assert config.requests == RequestLimits(**{**changed, "media_domains": ("images.example.com",)})
    assert config.engine["max_logprobs"] == 5, "vLLM's own limit must not be the lower one"


def test_a_media_domain_is_a_host() -> None:
    with pytest.raises(ValidationError, match=r"is not a host name in small letters"):
        Limits.model_validate({"media_domains": ["https://images.example.com"]})


def test_the_library_of_structured_outputs_does_not_depend_on_the_first_request() -> None:
    assert args({})["structured_outputs_config"] == {"backend": "xgrammar"}
    chosen = args({"extra": {"structured_outputs_config": {"backend": "guidance", "reasoning_parser": "qwen3"}}})
    assert chosen["structured_outputs_config"] == {"backend": "guidance", "reasoning_parser": "qwen3"}
    kept = args({"extra": {"structured_outputs_config": {"reasoning_parser": "qwen3"}}})
    assert kept["structured_outputs_config"] == {"backend": "xgrammar", "reasoning_parser": "qwen3"}


def test_limits_bound_the_queue_even_if_nobody_sets_them() -> None:
    limits = document({})["limits"]
    queue = {"maxQueuedRequests": 512, "maxQueuedTokens": 256 * 8192, "requestTimeoutSeconds": 300}
    assert queue.items() <= limits.items()


def test_a_longer_queue_holds_more_tokens_and_a_shorter_one_no_fewer() -> None:
    """Of 1,000 requests that may wait, half may be as long as the context; of 100, more than all."""
    assert document({}, Limits(max_queued_requests=1000))["limits"]["maxQueuedTokens"] == 500 * 8192
    assert document({}, Limits(max_queued_requests=100))["limits"]["maxQueuedTokens"] == 256 * 8192


def test_limits_can_be_set_and_zero_means_no_queue() -> None:
    limits = Limits(max_queued_requests=0, max_queued_tokens=5, request_timeout=Duration(90))
    said = document({}, limits)
    assert {"maxQueuedRequests": 0, "maxQueuedTokens": 5, "requestTimeoutSeconds": 90}.items() <= said["limits"].items()
    assert said["drain"]["exitTimeoutSeconds"] == drain(90).exit_timeout


def test_the_text_depends_on_the_content_alone() -> None:
    said = document({})
    assert dumps(said) == dumps(dict(reversed(said.items())))
    assert json.loads(dumps(said)) == said


# Flags --------------------------------------------------------------------------------------------------------------


def test_flags_are_spelt_as_vllm_serve_spells_them() -> None:
    # docs.vllm.ai, "vllm serve": --x / --no-x for booleans, JSON for structures
    said = flags(
        {
            "max_model_len": 8192,
            "enable_prefix_caching": False,
            "enable_lora": True,
            "speculative_config": {"b": 1, "a": 2},
        }
    )
    assert said == [
        "--max-model-len=8192",
        "--no-enable-prefix-caching",
        "--enable-lora",
        '--speculative-config={"a": 2, "b": 1}',
    ]


def test_the_list_of_arguments_is_of_the_images_engine() -> None:
    assert {image.vllm for image in IMAGES.values() if image.vllm} == {VLLM}


def test_every_wrong_argument_is_told_at_once() -> None:
    with pytest.raises(ValidationError) as error:
        Engine.model_validate({"extra": {"enforce_eagerr": True, "seed": "1", "port": 2}})
    found = [problem.path for problem in problems(error.value, Engine)]
    assert found == ["extra.enforce_eagerr", "extra.seed", "extra.port"]


def test_arguments_of_the_right_kind_pass() -> None:
    given = {"seed": 2, "cpu_offload_gb": 4, "dtype": "half", "enforce_eager": False, "hf_overrides": {"a": 1}}
    assert Engine.model_validate({"extra": given}).extra == given


def test_arguments_of_the_server_are_for_the_runtime_that_has_one() -> None:
    tools = {"enable_auto_tool_choice": True, "tool_call_parser": "llama3_json"}
    ServiceSettings.model_validate({**SERVICE, "runtime": "openai", "engine": {"extra": tools}})
    with pytest.raises(ValidationError) as error:
        ServiceSettings.model_validate({**SERVICE, "runtime": "triton", "engine": {"extra": tools}})
    found = [str(problem) for problem in problems(error.value, ServiceSettings)]
    assert [text.partition(":")[0] for text in found] == [f"engine.extra.{key}" for key in tools]
    assert "runtime triton runs the engine alone" in found[0]


# What is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"kvCacheDtype": "fp9"}, "unknown KV-cache format; did you mean 'fp8'?"),
        ({"maxLoraRank": 20}, "no kernels for this rank; use one of 1, 8, 16"),
        ({"loraAdapters": {"a": "../other"}}, "is not a folder below the weights prefix"),
        ({"loraAdapters": {"a": "/etc"}}, "is not a folder below the weights prefix"),
        ({"speculative": {"method": "eagle", "numSpeculativeTokens": 2}}, "method eagle needs model"),
        ({"speculative": {"method": "ngram", "numSpeculativeTokens": 2, "model": "x"}}, "has no second model"),
        (
            {"loraAdapters": {"a=b": "sql"}},
            "'a=b' is not an adapter's name: letters, digits and ._-, such as support-v2",
        ),
        ({"loraAdapters": {"": "sql"}}, "'' is not an adapter's name"),
        ({"extra": {"port": 1}}, "port: cannot be set here: it belongs to the server around the engine"),
        ({"extra": {"host": "::"}}, "host: cannot be set here: it belongs to the server"),
        ({"extra": {"api_key": "secret"}}, "api_key: cannot be set here: it belongs to the server"),
        ({"extra": {"api_server_count": 2}}, "api_server_count: cannot be set here: it belongs to the server"),
        ({"extra": {"ssl_keyfile": "x"}}, "ssl_keyfile: cannot be set here: it belongs to the server"),
        ({"extra": {"data_parallel_size": 2}}, "data_parallel_size: cannot be set here: it belongs to the server"),
        ({"extra": {"seed": None}}, "seed: has no value; leave the key out for vLLM's default"),
        ({"extra": {"max_model_len": 1}}, "max_model_len: cannot be set here: set engine.maxModelLen"),
        ({"extra": {"maxModelLen": 1}}, "not spelt as vLLM spells arguments"),
        (
            {"extra": {"enforce_eagerr": True}},
            "enforce_eagerr: vLLM 0.27.1 has no such argument; did you mean 'enforce_eager'?",
        ),
        ({"extra": {"zzz": 1}}, "zzz: vLLM 0.27.1 has no such argument; its arguments are those of AsyncEngineArgs"),
        ({"extra": {"enforce_eager": "false"}}, "enforce_eager: 'false': write true or false, without quotes"),
        ({"extra": {"enforce_eager": 0}}, "enforce_eager: 0: write true or false, without quotes"),
        ({"extra": {"seed": "1"}}, "seed: '1': write a whole number, such as 2, without quotes"),
        ({"extra": {"seed": True}}, "seed: true: write a whole number"),
        ({"extra": {"seed": 2.0}}, "seed: 2.0: write a whole number"),
        ({"extra": {"cpu_offload_gb": "4GiB"}}, "cpu_offload_gb: '4GiB': write a number, such as 0.9, without quotes"),
        ({"extra": {"dtype": "float8"}}, "dtype: 'float8' is not one of auto, half, float16, bfloat16, float, float32"),
        ({"extra": {"dtype": 16}}, "dtype: 16 is not one of auto"),
        (
            {"extra": {"structured_outputs_config": "guidance"}},
            "'guidance': write a mapping",
        ),
        ({"extra": {"logits_processors": "x"}}, "logits_processors: 'x': write a list, such as [a, b]"),
        ({"extra": {"revision": 1}}, "revision: 1: write a text"),
        (
            {"extra": {"trust_remote_code": True}},
            "extra.trust_remote_code: Python code that lies beside the weights runs in the engine, with the pod's "
            "rights; if that is meant, add trust_remote_code to engine.acceptRisk",
        ),
        ({"extra": {"allowed_local_media_path": "/"}}, "requests may read the pod's files below this path"),
        (
            {"extra": {"structured_outputs_config": {"reasoning_parser_plugin": "/x.py"}}},
            "add structured_outputs_config.reasoning_parser_plugin to engine.acceptRisk",
        ),
        (
            {"extra": {"trust_remote_code": True, "worker_cls": "a.B"}, "acceptRisk": ["trust_remote_code"]},
            "extra.worker_cls: the engine runs Python code that is named here",
        ),
        ({"acceptRisk": ["trust_remote_code"]}, "acceptRisk[0]: engine.extra does not set trust_remote_code"),
        (
            {"extra": {"trust_remote_code": True}, "acceptRisk": ["trust_remote_cod"]},
            "acceptRisk[0]: 'trust_remote_cod' is no argument that is refused otherwise; did you mean "
            "'trust_remote_code'?",
        ),
        ({"gpuMemoryUtilization": 1.2}, "less than or equal to 1"),
        ({"maxNumSeqs": 0}, "greater than or equal to 1"),
    ],
)
def test_refuses(engine: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        Engine.model_validate(engine)
    assert message in str(error.value)


@pytest.mark.parametrize("value", ["0s", "500ms", "25h", "99999999h"])
def test_refuses_a_request_time_that_cannot_be_meant(value: str) -> None:
    with pytest.raises(ValidationError, match="a request takes 1s to 24h"):
        Limits.model_validate({"requestTimeout": value})


def test_refuses_a_request_time_without_unit() -> None:
    with pytest.raises(ValidationError) as error:
        Limits.model_validate({"requestTimeout": "300"})
    assert "such as 90s" in str(error.value)
