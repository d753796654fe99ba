"""The policy pack at the real engine: `pulumi preview --policy-pack policy`.

`./dev test` makes policy/.venv. Engine, pack and the SDK's side of it are real. Without the Python language host, which
ships only with Pulumi's installer, a stand-in starts the pack, and that the real one finds policy/.venv stays unproven.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pulumi
import pulumi_aws as aws
import pytest
from pulumi import automation as auto

from tests.engine.harness import ROOT, Stack, reference_stack
from tests.engine.standins import Running

PACK = ROOT / "policy"


@pytest.fixture(scope="module", autouse=True)
def _environment() -> None:
    """The pack's own virtualenv, made where it is missing."""
    subprocess.run([ROOT / "dev", "policy"], check=True)


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine asks a language host on PATH to start the pack."""
    if not shutil.which("pulumi-language-python"):
        script = tmp_path / "bin" / "pulumi-language-python"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/engine/language_host.py" - "$@"\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)


def preview(stack: Stack) -> list[auto.PolicyEvent]:
    """The violations that a preview reports."""
    found: list[auto.PolicyEvent] = []

    def take(event: auto.EngineEvent) -> None:
        if event.policy_event:
            found.append(event.policy_event)

    with suppress(auto.CommandError):  # how a preview with mandatory violations ends
        stack.stack.preview(on_event=take, policy_packs=[str(PACK)], suppress_progress=True)
    return found


@pytest.mark.parametrize("name", ["dev", "local", "prod"])
def test_the_committed_stacks_pass(name: str, tmp_path: Path, standins: Running) -> None:
    found = preview(reference_stack(name, tmp_path, standins))
    assert not [item.message for item in found if item.enforcement_level == "mandatory"]
    # The pack did see the components: it repeats what the preview warns of.
    assert any("loss of one node" in item.message for item in found)


def test_a_bad_stack_is_stopped(tmp_path: Path, standins: Running) -> None:
    def program() -> None:
        aws.ec2.LaunchTemplate("open", metadata_options={"http_tokens": "optional"})
        aws.s3.Bucket("bare")
        pulumi.export("x", 1)

    found = preview(Stack("bad", program, tmp_path, standins))
    stopped = {item.policy_name for item in found if item.enforcement_level == "mandatory"}
    # A launch template that names no volume gets the image's, which is not encrypted.
    assert stopped == {"imdsv2", "encrypted-node-volumes", "guarded-buckets"}
