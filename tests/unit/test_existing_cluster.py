"""Services in a cluster that exists: what the stack file may say, which kubeconfig is used, what the program makes."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from eks_llm.core.problems import InvalidArgs
from eks_llm.core.secrets import SECRET
from eks_llm.plan import render, report
from eks_llm.plan.diff import compare
from eks_llm.plan.recorder import Recording, record
from eks_llm.platform import kubeconfig
from eks_llm.serving.existing_cluster import ExistingCluster
from tests.unit.test_settings import ROOT, drop, problems, put, settings

FILE = "clusters/team.yaml"


def platform() -> dict[str, Any]:
    """A small sound platform to break."""
    return {
        "existingCluster": {"kubeconfig": FILE, "prometheusUrl": "http://prometheus-operated.monitoring.svc:9090"},
        "gpuPools": {"a100": {"instanceType": "p4d.24xlarge", "nodes": 1}},
        "services": {
            "llama": {
                "model": "llama-3-8b-instruct",
                "weights": "s3://acme-weights/llama/",
                "pool": "a100",
                "runtime": "openai",
                "tensorParallel": 2,
                "scaling": {"min": 1, "max": 4},
            }
        },
    }


def team() -> dict[str, Any]:
    """A kubeconfig of two clusters, the current one with everything that may be a path."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [
            {"name": "a", "context": {"cluster": "ca", "user": "ua"}},
            {"name": "b", "context": {"cluster": "cb", "user": "ub"}},
        ],
        "clusters": [
            {"name": "ca", "cluster": {"server": "https://a.example:6443", "certificate-authority": "pki/ca.crt"}},
            {"name": "cb", "cluster": {"server": "https://b.example:6443", "certificate-authority-data": "Q0E="}},
        ],
        "users": [
            {"name": "ua", "user": {"client-certificate": "/pki/a.crt", "client-key": "pki/a.key"}},
            {"name": "ub", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}}},
        ],
    }


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the kubeconfig, in place of this one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "infra").symlink_to(ROOT / "infra")
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(yaml.safe_dump(team()))
    return tmp_path


def program(content: Any, *, preview: bool = True, **config: Any) -> Recording:
    """What the reference program registers for a stack with this `platform` object."""
    keys = {"eks-llm:platform": content, **{key.replace("__", ":"): value for key, value in config.items()}}
    return record(lambda: runpy.run_path(str(Path.cwd() / "infra")), stack="team", config=keys, preview=preview)


# The stack file -----------------------------------------------------------------------------------------------------

NEW = {
    "network": {"cidr": "10.10.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
    "cluster": {"version": "1.35", "admins": ["arn:aws:iam::111122223333:role/admin"]},
    "weights": {"bucket": "acme-weights"},
    "monitoring": {},
    "tags": {"team": "ml"},
    "protect": True,
}
NOT_BOTH = (
    "beside existingCluster nothing is made in AWS, so this describes nothing; remove it, or remove existingCluster to "
    "make a new cluster"
)


def test_a_cluster_is_made_or_exists_but_not_both(root: Path) -> None:
    lines = problems(platform() | NEW, aws__region=None)
    assert lines == [f"Pulumi.prod.yaml: platform.{key}: {NOT_BOTH}" for key in sorted(NEW)]


def test_one_of_both_is_required(root: Path) -> None:
    content = platform()
    del content["existingCluster"]
    missing = [line for line in problems(content) if "required, but missing" in line]
    assert missing == [
        "Pulumi.prod.yaml: platform.cluster: required, but missing; or existingCluster, for a cluster that exists",
        "Pulumi.prod.yaml: platform.gpuPools.a100.zone: required, but missing",
        "Pulumi.prod.yaml: platform.network: required, but missing",
        "Pulumi.prod.yaml: platform.weights: required, but missing",
    ]


def test_sections_with_nothing_below_them_are_absent(root: Path) -> None:
    content = {**platform(), **dict.fromkeys(NEW)}
    assert settings(content, aws__region=None)[0].platform.gpu_pools["a100"].instance_type == "p4d.24xlarge"


ACCESS, POOL = "existingCluster", "gpuPools.a100"


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        (drop(f"{ACCESS}.kubeconfig"), f"{ACCESS}.kubeconfig", "required, but missing"),
        (put(f"{ACCESS}.kubeconfig", "../other"), f"{ACCESS}.kubeconfig", "neither an absolute path nor one below"),
        (put(f"{ACCESS}.kubeconfig", "~/.kube/config"), f"{ACCESS}.kubeconfig", "the home folder is not filled in"),
        (put(f"{ACCESS}.kubeconfig", "clusters"), f"{ACCESS}.kubeconfig", "clusters cannot be read (Is a directory)"),
        (put(f"{ACCESS}.context", "c"), f"{ACCESS}.kubeconfig", f"{FILE}: it has no context 'c' (known: a, b)"),
        (drop(f"{ACCESS}.prometheusUrl"), f"{ACCESS}.prometheusUrl", "required, but missing"),
        (put(f"{ACCESS}.prometheusUrl", "prometheus:9090"), f"{ACCESS}.prometheusUrl", "not an HTTP address such as"),
        (put(f"{ACCESS}.prometheusUrl", "http://u:p@h"), f"{ACCESS}.prometheusUrl", "not an HTTP address such as"),
        (put(f"{ACCESS}.namespace", "In Ference"), f"{ACCESS}.namespace", "not a namespace"),
        (put(f"{ACCESS}.promUrl", "x"), f"{ACCESS}.promUrl", "unknown key; did you mean 'prometheusUrl'?"),
        (put(f"{POOL}.instanceType", "p4d.24xlarg"), f"{POOL}.instanceType", "'p4d.24xlarge'"),
        (put(f"{POOL}.nodes", 0), f"{POOL}.nodes", "greater than or equal to 1"),
        (put(f"{POOL}.zone", "us-west-2b"), f"{POOL}.zone", "unknown key (known: instanceType, nodes)"),
        (put("gpuPools", {}), "gpuPools", "empty; services run on a pool of GPU nodes"),
        (put("services.llama.pool", "a10"), "services.llama.pool", "no pool 'a10'; did you mean 'a100'?"),
        # Five replicas of two GPUs need ten, and a p4d.24xlarge has eight.
        (
            put("services.llama.scaling.max", 5),
            f"{POOL}.nodes",
            "1 node(s) hold 8 GPUs; the services ask for 10 at their maximum (llama 5 x 2), which takes 2 nodes; add "
            "nodes to the cluster, or lower scaling.max",
        ),
    ],
)
def test_refuses(root: Path, change: Callable[[dict[str, Any]], None], path: str, message: str) -> None:
    content = platform()
    change(content)
    with pytest.raises(InvalidArgs) as error:
        settings(content, aws__region=None)
    assert [problem.path for problem in error.value.problems] == [f"platform.{path}"]
    assert message in str(error.value)


def test_signing_in_to_aws_is_refused_where_nothing_is_made_there(root: Path) -> None:
    assert problems(platform(), aws__profile="team", aws__region="mars") == [
        "Pulumi.prod.yaml: aws:profile: beside existingCluster nothing is made in AWS; remove it",
        "Pulumi.prod.yaml: aws:region: 'mars' is not an AWS region such as us-west-2",
    ]


def test_only_keys_that_services_name_are_needed_as_secrets(root: Path) -> None:
    content = platform()
    settings(content, preview=False)  # Grafana is the cluster's own
    content["services"]["llama"]["apiKeySecret"] = "apiKey"
    assert problems(content, preview=False) == [
        "Pulumi.prod.yaml: eks-llm:apiKey: not set; run: pulumi config set --secret apiKey"
    ]


# The kubeconfig -----------------------------------------------------------------------------------------------------


def test_paths_in_a_kubeconfig_start_at_its_folder(root: Path) -> None:
    """As client-go and kubectl resolve them. Source: client-go, clientcmd/loader.go."""
    folder = root / "clusters"
    content = team()
    content["users"][1]["user"]["exec"]["command"] = "./bin/token"
    (root / FILE).write_text(yaml.safe_dump(content))
    current = json.loads(kubeconfig.read(root / FILE))
    assert current["current-context"] == "a"
    assert current["clusters"] == [
        {
            "name": "ca",
            "cluster": {"server": "https://a.example:6443", "certificate-authority": str(folder / "pki/ca.crt")},
        }
    ]
    assert current["users"] == [
        {"name": "ua", "user": {"client-certificate": "/pki/a.crt", "client-key": str(folder / "pki/a.key")}}
    ]
    other = json.loads(kubeconfig.read(root / FILE, "b"))
    assert [item["name"] for item in (*other["clusters"], *other["users"])] == ["cb", "ub"]  # nothing of the other
    assert other["users"][0]["user"]["exec"]["command"] == str(folder / "bin/token")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.clear(), "not a kubeconfig: it has no contexts"),
        (lambda c: c.pop("current-context"), "it has no current-context; set context to one of a, b"),
        (lambda c: c.update({"current-context": "x"}), "it has no context 'x' (known: a, b)"),
        (lambda c: c["clusters"].pop(0), "it has no cluster 'ca', of context 'a'"),
        (lambda c: c["users"].pop(0), "it has no user 'ua', of context 'a'"),
        (
            lambda c: c["clusters"][0]["cluster"].pop("server"),
            "cluster 'ca' has no server; write its address, https://…",
        ),
        (
            lambda c: c["clusters"][0]["cluster"].update({"server": 5}),
            "cluster 'ca' has no server; write its address, https://…",
        ),
        (
            lambda c: c["clusters"][0]["cluster"].update({"certificate-authority": 5}),
            "cluster.certificate-authority: not a path; write text, in quotes",
        ),
        *(
            (
                lambda c, plugin=plugin: c["users"][0]["user"].update({"exec": plugin}),
                "user.exec: has no command; write a mapping such as {command: aws, args: [eks, get-token]}",
            )
            for plugin in ("aws", {"command": 5}, {}, ["aws"])
        ),
        (lambda c: c.update({"users": {"a": "b"}}), "users: 'dict' where a list of mappings is expected"),
    ],
)
def test_a_kubeconfig_that_leads_to_no_cluster(
    root: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    content = team()
    change(content)
    (root / FILE).write_text(yaml.safe_dump(content))
    assert problems(platform()) == [f"Pulumi.prod.yaml: platform.existingCluster.kubeconfig: {FILE}: {message}"]


@pytest.mark.parametrize("text", [b"\xff", b"a: [1", b"text", b"- a"])
def test_a_file_that_is_no_kubeconfig(root: Path, text: bytes) -> None:
    (root / FILE).write_bytes(text)
    (line,) = problems(platform())
    assert line.startswith(f"Pulumi.prod.yaml: platform.existingCluster.kubeconfig: {FILE}: not a kubeconfig: ")


def test_times_in_a_kubeconfig_stay_text_and_null_paths_are_none(root: Path) -> None:
    content = team()
    content["users"][0]["user"] |= {"exec": None, "client-key": None}
    text = yaml.safe_dump(content).replace(
        "server:", "expiry: 2026-12-01T00:00:00Z\n    day: 2026-12-01\n    server:", 1
    )
    (root / FILE).write_text(text)
    read = json.loads(kubeconfig.read(root / FILE))
    cluster = read["clusters"][0]["cluster"]
    assert (cluster["expiry"], cluster["day"]) == ("2026-12-01T00:00:00Z", "2026-12-01")
    assert "client-key" not in read["users"][0]["user"]


@pytest.mark.parametrize("value", ["!!binary aGk=", ".inf"])
def test_a_kubeconfig_with_what_json_has_not_is_refused(root: Path, value: str) -> None:
    text = yaml.safe_dump(team()).replace("server:", f"odd: {value}\n    server:", 1)
    (root / FILE).write_text(text)
    (line,) = problems(platform())
    assert "not a kubeconfig: line " in line
    assert "odd" in line


def test_without_the_file_a_preview_warns_and_an_update_stops(root: Path) -> None:
    (root / FILE).unlink()
    said = f"platform.existingCluster.kubeconfig: {FILE} does not exist"
    loaded, warnings = settings(platform())
    assert loaded.kubeconfig is None
    assert f"{said}, so this preview is without the cluster; an update needs it" in warnings
    assert problems(platform(), preview=False) == [f"Pulumi.prod.yaml: {said}"]


@pytest.fixture
def another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a user's shell and home folder say: another cluster."""
    file = tmp_path / "home" / ".kube" / "config"
    file.parent.mkdir(parents=True)
    content = team()
    content["clusters"][0]["cluster"]["server"] = "https://production.example:6443"
    file.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return file


@pytest.mark.parametrize("exists", [True, False])
def test_no_other_kubeconfig_is_used(root: Path, another: Path, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    """Without an argument the provider's SDK takes the file of `KUBECONFIG`, and the provider itself the home's."""
    if not exists:
        (root / FILE).unlink()
    loaded, _ = settings(platform())
    assert ("https://a.example:6443" in (loaded.kubeconfig or "")) is exists
    run = record(lambda: ExistingCluster("c", component_args(kubeconfig=loaded.kubeconfig or unknown())))
    # The file's text, kept as a secret, or a secret that is not known yet. The path of `another` would be readable.
    assert run.one("kubernetes").inputs["kubeconfig"] == SECRET
    assert str(another) not in json.dumps(run.one("kubernetes").inputs)


@pytest.mark.parametrize("given", ["", pulumi.Output.from_input("")])
def test_an_empty_kubeconfig_is_refused(another: Path, given: Any) -> None:
    """With an empty one the provider would look for another."""
    with pytest.raises(InvalidArgs, match=r'ExistingCluster "c": kubeconfig: empty'):
        record(lambda: ExistingCluster("c", component_args(kubeconfig=given)))


def component_args(**changes: Any) -> Any:
    pools = {"a100": {"instance_type": "p4d.24xlarge", "nodes": 1}}
    return {"kubeconfig": "{}", "identity": "c", "gpu_pools": pools, "prometheus_url": "http://p:9090", **changes}


def unknown() -> pulumi.Output[str]:
    value: Any = pulumi.UNKNOWN
    return pulumi.Output.from_input(value)


# The program --------------------------------------------------------------------------------------------------------


def test_the_program_makes_nothing_but_the_services_and_their_namespace(root: Path) -> None:
    run = program(local())
    assert {item.type.split(":")[0] for item in run.resources} == {"eks-llm", "kubernetes", "pulumi"}
    assert [item.name for item in run.of("InferenceService")] == ["tiny"]
    assert not run.of("Release")
    providers = {item.provider.rsplit("::", 1)[0] for item in run.resources if item.type.startswith("kubernetes:")}
    assert providers == {run.one("pulumi:providers:kubernetes").urn}  # none that reads the environment
    assert run.exports["cluster"] == ".local/platform/kubeconfig"
    assert run.exports["services"] == {"tiny": "http://tiny.inference.svc:8000"}
    assert run.exports["cost"]["usdPerMonth"] == {"min": 0, "expected": 0, "max": 0}
    assert run.exports["quotas"] == []


def local() -> dict[str, Any]:
    """The committed stack."""
    return yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())["config"]["eks-llm:platform"]


def test_namespaces_are_those_of_the_stack_file(root: Path) -> None:
    content = platform()
    content["existingCluster"] |= {"namespace": "llm", "monitoringNamespace": "prometheus"}
    run = program(content)
    assert run.one("Namespace").inputs["metadata"]["name"] == "llm"
    assert {item.inputs["metadata"]["namespace"] for item in run.of("Deployment")} == {"llm"}
    scrapers = run.one("NetworkPolicy").inputs["spec"]["ingress"][1]["from"][0]["namespaceSelector"]
    assert scrapers["matchExpressions"][0]["values"] == ["prometheus"]


@pytest.mark.parametrize(("keys", "regions"), [({}, []), ({"aws__region": "eu-west-1"}, ["eu-west-1"])])
def test_the_region_is_that_of_the_bucket_or_left_to_pod_identity(
    root: Path, keys: dict[str, Any], regions: list[str]
) -> None:
    pod = program(platform(), **keys).one("Deployment").inputs["spec"]["template"]["spec"]
    found = [item["value"] for item in pod["initContainers"][0]["env"] if item["name"] == "AWS_REGION"]
    assert found == regions


def test_what_stands_for_the_cluster_is_the_file_and_its_context(root: Path) -> None:
    """So another address or certificate in the file replaces nothing, and another file everything."""
    content = platform()
    assert program(content).one("kubernetes").inputs["clusterIdentifier"] == FILE
    content["existingCluster"]["context"] = "b"
    assert program(content).one("kubernetes").inputs["clusterIdentifier"] == f"{FILE}#b"


# The plan -----------------------------------------------------------------------------------------------------------


def test_a_plan_sizes_the_services_and_invents_no_cost(root: Path) -> None:
    plan = report.build(program(platform()), "eks-llm", "team")
    assert plan.needs
    # Llama-3-8B has 14.96 GiB of weights, as published; half of it on each of two GPUs.
    assert plan.needs.fit[0].weights == pytest.approx(7.48, abs=0.05)
    assert plan.needs.capacity[0].gpus_held == 8  # of a p4d.24xlarge
    assert plan.needs.capacity[0].gpus == {"min": 2, "max": 8}
    assert [(line.what, line.maximum, line.note) for line in plan.needs.bill] == [
        ("a100: 1 x p4d.24xlarge", 0, "of an existing cluster, so they are not in this stack's bill")
    ]
    assert (plan.needs.total.maximum, plan.needs.total.incomplete) == (0, False)
    assert not plan.needs.quotas
    assert not plan.needs.tokens
    assert not [warning for warning in plan.warnings if "price" in warning]
    assert plan.totals.gpus_claimed == {"min": 2, "max": 8}
    for text in (render.markdown(plan), render.as_json(plan)):
        assert "NAT" not in text
        assert "EKS" not in text
    assert "- **GPUs** services claim 2–8 with 1–4 replicas" in render.markdown(plan)


def test_a_comparison_does_not_depend_on_the_kubeconfigs_file(root: Path) -> None:
    """The other revision is planned in a folder of its own, where the file is not."""
    with_file = program(platform())
    (root / FILE).unlink()
    assert compare(program(platform()), with_file) == []


def test_old_prices_of_nodes_that_cost_nothing_are_no_matter(root: Path) -> None:
    prices = "date: 2020-01-01\nregions: {us-west-2: {onDemand: {p4d.24xlarge: 10}}}\n"
    (root / "eks-llm.prices.yaml").write_text(prices)
    loaded, warnings = settings(platform())
    assert loaded.report.cost.maximum == 0
    assert not [warning for warning in warnings if "price" in warning]
