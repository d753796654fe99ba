"""`eks-llm advise`: from a model and a load to a stack file that loads."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from eks_llm.plan.recorder import record
from eks_llm.platform import Settings, load
from tests.unit.test_cli import eks_llm

LOAD = ["--ttft", "820ms", "--tpot", "42ms", "--streams", "100", "--input", "512-1200", "--output", "128-384"]
REST = """\
config:
  aws:region: us-west-2
  eks-llm:platform:
    network: {cidr: 10.10.0.0/16, zones: [us-west-2a, us-west-2b]}
    cluster: {version: "1.35", admins: ["arn:aws:iam::111122223333:role/admin"]}
    weights: {bucket: acme-weights}
"""


def pasted(advice: str) -> str:
    """A stack file with the part that `advise` printed, and what only the user knows filled in."""
    part = advice[advice.index("    gpuPools:") :]
    return REST + part.replace("ZONE", "us-west-2b").replace("BUCKET", "acme-weights")


def loaded(text: str) -> Settings:
    found: list[Settings] = []
    record(lambda: found.append(load(pulumi.Config(), "new")), stack="new", config=yaml.safe_load(text)["config"],
           root=str(Path.cwd()))  # fmt: skip
    return found[0]


def test_from_a_model_and_a_load_to_a_stack_that_loads() -> None:
    done = eks_llm("advise", "llama-3.3-70b-instruct", *LOAD)
    assert done.returncode == 0, done.stderr
    head, first = done.stdout.splitlines()[:2]
    assert head.split()[:4] == ["instance", "format", "TP", "replicas"]
    settings = loaded(pasted(done.stdout))
    (service,) = settings.platform.services.values()
    (pool,) = settings.platform.gpu_pools.values()
    assert first.split()[0] == pool.instance_type
    assert not settings.report.errors
    assert service.expected.tokens_per_request == 856 + 256  # the means of both ranges
    # 100 streams are carried, and the cost is the one that was promised.
    assert service.scaling.min * service.targets(pool.instance_type).in_flight >= 100
    assert f"{settings.report.cost.lines[0].minimum:,.0f}" == first.split()[-2]


def test_a_model_of_ones_own_is_given_by_its_config_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Qwen2.5-7B-Instruct's config.json, the fields that count.
    config = {
        "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768,
    }  # fmt: skip
    (tmp_path / "qwen-own").mkdir()
    (tmp_path / "qwen-own" / "config.json").write_text(json.dumps(config))
    done = eks_llm("advise", "qwen-own/config.json", *LOAD, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    (service,) = loaded(pasted(done.stdout)).platform.services.values()
    assert (service.model, service.shape.layers) == ("qwen-own", 28)


def changed(option: str, value: str) -> list[str]:
    at = LOAD.index(option)
    return [*LOAD[: at + 1], value, *LOAD[at + 2 :]]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["llama-3.3-70b", *LOAD],
            "neither in the catalogue nor a config.json; did you mean 'llama-3.3-70b-instruct'?",
        ),
        (["llama-3-8b-instruct", *changed("--input", "many")], "--input: 'many' is not a number of tokens such as 800"),
        (["llama-3-8b-instruct", *changed("--output", "300-200")], "--output: '300-200' is not a number of tokens"),
        (["llama-3-8b-instruct", *changed("--output", "0")], "--output: '0' is not a number of tokens"),
        (["llama-3-8b-instruct", *changed("--ttft", "820")], "--ttft: '820' is not a time such as 820ms"),
        (["llama-3-8b-instruct", *changed("--streams", "0")], "streams: 0 is not at least 1"),
        (["llama-3-8b-instruct", *changed("--input", "9000")], "llama-3-8b-instruct takes 8,192 at most"),
        (["llama-3-8b-instruct", *LOAD, "--region", "mars-north-1"], "--region: no price in 'mars-north-1' is known"),
        (["llama-3-70b-instruct", *changed("--tpot", "1ms")], "nothing with a price in us-west-2 serves 100 streams"),
    ],
)
def test_bad_questions(args: list[str], message: Any) -> None:
    done = eks_llm("advise", *args)
    assert done.returncode == 1
    assert message in done.stderr
    assert not done.stdout


def test_own_prices_of_the_project_count(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: own\nruntime: python\n")
    (tmp_path / "eks-llm.prices.yaml").write_text(
        "date: 2026-07-31\nregions: {eu-central-1: {onDemand: {p4d.24xlarge: 10}}}\n"
    )
    (tmp_path / "below").mkdir()
    done = eks_llm("advise", "llama-3.3-70b-instruct", *LOAD, "--region", "eu-central-1", cwd=tmp_path / "below")
    assert done.returncode == 0, done.stderr
    cells = done.stdout.splitlines()[1].split()
    assert (cells[0], cells[-2]) == ("p4d.24xlarge", f"{int(cells[4]) * 10 * 730:,}")
