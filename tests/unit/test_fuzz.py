"""No raw exception: what users write is broken at random, always in the same ways, and each command answers in words.

A mutation is one to three steps away from a sound file, so that many get past the first check and meet the code
behind it. Random values of a schema, as hypothesis makes them, are refused by the first check nearly always.
"""

import copy
import json
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from eks_llm.cli import app
from embedded import logs
from embedded.process import PlatformError
from tests.unit.test_simulate_command import SCENARIO

ROOT = Path(__file__).parents[2]
WHOLE = 6
"""Runs of the whole reference program per stack."""
HUSH = "hush0451"
"""Stands for a secret: no message shows it."""

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, 5e-324, "", " ", "a", "0", "-1", "1e400",
    "x" * 5000,
    "ü", "😀", "\u202e", "\x00", "a\nb", "{}", "[]", "{key}", "{0}", "%s", "$(id)", "${x}", "../../etc", "~", "/", "//",
    "s3://", "s3://a", "arn:aws:iam::1:role/x", "http://", "http://[", "http://a:b:c", "10.0.0.0/8", "::/0",
    "1.2.3.4/33",
    "1s", "-1s", "1e99h", "0GiB", "1e30TiB", "NaN", "Infinity", "2026-10-01 00:00:00 +0000 UTC", "٣", "0 0 31 2 *",
    "* * * * *",
    [], {}, [None], [[]], {"": ""}, {"a": None}, ["a", "a"], {"a": {"b": {"c": []}}}, [1, "a", None], [{}],
    {"configJson": "x"},
    {"configJson": "../../x"}, {"configJson": []}, {"secure": HUSH}, [{"secure": HUSH}],
]  # fmt: skip
SCRAPS = [":", "- ", "\t", "'", '"', "{", "}", "[", "]", "&a ", "*a", "!!binary ", "<<: ", "---\n", "|\n", "? ", "#",
          "%",
          "\x00", "\ufeff", "\u2028", "\r", "  ", "\n", "~", ".inf", "0o9", "2026-10-01", "!!set ", "@", "`",
          "é"]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below the top."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def near(value: Any, random_: random.Random) -> Any:
    """Another value of the same kind, which gets past the checks of types and forms to the arithmetic behind them."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random_.choice([0, 1, 2, 3, 7, 8, 16, 100, 450, 1000, 10**5, 10**9, 2**31 - 1, value * 2, value - 1])
    if isinstance(value, float):
        return random_.choice([0.0, 1e-9, 0.5, 0.999, 1.0, 1.5, 1e6, value * 2])
    if isinstance(value, list):
        return random_.choice([value[:1], value * 2, value[::-1], []])
    if not isinstance(value, str):
        return value
    if number := re.match(r"\d+(\.\d+)?(?=[a-zA-Z]+$)", value):
        return random_.choice(["0", "1", "59", "90", "1000", "99999999", "0.001"]) + value[number.end() :]
    words = ["llama-3-70b-instruct", "qwen3-14b", "p5.48xlarge", "g6e.12xlarge", "g5.xlarge", "us-west-2c",
             "eu-west-1a", "fp8",
             "awq", "triton", "openai", "perZone", "none", "latency", "throughput", "onDemand", "spot"]  # fmt: skip
    return random_.choice([*words, value + "x", value[:-1], value.upper(), value.replace("2", "3")])


def changed(content: Any, random_: random.Random) -> Any:
    """`content` with one to three things wrong."""
    content = copy.deepcopy(content)
    for _ in range(random_.choice((1, 1, 2, 3))):
        known = list(places(content))
        if not known:
            break
        *parents, last = random_.choice(known)
        parent = content
        for key in parents:
            parent = parent[key]
        step = random_.randrange(12)
        if step > 5:
            parent[last] = near(parent[last], random_)
        elif step == 0:
            del parent[last]
        elif step == 1 and isinstance(parent, dict):
            parent[random_.choice(["", "a", "é", "a.b", "0", "a" * 300, "x y", str(last) + "x"])] = parent.pop(last)
        elif step == 2 and isinstance(parent[last], (dict, list)) and isinstance(parent, dict):
            parent[random_.choice(list(parent))] = parent[last]
        else:
            parent[last] = random_.choice(ODD)
    return content


def torn(text: str, random_: random.Random) -> str:
    """`text` with scraps put in, cut out, or lines out of order."""
    for _ in range(random_.choice((1, 1, 2, 4))):
        at, to = sorted((random_.randrange(len(text) + 1), random_.randrange(len(text) + 1)))
        step = random_.randrange(4)
        if step == 0:
            text = text[:at] + random_.choice(SCRAPS) + text[at:]
        elif step == 1:
            text = text[:at] + text[min(at + random_.randrange(20), len(text)) :]
        elif step == 2:
            lines = text.splitlines(keepends=True)
            random_.shuffle(lines) if random_.random() < 0.1 else lines.insert(0, lines.pop()) if lines else None
            text = "".join(lines)
        else:
            text = text[:at] + text[at:to] * 2 + text[to:]
    return text


def answer(*args: str | Path) -> str:
    """What a command says. It ends as a command does: in words, without an exception and without the secret."""
    run = CliRunner().invoke(app, [str(arg) for arg in args])
    said = run.stdout + run.stderr
    assert run.exception is None or isinstance(run.exception, SystemExit), repr(run.exception)
    assert run.exit_code in (0, 1, 2)
    assert "Traceback" not in said
    assert "--debug" not in said.partition("error ")[2], said  # what a plan says of an exception that nobody expected
    assert "site-packages" not in said
    assert HUSH not in said
    if run.exit_code:
        assert "rror" in run.stderr or run.stderr.startswith("Usage: ")
        assert len(run.stderr) < 40_000
    return said


def variants(content: Any, count: int, seed: int) -> Iterator[str]:
    """Texts of broken files, by turns of content and of form."""
    random_ = random.Random(seed)
    sound = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    for at in range(count):
        yield torn(sound, random_) if at % 3 == 2 else yaml.safe_dump(changed(content, random_), allow_unicode=True)


KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "a", "preferences": {},
    "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9", "certificate-authority-data": "aGk="}}],
    "users": [{"name": "u", "user": {"token": HUSH, "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/a", "args": ["b"],
        "env": [{"name": "A", "value": HUSH}]}}}],
}  # fmt: skip
PRICES = {
    "date": "2026-11-01",
    "regions": {"us-west-2": {"onDemand": {"p4d.24xlarge": 20.5}, "spot": {"g6e.xlarge": 1}}},
}

POLICY = {
    "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "a"},
    "spec": {
        "minReplicaCount": 1, "maxReplicaCount": 4, "pollingInterval": 15, "cooldownPeriod": 300,
        "scaleTargetRef": {"name": "a"},
        "fallback": {"failureThreshold": 3, "replicas": 2},
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {
            "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 100,
            "periodSeconds": 15}]},
            "scaleDown": {"stabilizationWindowSeconds": 300, "selectPolicy": "Min"}}}},
        "triggers": [
            {"type": "prometheus", "metricType": "AverageValue", "metadata": {
                "serverAddress": "http://p:9090", "query": "sum(vllm:num_requests_running)", "threshold": "5"}},
            {"type": "cron", "metadata": {
                "timezone": "UTC", "start": "0 8 * * 1", "end": "0 18 * * 1", "desiredReplicas": "2"}},
        ],
    },
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose program reads the stack file and makes nothing, which takes milliseconds."""
    (tmp_path / "Pulumi.yaml").write_text("name: eks-llm\nruntime: python\n")
    program = "import pulumi\nfrom eks_llm.platform import load\nload(pulumi.Config(), pulumi.get_stack())\n"
    (tmp_path / "__main__.py").write_text(program)
    (tmp_path / "infra").symlink_to(ROOT / "infra")
    (tmp_path / ".local" / "platform").mkdir(parents=True)
    (tmp_path / ".local" / "platform" / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG))
    return tmp_path


@pytest.mark.parametrize(("stack", "count"), [("dev", 150), ("prod", 75), ("local", 75)])
def test_stack_files(project: Path, stack: str, count: int) -> None:
    content = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8"))
    content["config"][f"eks-llm:{'other' if stack == 'local' else 'grafanaAdminPassword'}"] = {"secure": HUSH}
    whole = 0
    for text in variants(content, count, seed=1):
        (project / "Pulumi.x.yaml").write_text(text, encoding="utf-8")
        (project / "Pulumi.yaml").write_text("name: eks-llm\nruntime: python\n")
        if "error" not in answer("plan", "x", "--cwd", project) and whole < WHOLE:
            whole += 1  # the real program makes what the stack file asks for, which takes half a second
            (project / "Pulumi.yaml").write_text("name: eks-llm\nruntime: python\nmain: infra/\n")
            answer("plan", "x", "--cwd", project)
    assert whole == WHOLE


def test_project_files(project: Path) -> None:
    content = {
        "name": "eks-llm", "main": ".", "stackConfigDir": ".", "runtime": {"name": "python",
        "options": {"virtualenv": "v"}},
        "config": {"size": {"type": "integer", "default": 3}, "aws:region": {"value": "us-west-2"}},
    }  # fmt: skip
    (project / "Pulumi.x.yaml").write_text("config: {}\n")
    for text in variants(content, 120, seed=2):
        (project / "Pulumi.yaml").write_text(text, encoding="utf-8")
        answer("plan", "x", "--cwd", project)


def test_kubeconfigs(project: Path) -> None:
    (project / "Pulumi.x.yaml").write_text((ROOT / "Pulumi.local.yaml").read_text(encoding="utf-8"))
    for at, text in enumerate(variants(KUBECONFIG, 100, seed=3)):
        file = project / ".local" / "platform" / "kubeconfig"
        file.write_text(text, encoding="utf-8")
        answer("plan", "x", "--cwd", project)
        if at % 5 == 0:
            answer("explain", "llama", "--kubeconfig", file)


def test_price_files(project: Path) -> None:
    (project / "Pulumi.x.yaml").write_text((ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))
    for text in variants(PRICES, 60, seed=4):
        (project / "eks-llm.prices.yaml").write_text(text, encoding="utf-8")
        answer("plan", "x", "--cwd", project)


def test_scenarios_and_policies(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    for text in variants(SCENARIO, 60, seed=5):
        file.write_text(text.replace(HUSH, "x"), encoding="utf-8")  # nobody has a secret in a scenario
        answer("simulate", file)
    sound, policy = tmp_path / "sound.yaml", tmp_path / "policy.yaml"
    sound.write_text(yaml.safe_dump(SCENARIO))
    for text in variants(POLICY, 40, seed=8):
        policy.write_text(text.replace(HUSH, "x"), encoding="utf-8")
        answer("simulate", sound, "--policy", policy)


def test_shapes_of_models(tmp_path: Path) -> None:
    content = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16", "model_type": "llama", "tie_word_embeddings": False,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    }  # fmt: skip
    random_ = random.Random(6)
    file = tmp_path / "config.json"
    for at in range(120):
        whole = json.dumps(changed(content, random_)).replace(HUSH, "x")  # nobody has a secret in a config.json
        file.write_text(torn(whole, random_) if at % 3 == 2 else whole, encoding="utf-8")
        answer("advise", file, "--streams", "4", "--input", "512", "--output", "64")


WORDS = ["", "-", "--", "-h", "--help", "0", "-1", "1", "9" * 30, "1e9", "nan", "ü", "a b", "\x00", "dev", "../x",
         "/dev/null",
         "/", "us-west-2", "llama-3-8b-instruct", "820ms", "1-2", "2-1", "http://[", "http://127.0.0.1:9",
         "{}"]  # fmt: skip
OPTIONS = {
    "plan": ["--format", "text", "json", "html", "markdown", "--against", "HEAD", "--manifests", "--cwd", "--debug"],
    "advise": ["--streams", "--input", "--output", "--ttft", "--tpot", "--region", "--limit"],
    "simulate": ["--policy", "--compare", "--plot", "--json"],
    "explain": ["-n", "--kubeconfig", "--context", "--prometheus", "--format"],
    "prices": ["refresh", "--region", "--cwd"],
    "version": [],
}


def test_command_lines(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("KUBECONFIG", str(project / ".local" / "platform" / "kubeconfig"))
    (project / "Pulumi.dev.yaml").write_text((ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))
    random_ = random.Random(7)
    for _ in range(250):
        command = random_.choice(list(OPTIONS))
        known = [*OPTIONS[command], *WORDS]
        answer(command, *(random_.choice(known) for _ in range(random_.randrange(5))))


# This machine's logs ------------------------------------------------------------------------------------------------


def test_logs_hold_anything(tmp_path: Path) -> None:
    random_ = random.Random(9)
    (tmp_path / "logs" / "pods").mkdir(parents=True)
    for name in ("etcd.log", "pods/inference_llama-0_server.log", "pods/odd.log", "pods/a_b.log", "pods/a_b_c_d.log"):
        (tmp_path / "logs" / name).write_bytes(random_.randbytes(2000) + b"\n\xff\xfe\x00\r\x1b[31m\n" + b"x" * 70_000)
    for word in [None, *WORDS, "llama", "etcd", "inference/llama-0", "llama-0/server", "a/b/c/d"]:
        with suppress(PlatformError):
            found = logs.chosen(tmp_path, word)
            assert all(isinstance(line, str) for _, line in logs.lines(lambda found=found: found, follow=False, tail=3))
