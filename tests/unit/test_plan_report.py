"""The report of a plan, its formats and its manifests, on a platform of plain resources."""

import io
import json
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest
import yaml
from rich.console import Console

from eks_llm.plan import manifests, render, report
from eks_llm.plan.program import find_project, run
from eks_llm.plan.recorder import Recording, record

PROJECTS = Path(__file__).parents[1] / "data" / "projects"


@pytest.fixture(scope="module")
def recording() -> Recording:
    return run(find_project(PROJECTS / "platform"), "prod")


@pytest.fixture(scope="module")
def platform(recording: Recording) -> report.Report:
    return report.build(recording, "platform", "prod")


def component(platform: report.Report, kind: str) -> report.Node:
    return next(node for node in platform.tree if node.kind == kind)


def as_text(platform: report.Report, width: int) -> str:
    out = io.StringIO()
    render.text(platform, Console(file=out, width=width, highlight=False))
    return out.getvalue()


# Facts --------------------------------------------------------------------------------------------------------------


def test_a_pool_says_its_instances_nodes_gpus_and_zone(platform: report.Report) -> None:
    facts = component(platform, "GpuNodePool").facts
    # 8 A100 per p4d.24xlarge: EC2 instance types page.
    assert facts["instanceTypes"] == ["p4d.24xlarge"]  # the launch template names it
    assert (facts["nodes"], facts["gpus"]) == ({"min": 2, "max": 4}, {"min": 16, "max": 32})
    assert facts["gpuModel"] == "A100-SXM4-40GB"
    assert (facts["zones"], facts["capacity"]) == (["us-west-2b"], "on demand")


def test_a_service_takes_its_replicas_from_its_scaler(platform: report.Report) -> None:
    facts = component(platform, "InferenceService").facts
    assert facts["replicas"] == {"min": 2, "max": 6}
    assert (facts["gpusPerReplica"], facts["gpus"]) == (4, {"min": 8, "max": 24})


def test_totals(platform: report.Report) -> None:
    totals = platform.totals
    assert totals.nodes == {"min": 4, "max": 8}
    assert totals.gpus == {"min": 16, "max": 32}
    assert totals.gpus_claimed == {"min": 8, "max": 24}
    assert totals.instances == {"m7i.xlarge": {"min": 2, "max": 4}, "p4d.24xlarge": {"min": 2, "max": 4}}
    assert (
        totals.resources == sum(totals.by_provider.values()) == len([r for n in platform.tree for r in n.resources()])
    )


@pytest.mark.parametrize(
    ("group", "template", "capacity"),
    [
        ({"capacity_type": "SPOT"}, {}, "spot"),
        ({"capacity_type": "CAPACITY_BLOCK"}, {}, "capacity block"),
        (
            {},
            {
                "capacity_reservation_specification": {
                    "capacity_reservation_target": {"capacity_reservation_id": "cr-1"}
                }
            },
            "reservation",
        ),
    ],
)
def test_kinds_of_capacity(group: Any, template: Any, capacity: str) -> None:
    def program() -> None:
        made = aws.ec2.LaunchTemplate("t", instance_type="p5.48xlarge", **template)
        aws.eks.NodeGroup(
            "g", cluster_name="c", node_role_arn="r", subnet_ids=["s"], scaling_config={"min_size": 0, "max_size": 1,
            "desired_size": 0}, launch_template={"id": made.id, "version": "1"}, **group,
        )  # fmt: skip

    node = next(n for n in report.build(record(program), "p", "s").tree if n.kind == "NodeGroup")
    assert node.facts["capacity"] == capacity
    assert node.facts["gpus"] == {"min": 0, "max": 8}


def test_a_workload_without_scaler_has_the_replicas_that_it_states() -> None:
    spec: Any = {"replicas": 3, "selector": {}, "template": {"spec": {"containers": [{"name": "a", "image": "i:1"}]}}}
    node = report.build(record(lambda: k8s.apps.v1.Deployment("d", spec=spec)), "p", "s").tree[0]
    assert node.facts == {"replicas": {"min": 3, "max": 3}, "images": ["i:1"]}


def test_an_empty_program_has_a_report() -> None:
    empty = report.build(record(lambda: None), "p", "s")
    assert "0 in 0 components" in as_text(empty, 80)
    assert "0 in 0 components" in render.markdown(empty)


# Formats ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120])
def test_text_fits_the_terminal(platform: report.Report, width: int) -> None:
    lines = as_text(platform, width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any(line != line.rstrip() or "\x1b" in line for line in lines)


def test_text_says_what_matters_and_groups_the_rest(platform: report.Report) -> None:
    text = as_text(platform, 120)
    for part in (
        "2–4 × p4d.24xlarge · 16–32 GPUs (A100-SXM4-40GB) · on demand · us-west-2b",
        "2–6 replicas × 4 GPUs",
        "vpc-cni v1.20.4-eksbuild.1 · coredns v1.12.4-eksbuild.1",
        "keda  keda 2.18.1 · namespace keda",
        "Subnet×6",
        "16–32; services claim 8–24 with 2–6 replicas",
        "warning           pool h100 is used by no service",
    ):
        assert part in text
    assert len(text.splitlines()) < 35


def test_markup_in_names_is_shown_as_it_is() -> None:
    shown = report.build(record(lambda: pulumi.log.warn("[red]a|b[/red] <b>")), "p", "s")
    assert "[red]a|b[/red] <b>" in as_text(shown, 80)
    assert r"[red]a\|b[/red] &lt;b>" in render.markdown(shown)


def test_markdown_is_one_table_with_a_row_per_component(platform: report.Report) -> None:
    text = render.markdown(platform)
    table = [line for line in text[text.index("| component | plan |") :].splitlines() if line.startswith("|")]
    assert len(table) == 2 + len([node for node in platform.tree if not node.custom]) + 1  # head, and the stack's own
    assert all(line.replace("\\|", "").count("|") == 3 for line in table)


def test_json_has_every_resource(platform: report.Report, recording: Recording) -> None:
    def urns(nodes: list[Any]) -> list[str]:
        return [urn for node in nodes for urn in (node["urn"], *urns(node["children"]))]

    data = json.loads(render.as_json(platform))
    assert data["schema"] == 1
    assert sorted(urns(data["tree"])) == sorted(item.urn for item in recording.resources)


# Manifests ----------------------------------------------------------------------------------------------------------


def test_each_kubernetes_object_is_a_file_that_parses(recording: Recording) -> None:
    files = manifests.manifests(recording)
    objects = {path: yaml.safe_load(text) for path, text in files.items()}
    assert {"cluster/namespace-llm.yaml", "llm/deployment-chat.yaml", "llm/service-chat.yaml"} <= set(files)
    assert len(files) == sum(1 for r in recording.resources if r.type.startswith("kubernetes:") and r.kind != "Release")
    assert all(list(body)[:3] == ["apiVersion", "kind", "metadata"] for body in objects.values())


def test_secrets_are_redacted_in_every_format(recording: Recording, platform: report.Report) -> None:
    files = manifests.manifests(recording)
    assert yaml.safe_load(files["llm/secret-chat.yaml"])["stringData"] == {"key": "[secret]"}
    shown = "".join(files.values()) + as_text(platform, 120) + render.markdown(platform) + render.as_json(platform)
    assert "v1:bm90" not in shown  # the ciphertext in the stack file


def test_a_secret_that_nobody_marked_is_redacted_too_and_stays_valid() -> None:
    def program() -> None:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "cGxhaW4="}}
        pulumi.CustomResource("kubernetes:core/v1:Secret", "s", body)

    (text,) = manifests.manifests(record(program)).values()
    assert yaml.safe_load(text)["data"] == {"k": "W3NlY3JldF0="}  # base64 of [secret]


def test_objects_of_one_name_do_not_overwrite_each_other() -> None:
    def program() -> None:
        for index in (1, 2):
            k8s.core.v1.ConfigMap(f"c{index}", metadata={"name": "same", "namespace": "n"})

    assert len(manifests.manifests(record(program))) == 2


def test_a_second_run_replaces_its_own_files_only(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "mine.yaml").write_text("kind: Mine\n")
    manifests.write({"n/a.yaml": f"{manifests.HEADER}a\n"}, tmp_path)
    manifests.write({"n/b.yaml": f"{manifests.HEADER}b\n"}, tmp_path)
    assert sorted(file.name for file in (tmp_path / "n").iterdir()) == ["b.yaml", "mine.yaml"]
