"""Names of a stack's objects: unique and legal, in one stack and across the stacks of a project."""

from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest

from eks_llm.core.reserved import AWS_NAMES, aws_problem, kubernetes_problem
from eks_llm.plan.names import across, problems
from eks_llm.plan.program import PlanError, find_project, run
from eks_llm.plan.recorder import record
from eks_llm.serving.service import InferenceService
from tests.unit.serving import on_cluster, service_args
from tests.unit.test_existing_cluster import platform as existing
from tests.unit.test_settings import platform
from tests.unit.test_settings import problems as refusals

ROOT = Path(__file__).parents[2]


def found(program: Any) -> list[str]:
    return list(problems(record(program)))


# One stack ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["dev", "local", "prod"])
def test_the_committed_stacks_have_sound_names(stack: str) -> None:
    assert run(find_project(ROOT), stack).resources


def services(*names: str) -> dict[str, Any]:
    content = platform()
    service = content["services"].pop("llama")
    content["services"] = {name: {**service, "weights": f"s3://acme-weights/{name}/"} for name in names}
    return content


def test_a_headless_service_and_another_services_own_have_one_name() -> None:
    line = (
        "Pulumi.prod.yaml: platform.services.llama-pods: its Service and the headless Service of services.llama have "
        "one name, 'llama-pods'; rename one of the two"
    )
    assert line in refusals(services("llama", "llama-pods"))
    assert line in refusals(services("llama-pods", "llama"))


def test_kubernetes_makes_an_account_called_default() -> None:
    assert [
        line
        for line in refusals(services("default"))
        if "platform.services.default: its ServiceAccount would be called 'default' too" in line
    ]


@pytest.mark.parametrize(
    ("namespace", "message"),
    [
        ("default", "'default': Kubernetes makes this namespace itself"),
        ("kube-system", "'kube-system': Kubernetes makes this namespace itself"),
        ("kube-node-lease", "'kube-node-lease': Kubernetes makes this namespace itself"),
        ("kube-inference", "'kube-inference': Kubernetes keeps names that begin with kube- for itself"),
        ("monitoring", "'monitoring' is the namespace of monitoringNamespace"),
        ("keda", "'keda' is the namespace of KEDA"),
        ("gpu-operator", "'gpu-operator' is the namespace of the GPU operator"),
    ],
)
def test_the_namespace_of_the_services_is_nobody_elses(namespace: str, message: str) -> None:
    content = existing()
    content["existingCluster"]["namespace"] = namespace
    assert [line for line in refusals(content) if f"platform.existingCluster.namespace: {message}" in line]


def test_two_components_of_one_program_make_one_service() -> None:
    def program() -> None:
        for name in ("llama", "llama-pods"):
            InferenceService(name, service_args(), on_cluster(name))

    # Each on a provider of its own is two clusters; on one it is one object.
    assert found(program) == []

    def together() -> None:
        options = on_cluster()
        for name in ("llama", "llama-pods"):
            InferenceService(name, service_args(), options)

    assert found(together) == [
        'InferenceService "llama" and InferenceService "llama-pods" both make the Service inference/llama-pods: only '
        "one of them can exist; give one another name"
    ]


def test_objects_of_a_programs_own_are_looked_at_too() -> None:
    def program() -> None:
        for resource, name in (("a", "same"), ("b", "same"), ("c", "Wrong_Name"), ("d", "kube-root-ca.crt")):
            k8s.core.v1.ConfigMap(resource, metadata={"name": name, "namespace": "n"})
        k8s.core.v1.ConfigMap("generated", metadata={"namespace": "n"})
        k8s.core.v1.ServiceAccountPatch("patch", metadata={"name": "default", "namespace": "n"})
        k8s.core.v1.Secret("s", metadata={"name": pulumi.Output.secret("same"), "namespace": "n"})
        aws.cloudwatch.LogGroup("l", name="aws/mine")
        aws.iam.Role("r" * 60, assume_role_policy="{}")
        aws.iam.Role("fine", assume_role_policy="{}")
        aws.s3.Bucket("x", bucket="models")
        aws.s3.Bucket("y", bucket="models")

    assert found(program) == [
        'ConfigMap "a" and ConfigMap "b" both make the ConfigMap n/same: only one of them can exist; give one another '
        "name",
        "ConfigMap \"c\": 'Wrong_Name' as the name of a ConfigMap: not a name of its kind: up to 253 lower-case "
        "letters, digits and '-'; give it another name",
        "ConfigMap \"d\": 'kube-root-ca.crt' as the name of a ConfigMap: Kubernetes makes one of this name in every "
        "namespace itself; give it another name",
        "LogGroup \"l\": 'aws/mine' as the name of a LogGroup: not a name of its kind, which has the form "
        "(?!aws/)[\\w./#-]+; give it another name",
        f"Role \"{'r' * 60}\": '{'r' * 60}' as the name of a Role: 68 characters with a random end; at most 64; give "
        "it another name",
        'Bucket "x" and Bucket "y" both make the Bucket models: only one of them can exist; give one another name',
    ]


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "sound"),
    [
        ("Service", "inference", "kubernetes", True),
        ("Service", "default", "kubernetes", False),
        ("Service", "inference", "a" * 63, True),
        ("Service", "inference", "a" * 64, False),
        ("Service", "inference", "1a", False),
        ("ConfigMap", "inference", "1.a", True),
        ("PriorityClass", "", "system-a-1", False),
        ("PriorityClass", "", "systems-a-1", True),
        ("ClusterRole", "", "system:node", True),
        ("Namespace", "", "kube-x", False),
        ("Namespace", "", "1a", True),
    ],
)
def test_what_kubernetes_takes(kind: str, namespace: str, name: str, sound: bool) -> None:
    assert (kubernetes_problem(kind, namespace, name) is None) is sound


@pytest.mark.parametrize(("type_", "limit"), [(type_, limit) for type_, (_, limit, _) in AWS_NAMES.items()])
def test_what_aws_takes(type_: str, limit: int) -> None:
    assert aws_problem(type_, "x", "a" * limit) is None
    assert aws_problem(type_, "x", "a" * (limit + 1))
    assert aws_problem(type_, "a" * (limit - 8), None) is None
    assert aws_problem(type_, "a" * (limit - 7), None)


# Across stacks ------------------------------------------------------------------------------------------------------


def bucket(name: str, **more: Any) -> dict[str, Any]:
    return {"p:platform": {"weights": {"bucket": name, **more}}}


def test_one_bucket_is_made_by_one_stack() -> None:
    assert list(across("dev", {"dev": bucket("b"), "prod": bucket("b"), "test": bucket("c")})) == [
        "Pulumi.dev.yaml: platform.weights.bucket: 'b' is made by this stack (create), and so does Pulumi.prod.yaml; "
        "name another bucket in one of them, or write create: false where it is made elsewhere"
    ]
    assert not list(across("dev", {"dev": bucket("b"), "prod": bucket("b", create=False)}))


def test_one_namespace_of_a_cluster_is_made_by_one_stack() -> None:
    def stack(**more: Any) -> dict[str, Any]:
        return {"p:platform": {"existingCluster": {"kubeconfig": "k", **more}}}

    (line,) = across("a", {"a": stack(), "b": stack(namespace="inference"), "c": stack(context="x")})
    assert line == (
        "Pulumi.a.yaml: platform.existingCluster.namespace: this stack makes 'inference' in the cluster of k, and so "
        "does Pulumi.b.yaml; choose another namespace in one of them"
    )


def test_the_plan_reads_the_other_stacks(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("")
    for stack in ("a", "b"):
        (tmp_path / f"Pulumi.{stack}.yaml").write_text("config: {p:platform: {weights: {bucket: models}}}\n")
    (tmp_path / "Pulumi.broken.yaml").write_text("a: [")
    with pytest.raises(PlanError, match=r"Pulumi\.b\.yaml: platform\.weights\.bucket: 'models'.*Pulumi\.a\.yaml"):
        run(find_project(tmp_path), "b")
