"""`--against`: the plan of another revision in a repository of its own, and what is said to differ."""

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest
from rich.console import Console

from eks_llm.plan import html, render, report
from eks_llm.plan.against import started
from eks_llm.plan.cascade import followed
from eks_llm.plan.diff import Change, Comparison, compare
from eks_llm.plan.program import PlanError, find_project, run
from eks_llm.plan.recorder import record
from tests.unit.test_cli import PROJECTS, eks_llm

SERVED = PROJECTS / "served"


def git(root: Path, *args: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(root), *who, *args], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose stack has one service, committed."""
    for file in SERVED.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_text(file.read_text())
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def edit(root: Path, before: str, after: str) -> None:
    file = root / "__main__.py"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def planned(root: Path, ref: str = "main") -> report.Report:
    project = find_project(root)
    with started(project, "dev", ref) as pending:
        recording = run(project, "dev")
        base = pending.result()
    return report.build(recording, project.name, "dev", None, base)


def against(root: Path) -> Comparison:
    found = planned(root).against
    assert found
    assert not found.problems
    return found


def figures(found: Comparison) -> dict[str, Any]:
    return {item.what: (item.before, item.after) for item in found.figures}


def as_text(plan: report.Report) -> str:
    out = io.StringIO()
    render.text(plan, Console(file=out, width=120, highlight=False))
    return out.getvalue()


# Revisions ----------------------------------------------------------------------------------------------------------


def test_nothing_changed(repository: Path) -> None:
    done = eks_llm("plan", "dev", "--against", "main", "--format", "json", cwd=repository)
    found = json.loads(done.stdout)["against"]
    assert found["changes"] == []
    assert found["commit"] == git(repository, "rev-parse", "HEAD")
    assert "no resource changes" in as_text(planned(repository))


def test_what_an_edit_changes_in_resources_cost_gpus_and_quota(repository: Path) -> None:
    edit(repository, '"nodes": {"min": 1, "max": 1}', '"nodes": {"min": 1, "max": 3}')
    edit(repository, '"scaling": {"min": 1, "max": 2}', '"scaling": {"min": 1, "max": 6}')
    found = against(repository)
    keys = {(change.kind, key.key): (key.before, key.after) for change in found.changes for key in change.keys}
    assert {change.action for change in found.changes} == {"changed"}
    assert keys["GpuNodePool", "nodes.max"] == (1, 3)
    assert keys["NodeGroup", "scalingConfig.maxSize"] == (1, 3)
    assert keys["ScaledObject", "spec.maxReplicaCount"] == (2, 6)
    sums = figures(found)
    # A p4d: 8 GPUs, 96 vCPUs, 21.957642 USD an hour.
    assert sums["GPUs held"] == (8, 24)
    assert sums["quota L-417A185B, vCPUs"] == (96, 288)
    assert sums["USD per month, max"][1] - sums["USD per month, max"][0] == pytest.approx(2 * 21.957642 * 730, rel=0.01)


def test_the_components_of_the_other_revision_are_its_own(repository: Path) -> None:
    """A base that brings other components is run with those, though this checkout has newer ones."""
    (repository / "parts").mkdir()
    (repository / "parts" / "mine.py").write_text("NAME = 'before'\n")
    edit(repository, "import pulumi\n", "import pulumi\nimport sys; sys.path.insert(0, 'parts')\nimport mine\n")
    edit(repository, '    "chat",\n', "    mine.NAME,\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "parts")
    (repository / "parts" / "mine.py").write_text("NAME = 'after'\n")
    services = [(item.action, item.name) for item in against(repository).changes if not item.custom]
    assert services == [("added", "after"), ("removed", "before")]


def test_a_component_that_comes_or_goes_is_one_line(repository: Path) -> None:
    edit(repository, '    "chat",\n', '    "talk",\n')
    text = as_text(planned(repository))
    assert "InferenceService talk  with 12 resources" in text
    assert "Deployment talk" not in text
    assert "resources  12 added, 0 changed, 0 replaced, 12 removed" in text


def test_neither_the_checkout_nor_the_list_of_work_trees_changes(repository: Path) -> None:
    edit(repository, "llm", "llm")
    (repository / "untracked").write_text("mine")
    before = git(repository, "status", "--porcelain")
    against(repository)
    assert git(repository, "status", "--porcelain") == before
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert not list((repository / ".git").glob("worktrees/*"))


def test_hooks_of_the_repository_do_not_run(repository: Path) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch hooked\nexit 1\n")
    hook.chmod(0o755)
    assert against(repository).changes == []


def test_it_works_within_a_hook(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(repository / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / "index"))
    assert against(repository).changes == []
    assert not (repository / "index").exists()


@pytest.mark.parametrize("ref", ["nowhere", "--help"])
def test_a_ref_that_does_not_exist(repository: Path, ref: str) -> None:
    with pytest.raises(PlanError) as error:
        planned(repository, ref)
    assert f"--against: no revision {ref!r} in {repository}; fetch it first" in str(error.value)


def test_a_missing_ref_on_the_command_line(repository: Path) -> None:
    done = eks_llm("plan", "dev", "--against", "origin/main", cwd=repository)
    assert done.returncode == 1
    assert "error --against: no revision 'origin/main' in " in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("ref", ["", " "])
def test_an_empty_ref_on_the_command_line(repository: Path, ref: str) -> None:
    """As from a variable that a workflow has not set."""
    done = eks_llm("plan", "dev", "--against", ref, cwd=repository)
    assert done.returncode == 1
    assert done.stderr == "error --against: the revision is empty; name one, such as origin/main\n"
    assert not done.stdout


def test_outside_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(PlanError, match="is in no git repository"):
        planned(tmp_path)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("raise RuntimeError('not yet')", "__main__.py:1: RuntimeError: not yet"),
        ("import os; os._exit(3)", "its program broke the planner: no message"),
    ],
)
def test_a_base_that_fails_is_said_and_the_head_is_shown(repository: Path, broken: str, message: str) -> None:
    program = (repository / "__main__.py").read_text()
    (repository / "__main__.py").write_text(broken)
    git(repository, "commit", "-q", "-am", "broken")
    (repository / "__main__.py").write_text(program)
    plan = planned(repository)
    for shown in (as_text(plan), render.markdown(plan), html.page(plan), render.as_json(plan)):
        assert message in shown.replace("\\_", "_").replace("&#x27;", "'")
        assert "chat" in shown


def test_a_base_without_the_stack(repository: Path) -> None:
    git(repository, "rm", "-q", "--cached", "Pulumi.dev.yaml")
    git(repository, "commit", "-q", "-m", "no stack yet")
    text = as_text(planned(repository))
    assert "main has no such stack: it is new, and all of it is added" in text
    assert "cannot be planned" not in text
    found = planned(repository).against
    assert found
    assert found.new
    assert {change.action for change in found.changes} == {"added"}
    assert {change.name for change in found.changes if not change.custom} == {"a100", "chat"}


def test_a_base_without_the_project(repository: Path) -> None:
    git(repository, "rm", "-q", "--cached", "-r", ".")
    git(repository, "commit", "-q", "--allow-empty", "-m", "no project yet")
    found = planned(repository).against
    assert found
    assert found.new
    assert not found.problems


def test_what_helps_in_a_shallow_clone(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    clone = tmp_path_factory.mktemp("clone")
    git(clone, "clone", "-q", "--depth", "1", f"file://{repository}", "here")
    with pytest.raises(PlanError, match="the clone is shallow; fetch the rest: git fetch --unshallow"):
        planned(clone / "here", "HEAD~1")


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    for file in SERVED.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_text(file.read_text())
    git(tmp_path, "init", "-q", "-b", "main")
    with pytest.raises(PlanError, match="the repository has no commit yet"):
        planned(tmp_path, "HEAD")


@pytest.mark.parametrize(("ref", "kind"), [("HEAD:Pulumi.yaml", "blob"), ("HEAD^{tree}", "tree")])
def test_what_is_no_revision_is_called_what_it_is(repository: Path, ref: str, kind: str) -> None:
    with pytest.raises(PlanError, match=f"it is a {kind}, and a commit, branch or tag is wanted"):
        planned(repository, ref)


def test_a_head_that_fails_leaves_nothing_behind(repository: Path) -> None:
    edit(repository, '"tensor_parallel": 4', '"tensor_parallel": 3')
    with pytest.raises(PlanError, match="does not divide"):
        planned(repository)
    assert len(git(repository, "worktree", "list").splitlines()) == 1


# Differences --------------------------------------------------------------------------------------------------------


def differ(before: Callable[[], Any], after: Callable[[], Any]) -> list[Change]:
    base, head = record(before), record(after)
    return followed(compare(base, head), base, head)


def test_a_key_that_cannot_be_updated_replaces() -> None:
    def bucket(name: str) -> Callable[[], Any]:
        return lambda: aws.s3.Bucket("b", bucket=name, force_destroy=False)

    (change,) = differ(bucket("one"), bucket("two"))
    assert (change.action, [key.key for key in change.keys if key.replaces]) == ("replaced", ["bucket"])


def test_what_hangs_on_a_replaced_resource_goes_with_it() -> None:
    def network(cidr: str) -> Callable[[], Any]:
        def program() -> None:
            vpc = aws.ec2.Vpc("v", cidr_block=cidr, enable_dns_support=True)
            subnet = aws.ec2.Subnet("s", vpc_id=vpc.id, cidr_block="10.0.0.0/24")
            aws.ec2.RouteTableAssociation("a", subnet_id=subnet.id, route_table_id="rtb-1")
            aws.ec2.InternetGateway("g", vpc_id=vpc.id)

        return program

    changes = {change.name: change.action for change in differ(network("10.0.0.0/16"), network("10.1.0.0/16"))}
    # An internet gateway can be attached to another VPC; subnets cannot move.
    assert changes == {"v": "replaced", "s": "replaced", "a": "replaced"}


def cluster(cidr: str = "10.0.0.0/16", region: str = "us-west-2", second: str = "10.0.1.0/24") -> Callable[[], Any]:
    """A VPC with a cluster in it, what belongs to that, and a namespace in the cluster."""

    def program() -> None:
        account = aws.Provider("account", region=region)
        opts = pulumi.ResourceOptions(provider=account)
        vpc = aws.ec2.Vpc("v", cidr_block=cidr, opts=opts)
        one = aws.ec2.Subnet("one", vpc_id=vpc.id, cidr_block="10.0.0.0/24", opts=opts)
        two = aws.ec2.Subnet("two", vpc_id=vpc.id, cidr_block=second, opts=opts)
        bucket = aws.s3.Bucket("b", bucket="b", opts=opts)
        vpc_config: Any = {"subnet_ids": [one.id, two.id]}
        eks = aws.eks.Cluster("c", name="c", role_arn="arn:r", vpc_config=vpc_config, opts=opts)
        aws.eks.Addon("a", cluster_name=eks.name, addon_name="coredns", opts=opts)
        scaling: Any = {"min_size": 1, "max_size": 1, "desired_size": 1}
        aws.eks.NodeGroup(
            "n", cluster_name=eks.name, node_role_arn="arn:n", subnet_ids=["subnet-1"], scaling_config=scaling,
            opts=opts,
        )  # fmt: skip
        kubernetes = k8s.Provider("k", cluster_identifier=eks.arn, kubeconfig="{}")
        inside = pulumi.ResourceOptions(provider=kubernetes)
        k8s.core.v1.Namespace("ns", metadata={"name": "ns"}, opts=inside)
        aws.s3.BucketVersioning("bv", bucket=bucket.bucket, versioning_configuration={"status": "Enabled"}, opts=opts)

    return program


def replacements(changes: list[Change]) -> dict[str, list[str]]:
    assert {change.action for change in changes} == {"replaced"}
    return {change.name: [f"{key.key}: {key.after}" for key in change.keys if key.replaces] for change in changes}


def test_another_vpc_takes_the_cluster_along_and_what_is_in_it() -> None:
    assert replacements(differ(cluster(), cluster("10.1.0.0/16"))) == {
        "v": ["cidrBlock: 10.1.0.0/16"],
        "one": ["vpcId: of the new v"],
        "two": ["vpcId: of the new v"],
        "c": ["vpcConfig.subnetIds: of the new v"],
        "a": ["clusterName: of the new c"],
        "n": ["clusterName: of the new c"],
        "k": ["clusterIdentifier: of the new c"],
        "ns": ["provider: of the new k"],
    }


def test_another_subnet_of_the_same_vpc_leaves_the_cluster() -> None:
    assert replacements(differ(cluster(), cluster(second="10.0.2.0/24"))) == {"two": ["cidrBlock: 10.0.2.0/24"]}


def test_another_region_replaces_all_that_its_provider_made() -> None:
    found = replacements(differ(cluster(), cluster(region="us-east-1")))
    assert found.pop("account") == ["region: us-east-1"]
    assert found.pop("k") == ["clusterIdentifier: of the new c"]
    assert found.pop("ns") == ["provider: of the new k"]
    assert found == {name: ["provider: of the new account"] for name in ("v", "one", "two", "b", "c", "a", "n", "bv")}


def test_objects_of_kubernetes() -> None:
    def objects(data: str, image: str, namespace: str) -> Callable[[], Any]:
        def program() -> None:
            k8s.core.v1.ConfigMap("c", metadata={"name": "c"}, data={"k": data})
            k8s.core.v1.ServiceAccount("a", metadata={"name": "a", "namespace": namespace})
            spec: Any = {"selector": {"matchLabels": {"a": "b"}},
                         "template": {"spec": {"containers": [{"name": "x", "image": image}]}}}  # fmt: skip
            k8s.apps.v1.Deployment("d", metadata={"name": "d"}, spec=spec)

        return program

    changes = {change.name: change for change in differ(objects("1", "i:1", "n"), objects("2", "i:2", "m"))}
    actions = {name: change.action for name, change in changes.items()}
    assert actions == {"c": "replaced", "a": "replaced", "d": "changed"}
    (key,) = changes["d"].keys
    assert (key.key, key.before, key.after) == ("spec.template.spec.containers[0].image", "i:1", "i:2")


def test_protection_counts_and_ignored_paths_do_not() -> None:
    def vpc(protect: bool, tags: dict[str, str]) -> Callable[[], Any]:
        opts = pulumi.ResourceOptions(protect=protect, ignore_changes=["tags"])
        return lambda: aws.ec2.Vpc("v", cidr_block="10.0.0.0/16", tags=tags, opts=opts)

    (change,) = differ(vpc(True, {"a": "b"}), vpc(False, {"a": "c"}))
    assert [(key.key, key.before, key.after) for key in change.keys] == [("protect", True, False)]


def test_secrets_stay_secret() -> None:
    def secret(value: str, more: str) -> Callable[[], Any]:
        def program() -> None:
            metadata: Any = {"name": "s", "labels": {"other": more}}
            k8s.core.v1.Secret("s", metadata=metadata, string_data={"k": pulumi.Output.secret(value)})

        return program

    (change,) = differ(secret("hunter2", "a"), secret("hunter3", "b"))
    assert [key.key for key in change.keys] == ["metadata.labels.other"]
    assert "hunter" not in str(change)
