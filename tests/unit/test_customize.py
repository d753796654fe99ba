"""Children of components as attributes, and the argument `customize`, which changes them from outside."""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from eks_llm import InferenceService, Keda, Network
from eks_llm.core.component import Component
from eks_llm.core.customize import Place, merged, problems
from eks_llm.core.problems import InvalidArgs
from eks_llm.plan.recorder import Recording, record
from eks_llm.serving.children import OWN_VARIABLES, OWN_VOLUMES
from tests.unit.components import FULL
from tests.unit.serving import REPOSITORY, on_cluster, service_args

ROOT = Path(__file__).parents[2]
CASES = [(kind, args) for kind, cases in FULL.items() for args in cases]


def case_id(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else "args"


def held(component: Component) -> Iterator[tuple[str, pulumi.Resource]]:
    """The resources that the attributes of a component hold, each with the attribute's name."""
    for key in component.CHILDREN:
        value = getattr(component, key)
        found = value.values() if isinstance(value, dict) else [value]
        yield from ((key, item) for item in found if item is not None)


# Attributes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "args"), CASES, ids=case_id)
def test_every_child_is_reached_by_an_attribute(kind: Any, args: dict[str, Any]) -> None:
    made: dict[str, Any] = {}

    def program() -> None:
        component = kind("demo", args, on_cluster())
        made.update(component=component, children=list(component._childResources))

    record(program)
    by_attribute = {id(item): key for key, item in held(made["component"])}
    assert made["children"]
    assert {id(child) for child in made["children"]} == by_attribute.keys()
    for child in made["children"]:
        assert kind.child_of("demo", child, child._name) == by_attribute[id(child)], "the name's pattern"


def test_full_arguments_make_every_kind_of_child() -> None:
    for kind, cases in FULL.items():
        found: set[str] = set()
        for args in cases:
            made: list[Any] = []
            record(lambda kind=kind, args=args, made=made: made.append(kind("demo", args, on_cluster())))
            found |= {key for key, _ in held(made[0])}
        assert found == kind.CHILDREN.keys()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", FULL, ids=case_id)
def test_what_a_component_owns_is_a_property_of_its_child(kind: Any) -> None:
    for child in kind.CHILDREN.values():
        for path in child.owned:
            first = path.partition(".")[0]
            assert not list(problems({first: None}, Place.of(child.type), "", {})), path


# Customize ----------------------------------------------------------------------------------------------------------


def service(**customize: Any) -> Recording:
    return record(lambda: InferenceService("llama", service_args(customize=customize), on_cluster()))


def pod(recording: Recording) -> dict[str, Any]:
    return recording.one("Deployment").inputs["spec"]["template"]


def test_a_pod_gets_an_annotation_beside_its_own() -> None:
    annotation = {"metadata": {"annotations": {"sidecar.istio.io/inject": "false"}}}
    changed = pod(service(deployment={"spec": {"template": annotation}}))
    annotations, before = changed["metadata"]["annotations"], pod(service())["metadata"]["annotations"]
    assert annotations == {**before, "sidecar.istio.io/inject": "false"}


def test_a_pod_gets_an_affinity_in_either_spelling() -> None:
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    for spec in ({"affinity": affinity}, {"affinity": {"node_affinity": affinity["nodeAffinity"]}}):
        found = pod(service(deployment={"spec": {"template": {"spec": spec}}}))["spec"]["affinity"]
        assert found == affinity


def test_a_pod_gets_a_sidecar_a_variable_and_a_toleration() -> None:
    spec = {
        "containers": [
            {"name": "proxy", "image": "example.com/proxy:1", "env": [{"name": "A", "value": "1"}]},
            {"name": "server", "env": [{"name": "OMP_NUM_THREADS", "value": "4"}]},
        ],
        "tolerations": [{"key": "team", "operator": "Exists"}],
    }
    before, after = pod(service())["spec"], pod(service(deployment={"spec": {"template": {"spec": spec}}}))["spec"]
    server, proxy = after["containers"]
    assert proxy["name"] == "proxy"
    assert server["args"] == before["containers"][0]["args"]
    assert server["env"] == [*before["containers"][0]["env"], {"name": "OMP_NUM_THREADS", "value": "4"}]
    assert after["tolerations"] == [*before["tolerations"], {"key": "team", "operator": "Exists"}]


def test_a_release_gets_values_of_its_chart() -> None:
    args: Any = {"customize": {"release": {"values": {"operator": {"replicaCount": 3}, "image": {"registry": "x"}}}}}
    values = record(lambda: Keda("keda", args, on_cluster())).one("Release").inputs["values"]
    assert values["operator"] == {"replicaCount": 3}
    assert values["image"] == {"registry": "x", "pullPolicy": "IfNotPresent"}


def test_all_children_of_a_kind_are_changed_and_no_others() -> None:
    args = {**FULL[Network][0], "customize": {"nat_gateways": {"tags": {"team": "llm"}}}}
    recording = record(lambda: Network("main", args))  # type: ignore[arg-type]
    assert [item.inputs["tags"].get("team") for item in recording.of("NatGateway")] == ["llm", "llm"]
    assert not [item.name for item in recording.of("Subnet") if "team" in item.inputs["tags"]]


def test_a_property_is_taken_away_with_none() -> None:
    args: Any = {"customize": {"release": {"values": {"image": None}}}}
    assert "image" not in record(lambda: Keda("keda", args, on_cluster())).one("Release").inputs["values"]


def test_what_is_known_only_later_is_merged_then() -> None:
    seen: list[Any] = []
    data = Place.of(k8s.core.v1.ConfigMap).below("data")
    record(lambda: merged(pulumi.Output.from_input({"a": 1}), {"b": 2}, data).apply(seen.append))
    assert seen == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("customize", "message"),
    [
        ({"deploymnt": {}}, "customize.deploymnt: no child of InferenceService; did you mean 'deployment'?"),
        ({"deployment": {"spce": {}}}, "customize.deployment.spce: no such property; did you mean 'spec'?"),
        (
            {"deployment": {"spec": {"template": {"spec": {"afinity": {}}}}}},
            "customize.deployment.spec.template.spec.afinity: no such property; did you mean 'affinity'?",
        ),
        ({"deployment": {"spec": {"template": []}}}, "spec.template: []: write a mapping of properties"),
        ({"deployment": {"spec": {"template": {"spec": {"volumes": {}}}}}}, "spec.volumes: {}: write a list"),
        ({"deployment": {"spec": {"template": {"spec": {"containers": [{}]}}}}}, "containers[0]: needs name, which"),
        ({"deployment": {"spec": {"selector": {"matchLabels": {"a": "b"}}}}}, "every other object finds the pods by"),
        ({"deployment": {"spec": None}}, "customize.deployment.spec: not for others to change"),
        (
            {"deployment": {"spec": {"template": {"spec": {"containers": [{"name": "server", "args": ["x"]}]}}}}},
            "containers[0].args: not for others to change: the plan sizes memory and queues by the arguments",
        ),
        (
            {
                "deployment": {
                    "spec": {"template": {"spec": {"containers": [{"name": "server", "env": [{"name": "HOME"}]}]}}}
                }
            },
            "env[0]: not for others to change: the component sets this variable",
        ),
        ({"network_policy": {"metadata": {"name": "x"}}}, "other objects refer to it"),
        ({"deployment": 5}, "customize.deployment: 5: write a mapping of keys"),
    ],
)  # fmt: skip
def test_refuses(customize: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgs) as error:
        service(**customize)
    assert message in str(error.value)


def test_all_problems_are_told_at_once_those_of_other_arguments_too() -> None:
    args = service_args(priority=-1, customize={"a": {}, "service": {"b": 1}})
    with pytest.raises(InvalidArgs) as error:
        record(lambda: InferenceService("llama", args, on_cluster()))
    assert [problem.path for problem in error.value.problems] == ["priority", "customize.a", "customize.service.b"]


def test_variables_and_volumes_that_the_component_sets_are_known() -> None:
    variables: set[str] = set()
    volumes: set[str] = set()
    for runtime in (
        {"api_key_secret": "key", "api_key": "not-a-real-one", "instance_type": "p4d.24xlarge"},
        {"runtime": "triton", "model_repository": REPOSITORY},
    ):
        args = service_args(**runtime)
        spec = pod(record(lambda args=args: InferenceService("llama", args, on_cluster())))["spec"]
        variables |= {item["name"] for item in spec["containers"][0]["env"]}
        volumes |= {item["name"] for item in spec["volumes"]}
    assert variables == set(OWN_VARIABLES)
    assert volumes == set(OWN_VOLUMES)


def test_the_reference_lists_the_children() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "reference" / "components.py"))["page"]
    assert (ROOT / "docs" / "reference" / "components.md").read_text() == page()


def test_the_package_itself_loads_no_provider() -> None:
    code = "import sys, eks_llm; print([m for m in sys.modules if m.startswith('pulumi')]); eks_llm.Network"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
