"""`pulumi preview` from the repository's root, as a user types it.

What a user's CLI has and this one may lack is the Python language host. With it on PATH the real one is used. Without
it a stand-in runs the program by the real host's script, and then it stays unproven that the real host finds .venv and
installs infra/requirements.txt into it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from embedded.tools import TOOLS
from embedded.tools.source import go_module
from tests.engine import golden
from tests.engine.harness import ROOT, SECRETS, STACKS, project_copy, quiet_environment, short
from tests.engine.standins import Running

HOST = "pulumi-language-python"


@pytest.fixture
def root(tmp_path: Path, standins: Running, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository's root as the CLI sees it, with an environment in which it reaches only the stand-ins."""
    (tmp_path / "state").mkdir()
    for key, value in (quiet_environment(tmp_path) | standins.environment).items():
        monkeypatch.setenv(key, value)
    if not shutil.which(HOST):
        sdk = go_module("github.com/pulumi/pulumi/sdk/v3", TOOLS["pulumi"].version)
        script = sdk / "python" / "cmd" / "pulumi-language-python-exec"
        host = tmp_path / "bin" / HOST
        host.parent.mkdir()
        host.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/engine/language_host.py" "{script}" "$@"\n')
        host.chmod(0o755)
        monkeypatch.setenv("PATH", str(host.parent), prepend=os.pathsep)
    return project_copy(tmp_path / "project")


def pulumi(root: Path, *args: str) -> str:
    run = subprocess.run(["pulumi", *args], cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, f"pulumi {' '.join(args)}:\n{run.stdout}\n{run.stderr}"
    return run.stdout


@pytest.mark.parametrize("name", STACKS)
def test_preview_from_the_root_shows_the_golden_resources(root: Path, name: str) -> None:
    pulumi(root, "stack", "init", name)
    for key, value in SECRETS.items():
        pulumi(root, "config", "set", "--secret", key, value)
    steps = json.loads(pulumi(root, "preview", "--json"))["steps"]
    assert {step["op"] for step in steps} == {"create"}
    assert not (message := golden.difference(name, {short(step["urn"]) for step in steps})), message


def test_a_stack_file_with_problems_shows_them_without_a_traceback(root: Path) -> None:
    file = root / "Pulumi.dev.yaml"
    file.write_text(file.read_text().replace("instanceType: p4d.24xlarge", "instanceType: p4d.23xlarge"))
    file.write_text(file.read_text() + "    tags: {since: 2026-10-01}\n")
    pulumi(root, "stack", "init", "dev")
    run = subprocess.run(["pulumi", "preview"], cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode != 0
    assert "Pulumi.dev.yaml: platform.gpuPools.a100.instanceType: 'p4d.23xlarge'" in run.stdout
    assert "Pulumi.dev.yaml: platform.tags.since: Pulumi makes '2026-10-01 00:00:00 +0000 UTC' of a date" in run.stdout
    assert "Traceback" not in run.stdout + run.stderr
