"""The command line as a user calls it."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from eks_llm.version import __version__

ROOT = Path(__file__).parents[2]
PROJECTS = ROOT / "tests" / "data" / "projects"


def eks_llm(*args: str, cwd: Path = PROJECTS / "network", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eks_llm.cli", *args],
        cwd=cwd, env=os.environ | env, capture_output=True, text=True, encoding="utf-8", check=False, timeout=60,
    )  # fmt: skip


def test_a_plan_from_another_repository(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (tmp_path / "__main__.py").write_text((PROJECTS / "network" / "__main__.py").read_text())
    (tmp_path / "helper.py").write_text("NAME = 'theirs'\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {theirs:zones: [us-west-2a, us-west-2b], theirs:nat: perZone}\n")
    done = eks_llm("plan", "dev", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Network    theirs  10.0.0.0/16 · us-west-2a, b" in done.stdout
    assert "NatGateway×2" in done.stdout
    assert "\x1b" not in done.stdout


def programs_of_the_readme() -> list[str]:
    text = (ROOT / "components" / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```(?:yaml|python)\n(.*?)```", text, re.S)


def test_the_first_program_of_the_readme(tmp_path: Path) -> None:
    project, stack, program, *_ = programs_of_the_readme()
    for name, content in (("Pulumi.yaml", project), ("Pulumi.dev.yaml", stack), ("__main__.py", program)):
        (tmp_path / name).write_text(content)
    done = eks_llm("plan", "dev", cwd=tmp_path, COLUMNS="120")
    assert done.returncode == 0, done.stderr
    assert "a100  0–2 × p4d.24xlarge · 0–16 GPUs" in done.stdout


def test_the_program_of_the_readme_with_one_stack_file(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: eks-llm\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text((ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))
    (tmp_path / "__main__.py").write_text(programs_of_the_readme()[3])
    done = eks_llm("plan", "dev", cwd=tmp_path, COLUMNS="120")
    assert done.returncode == 0, done.stderr
    assert "Network    main  10.10.0.0/16" in done.stdout


def test_json_is_alone_on_stdout_and_manifests_are_written(tmp_path: Path) -> None:
    done = eks_llm(
        "plan", "prod", "--format", "json", "--manifests", "out", "--cwd", str(PROJECTS / "platform"), cwd=tmp_path
    )
    assert json.loads(done.stdout)["stack"] == "prod"
    assert (tmp_path / "out" / "llm" / "deployment-chat.yaml").is_file()
    assert "8 Kubernetes objects written to out" in done.stderr


def test_a_failure_says_every_problem_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("")
    (tmp_path / "__main__.py").write_text(
        "import pulumi_kubernetes as k8s\nfrom eks_llm.aws.network import Network\n"
        "k8s.core.v1.Namespace('n')\nNetwork('n', {'region': 'us-west-2', 'zones': ['here', 'there'], 'cidr': 'x'})\n"
    )
    done = eks_llm("plan", "dev", "--manifests", "out", "--format", "json", cwd=tmp_path)
    assert done.returncode == 1
    refusal = json.loads(done.stdout)
    assert refusal.keys() == {"schema", "errors"}
    assert refusal["schema"] == 1
    assert [error[:15] for error in refusal["errors"]] == ['Network "n": zo', 'Network "n": ci']
    assert [line[:21] for line in done.stderr.splitlines()] == ['error Network "n": zo', 'error Network "n": ci']
    assert not (tmp_path / "out").exists()


def test_a_target_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    done = eks_llm("plan", "prod", "--manifests", str(tmp_path / "out"), cwd=PROJECTS / "platform")
    assert done.returncode == 1
    assert f"error {tmp_path / 'out'}" in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("")
    (tmp_path / "__main__.py").write_text("1 / 0\n")
    assert "Traceback" not in eks_llm("plan", "dev", cwd=tmp_path).stderr
    assert "Traceback" in eks_llm("plan", "dev", "--debug", cwd=tmp_path).stderr


def test_a_terminal_without_unicode() -> None:
    done = eks_llm("plan", "dev", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "10.0.0.0/16 ? us-west-2a, b" in done.stdout


def test_version() -> None:
    assert eks_llm("version").stdout == f"{__version__}\n"


def test_the_plugin_serves_every_component() -> None:
    from pulumi.provider.experimental.component import ComponentProvider

    listed = runpy.run_path(str(ROOT / "components" / "__main__.py"), run_name="plugin")["COMPONENTS"]
    written = {
        line.split("class ")[1].split("(")[0]
        for file in (ROOT / "components" / "eks_llm").rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("class ") and "(Component)" in line
    }
    assert [item.__name__ for item in listed] == sorted(written)
    schema = json.loads(str(ComponentProvider(listed, "eks-llm", None, __version__).schema))
    assert set(schema["resources"]) == {f"eks-llm:index:{name}" for name in written}


@pytest.mark.parametrize(("args", "status"), [([], 0), (["help"], 0), (["no-such-command"], 2)])
def test_dev_prints_help(args: list[str], status: int) -> None:
    done = subprocess.run([str(ROOT / "dev"), *args], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert "./dev plan STACK" in done.stdout + done.stderr
