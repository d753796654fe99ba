"""The stacks at the real engine: preview, up, unchanged second preview, and a destroy in a legal order."""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from pulumi.automation.errors import CommandError

from eks_llm.catalog.eks import KUBERNETES
from eks_llm.plan.program import find_project, run
from tests.engine import golden
from tests.engine.harness import KUBECONFIG, ROOT, SECRETS, STACKS, Stack, reference_stack, short
from tests.engine.order import CRD_OWNERS, is_deleted_by_provider, is_kubernetes_object, must_precede, waits_for
from tests.engine.schemas import problems
from tests.engine.standins import Running, running


@pytest.mark.parametrize("name", STACKS)
def test_preview_creates_the_golden_resources(
    name: str, tmp_path: Path, standins: Running, request: pytest.FixtureRequest
) -> None:
    steps = reference_stack(name, tmp_path, standins).preview()
    assert set(steps.by_urn.values()) == {"create"}
    if request.config.getoption("--update-golden"):
        golden.write(name, steps.of("create"))
    assert not (message := golden.difference(name, steps.of("create"))), message


@pytest.mark.parametrize("name", STACKS)
def test_the_plan_shows_what_the_engine_previews(name: str, tmp_path: Path, standins: Running) -> None:
    engine = reference_stack(name, tmp_path, standins).preview().of("create")
    plan = {short(item.urn) for item in run(find_project(ROOT), name).resources}
    assert plan == {urn for urn in engine if not urn.startswith("pulumi:pulumi:Stack::")}


ROLE = {"roleArn": "arn:aws:iam::111122223333:role/platform-dev", "externalId": "external-secret-0451"}


@pytest.fixture(scope="module", params=STACKS)
def risen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack after its `up`. The last test of this module destroys it."""
    with running() as standins:
        stack = reference_stack(request.param, tmp_path_factory.mktemp(request.param), standins)
        if request.param != "local":
            stack.configure({"aws:assumeRoles": json.dumps([ROLE])}, secret=True)
        stack.up()
        yield stack


def test_second_preview_is_unchanged(risen: Stack) -> None:
    assert risen.preview().changes == {}


def test_secrets_are_encrypted_in_the_state(risen: Stack) -> None:
    checkpoint = risen.checkpoint()
    assert "ciphertext" in checkpoint
    secrets = [*SECRETS.values(), ROLE["externalId"], KUBECONFIG["users"][0]["user"]["token"]]
    forms = {form for value in secrets for form in (value, b64encode(value.encode()).decode())}
    assert not [form for form in forms if form in checkpoint]


def test_every_custom_resource_has_a_known_owner(risen: Stack) -> None:
    """So that the order below is checked for every custom resource, also of an operator that is added later."""
    groups = {str(item.get("inputs", {}).get("apiVersion", "")).split("/")[0] for item in risen.resources().values()}
    assert {group for group in groups if "." in group and not group.endswith(".k8s.io")} <= CRD_OWNERS.keys()


def test_every_kubernetes_object_is_valid_on_the_clusters_version(risen: Stack) -> None:
    resources = risen.resources()
    made = [item for item in resources.values() if item["type"] == "aws:eks/cluster:Cluster"]
    version = made[0]["inputs"]["version"] if made else max(KUBERNETES)
    manifests = [item["inputs"] for item in resources.values() if is_kubernetes_object(item)]
    assert manifests
    wrong = [problem for manifest in manifests for problem in problems(manifest, version)]
    assert not wrong, "\n".join(wrong)


def test_destroys_in_a_legal_order(risen: Stack) -> None:
    state = risen.resources()
    risen.journal.events.clear()
    risen.journal.delay = 0.02
    if protected := {urn for urn, item in state.items() if item.get("protect")}:
        # The engine deletes what is not protected before it reports the refusal.
        with pytest.raises(CommandError, match="because it is protected"):
            risen.destroy()
        assert protected <= risen.resources().keys()
        risen.unprotect()
    risen.destroy()
    assert set(risen.resources()) == set()
    deleted = {event.urn: event for event in risen.journal.of("delete")}
    assert deleted.keys() == {urn for urn, item in state.items() if is_deleted_by_provider(item)}

    after = waits_for(state)
    rules = list(must_precede(state))
    # Of a cluster that exists, only the services and their namespace are the stack's.
    in_aws = any(item["type"].startswith("aws:") for item in state.values())
    assert len({rule for rule, _, _ in rules}) == (7 if in_aws else 1), "a rule found nothing to check"
    wrong = [
        f"{rule}: {short(first)} must be gone before {short(then)} is deleted"
        for rule, first, then in rules
        # Ordered by luck is not enough: a dependency has to say so.
        if then not in after[first] or deleted[first].ended > deleted[then].started
    ]
    assert not wrong, "\n".join(wrong)
