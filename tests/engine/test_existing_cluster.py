"""The stack `local` at the real engine: one kubeconfig and no other, and a preview without it."""

import json
from pathlib import Path

import pytest
from pulumi.automation.errors import CommandError

from tests.engine.harness import EXISTING_CLUSTER, KUBECONFIG, Stack, reference_stack
from tests.engine.standins import Running

MESSAGE = f"platform.existingCluster.kubeconfig: {EXISTING_CLUSTER} does not exist"


@pytest.fixture
def local(tmp_path: Path, standins: Running, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """The stack, in the shell of somebody who works with another cluster."""
    other = tmp_path / "home" / ".kube" / "config"
    other.parent.mkdir(parents=True)
    production = {"name": "there", "cluster": {"server": "https://production.example:6443"}}
    other.write_text(json.dumps({**KUBECONFIG, "clusters": [production]}))
    monkeypatch.setenv("KUBECONFIG", str(other))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return reference_stack("local", tmp_path, standins)


def test_every_object_goes_to_the_one_cluster_of_the_stack_file(local: Stack) -> None:
    local.up()
    resources = local.resources()
    (urn, provider), *others = [item for item in resources.items() if item[1]["type"] == "pulumi:providers:kubernetes"]
    assert not others
    kubeconfig = json.loads(provider["inputs"]["kubeconfig"])
    assert kubeconfig["clusters"] == KUBECONFIG["clusters"]
    objects = [item for item in resources.values() if item["type"].startswith("kubernetes:")]
    assert {item["provider"].rsplit("::", 1)[0] for item in objects} == {urn}
    assert "production.example" not in local.checkpoint()


def test_a_new_address_in_the_file_updates_the_provider_only(local: Stack) -> None:
    local.up()
    moved = {"name": "there", "cluster": {"server": "https://127.0.0.1:2"}}
    (local.home / "project" / EXISTING_CLUSTER).write_text(json.dumps({**KUBECONFIG, "clusters": [moved]}))
    provider = "eks-llm:index:ExistingCluster$pulumi:providers:kubernetes::eks-llm-local-kubernetes"
    assert local.preview().changes == {provider: "update"}


def test_without_the_file_a_preview_goes_on_and_an_update_stops(local: Stack) -> None:
    (local.home / "project" / EXISTING_CLUSTER).unlink()
    steps = local.preview()
    assert set(steps.by_urn.values()) == {"create"}
    assert any(MESSAGE in warning for warning in steps.warnings)
    with pytest.raises(CommandError) as error:
        local.up()
    assert MESSAGE in str(error.value)
    assert "Traceback" not in str(error.value)
    assert not local.journal.of("create")
