"""Stack files: what is refused, that every problem is named at once with its key path, and what is only warned of."""

import copy
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
import yaml

from eks_llm.catalog.images import IMAGES
from eks_llm.core.problems import InvalidArgs
from eks_llm.operators.monitoring import MonitoringSettings
from eks_llm.plan.recorder import record
from eks_llm.platform import EksPlatform, Settings, load

ROOT = Path(__file__).parents[2]


def platform() -> dict[str, Any]:
    """A small sound platform to break."""
    return {
        "network": {"cidr": "10.10.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
        "cluster": {"version": "1.35", "admins": ["arn:aws:iam::111122223333:role/admin"]},
        "weights": {"bucket": "acme-weights"},
        "gpuPools": {"a100": {"instanceType": "p4d.24xlarge", "zone": "us-west-2b", "nodes": {"min": 0, "max": 2}}},
        "services": {
            "llama": {
                "model": "llama-3-8b-instruct",
                "weights": "s3://acme-weights/llama/",
                "pool": "a100",
                "runtime": "openai",
                "tensorParallel": 2,
                "scaling": {"min": 1, "max": 4, "inFlightPerReplica": 64},
            }
        },
    }


def settings(
    content: Any, *, secrets: tuple[str, ...] = (), preview: bool = True, **config: str | None
) -> tuple[Settings, list[str]]:
    """The settings of a stack with this `platform` object and these other config values, and the warnings."""
    loaded: list[Settings] = []
    full: dict[str, Any] = {"aws:region": "us-west-2", "eks-llm:platform": content}
    full |= {key.replace("__", ":"): value for key, value in config.items()}
    run = record(
        lambda: loaded.append(load(pulumi.Config(), "prod")),
        stack="prod",
        config={key: value for key, value in full.items() if value is not None},
        secret_keys=[f"eks-llm:{key}" for key in secrets],
        preview=preview,
        root=str(Path.cwd()),
    )
    return loaded[0], run.warnings


def problems(content: Any, **config: Any) -> list[str]:
    with pytest.raises(InvalidArgs) as error:
        settings(content, **config)
    return str(error.value).splitlines()


def at(content: dict[str, Any], path: str) -> tuple[Any, str]:
    *parents, last = path.split(".")
    for key in parents:
        content = content[key]
    return content, last


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        parent, key = at(content, path)
        parent[key] = value

    return change


def drop(path: str) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        parent, key = at(content, path)
        del parent[key]

    return change


POOL, SERVICE = "gpuPools.a100", "services.llama"
BAD: list[tuple[str, Callable[[dict[str, Any]], None], str, str]] = [
    # what is wrong, how, the key path that the message names, a part of the message
    ("unknown key", put(f"{SERVICE}.tensorParalel", 2), f"{SERVICE}.tensorParalel", "did you mean 'tensorParallel'?"),
    ("unknown section", put("gpuPool", {}), "gpuPool", "did you mean 'gpuPools'?"),
    ("unknown section with nothing below", put("gpuPool", None), "gpuPool", "did you mean 'gpuPools'?"),
    ("required section with nothing below", put("gpuPools", None), "gpuPools", "required, but missing"),
    ("wrong type", put(f"{POOL}.nodes.max", "two"), f"{POOL}.nodes.max", "'two': write a whole number"),
    ("not a mapping", put("services", ["llama"]), "services", "not a mapping"),
    ("bad unit", put(f"{SERVICE}.slo", {"ttftP99": "820 msec"}), f"{SERVICE}.slo.ttftP99", "ms, s, m, h"),
    ("no unit", put(f"{POOL}.rootVolume", 200), f"{POOL}.rootVolume", "MiB, GiB, TiB"),
    ("unknown model", put(f"{SERVICE}.model", "llama-3-8b-instuct"), f"{SERVICE}.model", "'llama-3-8b-instruct'"),
    ("unknown type", put(f"{POOL}.instanceType", "p4d.24xlarg"), f"{POOL}.instanceType", "'p4d.24xlarge'"),
    ("AMI without driver", put(f"{POOL}.amiType", "AL2023_x86_64_STANDARD"), f"{POOL}.amiType", "NVIDIA"),
    ("missing pool", put(f"{SERVICE}.pool", "a10"), f"{SERVICE}.pool", "did you mean 'a100'?"),
    ("TP and heads", put(f"{SERVICE}.tensorParallel", 3), f"{SERVICE}.tensorParallel", "does not divide"),
    ("TP and node", put(f"{SERVICE}.tensorParallel", 16), f"{SERVICE}.tensorParallel", "the 8 GPU(s) of a node"),
    ("nodes max < min", put(f"{POOL}.nodes", {"min": 3, "max": 2}), f"{POOL}.nodes", "min 3"),
    ("replicas max < min", put(f"{SERVICE}.scaling.min", 5), f"{SERVICE}.scaling.max", "less than min 5"),
    ("CIDRs overlap", put("cluster.serviceCidr", "10.10.0.0/20"), "cluster.serviceCidr", "overlaps network.cidr"),
    ("one zone", put("network.zones", ["us-west-2b"]), "network.zones", "at least two zones"),
    ("zone elsewhere", put("network.zones", ["us-west-2b", "us-east-1a"]), "network.zones", "not in region us-west-2"),
    ("pool's zone", put(f"{POOL}.zone", "us-west-2d"), f"{POOL}.zone", "no subnet"),
    ("block without id", put(f"{POOL}.capacity", {"kind": "capacityBlock"}), f"{POOL}.capacity", "needs the id"),
    (
        "reservation in a placement group",
        lambda c: c["gpuPools"]["a100"].update(
            capacity={"kind": "reservation", "id": "cr-0123456789abcdef0"}, placementGroup=True
        ),
        f"{POOL}.placementGroup",
        "InsufficientInstanceCapacity",
    ),
    (
        "EFA where there is none",
        lambda c: c["gpuPools"]["a100"].update(instanceType="g5.xlarge", efa=True),
        f"{POOL}.efa",
        "has no EFA",
    ),
    ("open endpoint", put("cluster.publicAccessCidrs", ["0.0.0.0/0"]), "cluster.publicAccessCidrs", "to the internet"),
    ("old Kubernetes", put("cluster.version", "1.30"), "cluster.version", "1.30"),
    ("Kubernetes as a number", put("cluster.version", 1.35), "cluster.version", 'write it in quotes, such as "1.35"'),
    ("Unicode name", lambda c: c["services"].update({"löwe": c["services"]["llama"]}), "services.löwe", "a-z"),
    ("long name", lambda c: c["services"].update({"l" * 64: c["services"]["llama"]}), f"services.{'l' * 64}", "64"),
    ("required key", drop("gpuPools"), "gpuPools", "required"),
    ("nobody is admin", put("cluster.admins", []), "cluster.admins", "at least one administrator"),
    (
        "other bucket",
        put(f"{SERVICE}.weights", "s3://other/llama/"),
        f"{SERVICE}.weights",
        "weights.bucket",
    ),
    ("not S3", put(f"{SERVICE}.weights", "/models/llama"), f"{SERVICE}.weights", "s3://"),
    ("climbing prefix", put(f"{SERVICE}.weights", "s3://acme-weights/a/../b/"), f"{SERVICE}.weights", "'..'"),
    ("AMI of another minor", put(f"{POOL}.amiRelease", "1.34.5-20260714"), f"{POOL}.amiRelease", "for Kubernetes 1.35"),
    ("endpoint twice", put("network.interfaceEndpoints", ["sts", "sts"]), "network.interfaceEndpoints", "sts"),
    ("endpoint of S3", put("network.interfaceEndpoints", ["s3"]), "network.interfaceEndpoints", "s3"),
    ("pool is a list", put("gpuPools", ["a100"]), "gpuPools", "is not a mapping from names to settings"),
    ("no pool", put("gpuPools", {}), "gpuPools", "empty; services run on a pool of GPU nodes"),
    ("absurd TP", put(f"{SERVICE}.tensorParallel", 10**12), f"{SERVICE}.tensorParallel", "does not divide"),
    ("TP true", put(f"{SERVICE}.tensorParallel", True), f"{SERVICE}.tensorParallel", "true: write a whole number"),
    ("protect as text", put("protect", "yes"), "protect", "'yes': write true or false, without quotes"),
    ("AWS's own tag", put("tags", {"aws:owner": "me"}), "tags", "AWS keeps tags that begin with aws: for itself"),
    ("nothing", put("network.zones", None), "network.zones", "nothing stands here (null); give a value, or leave"),
    ("endless list", put("services", ["x"] * 5000), "services", "'x'… is not a mapping"),
    ("too few GPUs", put(f"{SERVICE}.scaling.max", 9), f"{POOL}.nodes.max", "ask for 18"),
]


@pytest.mark.parametrize(("change", "path", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_refuses(change: Callable[[dict[str, Any]], None], path: str, message: str) -> None:
    content = platform()
    change(content)
    with pytest.raises(InvalidArgs) as error:
        settings(content)
    assert [problem.path for problem in error.value.problems] == [f"platform.{path}"]
    assert message in str(error.value)
    assert str(error.value).startswith("Pulumi.prod.yaml: ")


def test_a_sound_stack_loads() -> None:
    assert settings(platform())[0].platform.services["llama"].tensor_parallel == 2


def test_all_problems_come_at_once_also_those_that_cross_sections() -> None:
    content = platform()
    content["network"]["zone"] = 1
    content["gpuPools"]["b"] = {"instanceType": "p4d.24xlarge", "zone": "us-west-2b", "nodes": {"min": 2, "max": 1}}
    content["services"]["llama"]["pool"] = "a101"
    content["services"]["other"] = {"model": "nothing"}
    with pytest.raises(InvalidArgs) as error:
        settings(content, aws__region="mars")
    assert [problem.path for problem in error.value.problems] == [
        "aws:region",
        "platform.gpuPools.b.nodes",
        "platform.network.zone",
        "platform.services.llama.pool",
        *(f"platform.services.other.{key}" for key in ("pool", "runtime", "weights")),
    ]


@pytest.mark.parametrize("content", [None, {}, "text", []])
def test_an_empty_or_shapeless_stack_is_refused(content: Any) -> None:
    lines = problems(content)
    assert lines == [line for line in lines if line.startswith("Pulumi.prod.yaml: platform: ")]


def test_an_empty_stack_file_is_named_as_such() -> None:
    with pytest.raises(InvalidArgs) as error:
        record(lambda: load(pulumi.Config(), "prod"), stack="prod", config={})
    assert error.value.messages == [
        "Pulumi.prod.yaml: the file is empty or has no configuration; it needs aws:region and eks-llm:platform below "
        "`config:`, see docs/reference/stack-file.md"
    ]


# Keys beside `platform` ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"eks-llm__platfrom": "x"}, "eks-llm:platfrom: unknown key; did you mean 'platform'?"),
        ({"eks-llm__apiKey": "sk"}, "eks-llm:apiKey: unknown key (known: grafanaAdminPassword, platform)"),
        (
            {"aws__profle": "x"},
            "aws:profle: this program does not pass it on, so it would be ignored; did you mean 'profile'?",
        ),
        (
            {"aws__defaultTags": '{"tags": {}}'},
            "aws:defaultTags: this program does not pass it on, so it would be ignored; use platform.tags",
        ),
        (
            {"aws__assumeRoles": '[{"roleArn": "admin"}]'},
            "aws:assumeRoles[0].roleArn: 'admin': not an ARN such as arn:aws:iam::111122223333:role/platform-admin",
        ),
        (
            {"aws__allowedAccountIds": "[7]"},
            'aws:allowedAccountIds[0]: 7: not an AWS account id such as "111122223333"',
        ),
        ({"aws__region": "mars-west-2"}, "aws:region: 'mars-west-2' is not an AWS region; did you mean 'us-west-2'?"),
        (
            {"aws__region": "us-gov-west-1"},
            "aws:region: 'us-gov-west-1' is in the partition aws-us-gov, and the components write ARNs of the "
            "partition aws only",
        ),
        (
            {"aws__region": "cn-north-1"},
            "aws:region: 'cn-north-1' is in the partition aws-cn, and the components write ARNs of the partition aws "
            "only",
        ),
    ],
)
def test_refuses_other_keys(config: dict[str, Any], message: str) -> None:
    assert problems(platform(), **config) == [f"Pulumi.prod.yaml: {message}"]


def test_how_to_sign_in_reaches_the_aws_provider() -> None:
    role = {"roleArn": "arn:aws:iam::111122223333:role/deploy", "externalId": "x"}
    keys: dict[str, Any] = {"aws__profile": "infra", "aws__allowedAccountIds": "[111122223333]"}
    loaded, warnings = settings(platform(), **keys, aws__assumeRoles=json.dumps([role]))
    assert loaded.access.args() == {
        "profile": "infra",
        "assume_roles": [{"role_arn": role["roleArn"], "external_id": "x"}],
        "allowed_account_ids": ["111122223333"],
    }
    assert [warning for warning in warnings if warning.startswith("aws:profile: ")] == [
        "aws:profile: the Kubernetes provider signs in with the AWS CLI, which does not know of it: set AWS_PROFILE "
        "to a profile of that identity too"
    ]


def test_the_program_passes_the_sign_in_on() -> None:
    role = "arn:aws:iam::111122223333:role/deploy"
    config = {
        "aws:region": "us-west-2",
        "aws:profile": "infra",
        "aws:assumeRoles": [{"roleArn": role}],
        "eks-llm:platform": platform(),
    }
    run = record(lambda: runpy.run_path(str(ROOT / "infra")), stack="prod", config=config)
    provider = run.one("aws").inputs
    assert provider["profile"] == "infra"
    assert json.loads(provider["assumeRoles"]) == [{"roleArn": role}]


def test_warns_of_a_secret_that_no_service_names() -> None:
    keys: dict[str, Any] = {"eks-llm__oldKey": "k"}
    assert "eks-llm:oldKey: no service names this secret" in settings(platform(), secrets=("oldKey",), **keys)[1]


@pytest.mark.parametrize(
    ("stack", "why"),
    [
        ("x" * 30, "38 characters; at most 37, as its IAM role"),
        ("My.Stack", "a name has lower-case letters a-z, digits and '-'"),
    ],
)
def test_the_stack_names_the_cluster(stack: str, why: str) -> None:
    config = {"aws:region": "us-west-2", "eks-llm:platform": platform()}
    with pytest.raises(InvalidArgs) as error:
        record(lambda: load(pulumi.Config(), stack), stack=stack, config=config, root=str(ROOT))
    (message,) = error.value.messages
    assert f"project and stack name the cluster, 'eks-llm-{stack}': {why}" in message
    assert message.endswith("; choose another stack name")


# Shapes and prices from files ---------------------------------------------------------------------------------------

# config.json of Meta-Llama-3-8B-Instruct, the fields that count.
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip


def in_house(path: Any = "models/own.json", **more: Any) -> dict[str, Any]:
    content = platform()
    content["services"]["llama"] |= {"model": "in-house", "modelShape": {"configJson": path, **more}}
    return content


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    return tmp_path


def test_a_shape_is_read_from_a_config_json(root: Path) -> None:
    (root / "models" / "own.json").write_text(json.dumps(LLAMA))
    loaded, _ = settings(in_house())
    shape = loaded.platform.services["llama"].shape
    assert (shape.layers, shape.kv_heads, shape.head_dim) == (32, 8, 128)
    assert loaded.report.fits["llama"].weights_total == pytest.approx(14.96, abs=0.05)  # as published


@pytest.mark.parametrize(
    ("file", "shape", "message"),
    [
        (None, in_house(), "models/own.json cannot be read (No such file or directory; paths start at the repository"),
        (b"{", in_house(), "models/own.json: not JSON"),
        (b"\xff", in_house(), "models/own.json is not a text file in UTF-8"),
        (b'{"model_type": "mamba"}', in_house(), "models/own.json: model_type 'mamba' is not one of"),
        (b'{"model_type": "llama"}', in_house(), "models/own.json: num_hidden_layers is missing"),
        (b"[]", in_house(), "models/own.json: holds a list, not an object"),
        (None, in_house("models"), "models cannot be read (Is a directory"),
        (None, in_house("../own.json"), "'../own.json' is not a path below the repository's root"),
        (None, in_house(7), "7 is not a path"),
        (None, in_house(layers=3), "configJson stands alone"),
    ],
)
def test_a_config_json_that_cannot_be_used(root: Path, file: bytes | None, shape: Any, message: str) -> None:
    if file is not None:
        (root / "models" / "own.json").write_bytes(file)
    (line,) = problems(shape)
    assert line.startswith("Pulumi.prod.yaml: platform.services.llama.modelShape: ")
    assert message in line


def test_own_prices_are_in_the_bill(root: Path) -> None:
    text = "date: 2026-11-01\nregions: {us-west-2: {onDemand: {p4d.24xlarge: 10}}}\n"
    (root / "eks-llm.prices.yaml").write_text(text)
    line = settings(platform())[0].report.cost.lines[0]
    assert line.maximum == pytest.approx(10 * 730)  # 8 GPUs of one node
    assert "eks-llm.prices.yaml of 2026-11-01" in line.note


def test_own_prices_that_cannot_be_read_are_a_problem_of_the_stack(root: Path) -> None:
    (root / "eks-llm.prices.yaml").write_text("date: yesterday\n")
    (line,) = problems(platform())
    assert line.startswith("Pulumi.prod.yaml: eks-llm.prices.yaml: date: ")


# Memory and load ----------------------------------------------------------------------------------------------------


def test_a_risk_that_is_accepted_stays_a_warning() -> None:
    content = platform()
    content["services"]["llama"]["engine"] = {"extra": {"trust_remote_code": True}}
    assert any("services.llama.engine.extra.trust_remote_code: Python code" in line for line in problems(content)), (
        problems(content)
    )
    content["services"]["llama"]["engine"]["acceptRisk"] = ["trust_remote_code"]
    assert [w for w in settings(content)[1] if "engine.acceptRisk: trust_remote_code is accepted: Python code" in w]


def test_accept_memory_turns_the_refusal_into_a_warning() -> None:
    content = platform()
    # Llama-3-70B in bfloat16 is 131 GiB; two A100-40 have 79.
    content["services"]["llama"] |= {"model": "llama-3-70b-instruct"}
    assert "llama-3-70b-instruct does not fit on 2 x NVIDIA A100-SXM4-40GB" in problems(content)[0]
    content["services"]["llama"]["acceptMemory"] = True
    assert [w for w in settings(content)[1] if "accepted by acceptMemory: llama-3-70b-instruct does not fit" in w]


def test_the_expected_load_counts_in_the_bill_only() -> None:
    content = platform()
    content["services"]["llama"]["expected"] = {"replicas": 1.5, "tokensPerRequest": 1024, "tokensPerSecond": 2000}
    (service,) = settings(content)[0].report.cost.services
    assert service.assumption == "measured"
    assert service.minimum
    assert service.maximum
    assert service.expected == pytest.approx(1.5 / 2 * (service.minimum + service.maximum / 4))


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"replicas": 5}, "expected.replicas: 5 is not from scaling.min 1 to scaling.max 4"),
        ({"tokensPerRequest": 9000}, "expected.tokensPerRequest: 9000 is more than the longest request of 8192"),
        ({"tokensPerSecond": 0}, "expected.tokensPerSecond: 0: input should be greater than 0"),
    ],
)
def test_an_expected_load_that_cannot_be(expected: dict[str, Any], message: str) -> None:
    content = platform()
    content["services"]["llama"]["expected"] = expected
    assert problems(content) == [f"Pulumi.prod.yaml: platform.services.llama.{message}"]


# Secrets ------------------------------------------------------------------------------------------------------------


def test_a_secret_in_plain_text_is_refused_and_not_repeated() -> None:
    lines = problems(platform(), **{"eks-llm__grafanaAdminPassword": "hunter2"})
    assert lines == [
        "Pulumi.prod.yaml: eks-llm:grafanaAdminPassword: a secret in plain text; "
        "run: pulumi config set --secret grafanaAdminPassword"
    ]


NO_KEY_NAME = (
    "not the name of a config key, such as inferenceApiKey (up to 40 letters, digits, '-' and '_'); the API key itself "
    "is set with: pulumi config set --secret <name>"
)


@pytest.mark.parametrize(
    ("date", "handed_over"),
    [
        ("2026-10-01", "2026-10-01 00:00:00 +0000 UTC"),
        ("2026-12-14T11:30:00Z", "2026-12-14 11:30:00 +0000 UTC"),
        ("2026-12-14T11:30:00.5+05:45", "2026-12-14 11:30:00.5 +0545 +0545"),
        ("2026-12-14T11:30:00+02:00", "2026-12-14 11:30:00 +0200 CEST"),
    ],
)
@pytest.mark.parametrize("key", ["tags.since", "services.llama.weights"])
def test_a_date_without_quotes_is_refused_wherever_pulumi_made_a_time_of_it(
    key: str, date: str, handed_over: str
) -> None:
    content = platform() | {"tags": {"since": ""}}
    put(key, handed_over)(content)
    line = (
        f"Pulumi.prod.yaml: platform.{key}: Pulumi makes {handed_over!r} of a date without quotes; write it in quotes"
    )
    assert f'{line}, such as "{date}"' in problems(content)


def test_a_date_without_quotes_is_no_second_problem_of_its_key() -> None:
    content = platform()
    block = {"kind": "capacityBlock", "id": "cr-0123456789abcdef0", "endsAt": "2099-12-14 11:30:00 +0000 UTC"}
    content["gpuPools"]["a100"]["capacity"] = block
    (line,) = problems(content)
    assert line.endswith('platform.gpuPools.a100.capacity.endsAt: Pulumi makes \'2099-12-14 11:30:00 +0000 UTC\' of a '
                         'date without quotes; write it in quotes, such as "2099-12-14T11:30:00Z"')  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", NO_KEY_NAME),
        ("sk-proj-" + "Ab9" * 14, NO_KEY_NAME),
        ("p@ss word", NO_KEY_NAME),
        ("sk-live-abcdefabcdefabcdef", NO_KEY_NAME),
        ("hf_QwErTyUiOpAsDfGhJkLzXcVbNm", NO_KEY_NAME),
        ("AKIAIOSFODNN7EXAMPLE", NO_KEY_NAME),
        ("deadbeefdeadbeefdeadbeef", NO_KEY_NAME),
        ("a1b2c3d4e5f6a7b8c9d0", NO_KEY_NAME),
        ("wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY", NO_KEY_NAME),
        (12345678, NO_KEY_NAME),
        (
            "platform",
            "'platform': this config key holds something else; choose a name of its own, such as inferenceApiKey",
        ),
        (
            "grafanaAdminPassword",
            "'grafanaAdminPassword': this config key holds something else; choose a name of its own, such as "
            "inferenceApiKey",
        ),
    ],
)
def test_an_api_key_is_named_not_pasted(name: Any, message: str) -> None:
    content = platform()
    content["services"]["llama"]["apiKeySecret"] = name
    assert problems(content) == [f"Pulumi.prod.yaml: platform.services.llama.apiKeySecret: {message}"]


@pytest.mark.parametrize(
    "name",
    ["inferenceApiKey", "apiKey", "api-key", "team_a_key", "keyOfTheBatchClients2026", "llama70bInstructApiKeyProd",
     "skillsApiKey", "qwen3-14b-key", "GPT4o-mini-key", "apiKeyForInternalPlatformTeamsInEurope"],
)  # fmt: skip
def test_names_of_keys(name: str) -> None:
    content = platform()
    content["services"]["llama"]["apiKeySecret"] = name
    assert [line for line in settings(content)[1] if f"config set --secret {name}" in line]


# Secrets below objects ----------------------------------------------------------------------------------------------

ROLE = {"roleArn": "arn:aws:iam::111122223333:role/admin", "externalId": "external-0451"}


@pytest.mark.parametrize("path", ["tags.owner", "services.llama.weights", "gpuPools.a100.nodes.max", "cluster.admins"])
def test_a_secret_below_platform_is_refused_unseen_by_program_and_plan(path: str) -> None:
    """The engine hands it over in clear and says only that there is one; a plan has a stand-in in its place."""
    for value, where in (("hidden-0451", "platform"), ("[secret]", f"platform.{path}")):
        content = platform() | {"tags": {}}
        put(path, value)(content)
        (line,) = problems(content, secrets=("platform",))
        assert line.startswith(f"Pulumi.prod.yaml: {where}: a secret here would end in clear text in the state")
        assert "eks-llm:grafanaAdminPassword" in line
        assert "0451" not in line


@pytest.mark.parametrize(
    "roles",
    [[ROLE], [{**ROLE, "externalId": "[secret]"}], [{"roleArn": "[secret]", "externalId": "[secret]"}], ["[secret]"],
     "[secret]"],
)  # fmt: skip
def test_a_secret_external_id_stays_secret(roles: Any) -> None:
    loaded: list[Settings] = []
    config = {"aws:region": "us-west-2", "eks-llm:platform": platform(), "aws:assumeRoles": roles}

    def program() -> None:
        loaded.append(load(pulumi.Config(), "prod"))
        aws.Provider("aws", region="us-west-2", **loaded[0].provider_args())

    run = record(program, stack="prod", config=config, secret_keys=["aws:assumeRoles"], root=str(Path.cwd()))
    assert run.one("aws").inputs["assumeRoles"] == "[secret]"
    assert "0451" not in repr(run)


def test_a_secret_of_the_sign_in_is_never_shown() -> None:
    content = {"eks-llm:platform": platform()}
    secret = {"aws:region": "r-0451", "aws:profile": "p-0451", "aws:allowedAccountIds": "a-0451",
              "aws:assumeRoles": [{"roleArn": "role-0451", "sessionName": "a 0451", "other": "o-0451"}]}  # fmt: skip
    with pytest.raises(InvalidArgs) as error:
        record(lambda: load(pulumi.Config(), "prod"), stack="prod", config=content | secret, secret_keys=list(secret))
    lines = error.value.messages
    assert "0451" not in str(lines)
    for key in ("region", "profile", "allowedAccountIds"):
        assert f"Pulumi.prod.yaml: aws:{key}: is no secret, and messages and the state show it; run: pulumi config " \
               f"set aws:{key} VALUE" in lines  # fmt: skip
    assert [line for line in lines if line.startswith("Pulumi.prod.yaml: aws:assumeRoles[0].roleArn: not right, and")]


def test_a_preview_warns_of_missing_secrets_and_an_update_stops() -> None:
    content = platform()
    content["services"]["llama"]["apiKeySecret"] = "apiKey"
    _, warnings = settings(content)
    assert [w for w in warnings if "pulumi config set --secret apiKey" in w]
    lines = problems(content, preview=False)
    assert len(lines) == 2
    assert all("pulumi config set --secret" in line for line in lines)
    secrets = {"eks-llm__apiKey": "k", "eks-llm__grafanaAdminPassword": "p"}
    settings(content, preview=False, secrets=("apiKey", "grafanaAdminPassword"), **secrets)


def test_refuses_an_image_that_is_too_new_for_the_driver_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = IMAGES["openai"].model_copy(update={"min_driver": "9999.1"})
    monkeypatch.setitem(IMAGES, "openai", newer)
    (line,) = problems(platform())
    assert line.startswith("Pulumi.prod.yaml: platform.services.llama.runtime: driver 580.")


def test_warns_of_a_pool_that_no_service_uses() -> None:
    content = platform()
    content["gpuPools"]["spare"] = copy.deepcopy(content["gpuPools"]["a100"])
    assert [w for w in settings(content)[1] if w.startswith("gpuPools.spare: no service uses this pool")]


def test_warns_of_an_image_without_a_digest() -> None:
    content = platform()
    assert not [warning for warning in settings(content)[1] if "digest" in warning]
    content["services"]["llama"]["runtime"] = "triton"
    assert [warning for warning in settings(content)[1] if "digest" in warning] == [
        "services.llama: image nvcr.io/nvidia/tritonserver:26.08-vllm-python-py3 has no digest: whoever can push this "
        "tag changes what the pods run; docs/images.md says how to pin it"
    ]


def test_the_first_up_of_the_readme_needs_no_services() -> None:
    config = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))["config"]
    del config["eks-llm:platform"]["services"]
    record(lambda: load(pulumi.Config(), "dev"), stack="dev", config=config)


def test_an_optional_section_with_nothing_below_it_is_absent() -> None:
    """What is left of `services:` when every service below it is commented out."""
    optional = dict.fromkeys(("services", "monitoring", "tags", "protect"))
    loaded, _ = settings({**platform(), **optional})
    found = loaded.platform
    assert isinstance(found, EksPlatform)
    assert (found.services, found.monitoring, found.tags, found.protect) == ({}, MonitoringSettings(), {}, False)


@pytest.mark.parametrize("stack", ["dev", "local", "prod"])
def test_the_committed_stacks_are_sound(stack: str) -> None:
    config = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8"))["config"]
    record(lambda: load(pulumi.Config(), stack), stack=stack, config=config, root=str(ROOT))
