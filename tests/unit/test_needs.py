"""Each component answers for what it needs, and everything else reads the sum."""

import datetime
import io
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pulumi
import pytest
import yaml
from rich.console import Console

from eks_llm.aws.cluster import Cluster, ClusterSettings
from eks_llm.aws.network import Network, NetworkSettings
from eks_llm.catalog.charts import CHARTS
from eks_llm.catalog.eks import KUBERNETES
from eks_llm.catalog.nodes import NODES
from eks_llm.catalog.pods import ADDON_PODS, CHART_PODS
from eks_llm.core.model import Model, component_inputs
from eks_llm.operators.keda import Keda, KedaSettings
from eks_llm.operators.monitoring import Monitoring, MonitoringSettings
from eks_llm.plan import html, render, report
from eks_llm.plan.recorder import Recording, record
from eks_llm.platform.sum import check, kinds, of_resources, part
from eks_llm.sizing import pods
from eks_llm.sizing.needs import (
    KINDS,
    Artifact,
    Context,
    Flow,
    Needs,
    Pod,
    QuotaNeed,
    answers,
    permissions,
)
from eks_llm.sizing.report import Report
from eks_llm.sizing.stack import USD, Charge, NodeGroup
from tests.unit.test_contracts import COMPONENTS
from tests.unit.test_settings import platform, problems, put, settings

ROOT = Path(__file__).parents[2]
NOW = datetime.datetime(2026, 8, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda item: item.__name__)
def test_every_component_answers(component: type[pulumi.ComponentResource]) -> None:
    found = {kind.component for kind in kinds().values()}
    assert component in found, "no @answers(…, needs): plan, bill and policy would not know it"


# A new component ----------------------------------------------------------------------------------------------------


class FrontDoorArgs(TypedDict):
    replicas: int


class FrontDoorSettings(Model):
    replicas: int


def front_door_needs(name: str, settings: FrontDoorSettings, _context: Context) -> Needs:
    document = {"Statement": [{"Effect": "Allow", "Action": "acm:GetCertificate", "Resource": "arn:aws:acm:::c/1"}]}
    return Needs(
        region="us-west-2",
        pods=(Pod("envoy", settings.replicas, 250, 256),),
        charges=(Charge("load balancers", USD, 20, 30, 40, "one, by traffic"),),
        quotas=(QuotaNeed("L-69A177A2", "Network Load Balancers per Region", 1, "balancers", (name,), "us-west-2",
                          "elasticloadbalancing"),),
        artifacts=(Artifact("image", "docker.io/envoyproxy/envoy:v1.39.0"),),
        flows=(Flow(name, "from", "0.0.0.0/0", ("TCP 443",)),),
        permissions=permissions("inference/front-door", json.dumps(document)),
    )  # fmt: skip


def front_door() -> type[pulumi.ComponentResource]:
    class FrontDoor(pulumi.ComponentResource):
        def __init__(self, name: str, args: FrontDoorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
            model = FrontDoorSettings.model_validate(args)
            super().__init__("throwaway:index:FrontDoor", name, component_inputs(model, FrontDoorSettings), opts)
            self.register_outputs({})

    return answers(FrontDoorSettings, front_door_needs, package="throwaway")(FrontDoor)


@pytest.fixture
def throwaway() -> Iterator[Recording]:
    component = front_door()
    yield record(lambda: component("door", {"replicas": 3}))  # pyright: ignore[reportArgumentType]
    del KINDS["throwaway:index:FrontDoor"]


def test_a_component_of_anybody_is_in_every_answer_by_what_it_says(throwaway: Recording) -> None:
    plan = report.build(throwaway, "p", "s")
    out = io.StringIO()
    render.text(plan, Console(file=out, width=120, highlight=False))
    said = ("load balancers", "envoyproxy/envoy:v1.39.0", "acm:GetCertificate", "TCP 443", "L-69A177A2")
    for text in (out.getvalue(), render.markdown(plan), html.page(plan), render.as_json(plan)):
        assert not [part for part in said if part not in text]
    assert plan.needs
    assert (plan.needs.total.minimum, plan.needs.total.maximum) == (20, 40)
    assert "--service-code elasticloadbalancing --quota-code L-69A177A2" in plan.needs.quotas[0].command


# What cannot be read ------------------------------------------------------------------------------------------------


def test_settings_that_are_wrong_and_kinds_that_say_nothing_are_named() -> None:
    found = of_resources(
        [
            ("eks-llm:index:Keda", "keda", {"serviceMonitor": True}),
            ("eks-llm:index:Sidecar", "new", {}),
            ("eks-llm:index:Network", "main", {"zones": ["us-west-2a", "us-west-2b"]}),
            ("aws:s3/bucket:Bucket", "logs", {}),
        ]
    )
    assert isinstance(found, Report)
    unread = [str(finding) for finding in found.warnings if "not counted" in finding.message]
    assert len(unread) == 2
    assert "Keda keda: not counted in this plan: serviceMonitor" in unread[0]
    assert "did you mean 'serviceMonitors'" in unread[0]
    assert "Sidecar new: not counted in this plan: a component that says nothing of its needs" in unread[1]
    assert [line.what for line in found.cost.lines] == ["NAT gateways"]  # the rest of the plan is there


# True answers -------------------------------------------------------------------------------------------------------


def needs_of(component: type[Any], settings: Model, **context: Any) -> Needs:
    kind = next(kind for kind in kinds().values() if kind.component is component)
    return kind.needs("main", settings, Context(now=NOW, **context))


def test_a_network_costs_its_gateways_and_endpoints() -> None:
    zones = ["us-west-2a", "us-west-2b", "us-west-2c"]
    network = NetworkSettings(zones=zones, interface_endpoints=["sts", "ec2"])
    bill = {line.what: line for line in check([part(Network, "main", network)], now=NOW).cost.lines}
    assert bill["NAT gateways"].minimum == pytest.approx(3 * 0.045 * 730)
    assert bill["NAT gateways"].expected == pytest.approx(3 * 0.045 * 730 + 100 * 0.045)
    assert bill["NAT gateways"].note == "3; from expected on with 100 GB a month"
    assert bill["interface endpoints"].minimum == pytest.approx(6 * 0.01 * 730)


def cluster(version: str = "1.35", **nodes: Any) -> ClusterSettings:
    admins = ["arn:aws:iam::111122223333:role/admin"]
    return ClusterSettings.model_validate({"version": version, "admins": admins, "systemNodes": nodes})


def test_a_cluster_in_extended_support_costs_six_times_as_much() -> None:
    report = check([part(Cluster, "main", cluster("1.33"))], now=NOW)  # standard support ended 2026-07-29
    assert next(line for line in report.cost.lines if line.what == "EKS control plane").minimum == pytest.approx(438)
    assert "about 365 USD a month" in " ".join(finding.message for finding in report.warnings)


def test_root_volumes_follow_the_nodes() -> None:
    lines = check([part(Cluster, "main", cluster(min=2, max=4))], "us-west-2", now=NOW).cost.lines
    line = next(line for line in lines if line.what == "EBS volumes")
    assert [line.minimum, line.maximum] == pytest.approx([2 * 80 * 0.08, 4 * 80 * 0.08])


def test_every_pinned_chart_and_addon_has_its_pods_in_the_catalogue() -> None:
    assert CHART_PODS.keys() == CHARTS.keys()
    assert ADDON_PODS.keys() == {name for version in KUBERNETES.values() for name in version.addons}


def test_pods_take_requests_and_replicas_from_the_values_and_else_from_the_chart() -> None:
    # keda 2.20.2, values.yaml: 100m and 100Mi for each; the component asks for two of each.
    assert {(pod.replicas, pod.cpu_m, pod.memory_mib) for pod in needs_of(Keda, KedaSettings()).pods} == {(2, 100, 100)}
    values = {"resources": {"operator": {"requests": {"cpu": "0.25", "memory": "1Gi"}}}}
    operator = next(pod for pod in pods.of_chart("keda", values) if pod.name == "keda-operator")
    assert (operator.replicas, operator.cpu_m, operator.memory_mib) == (1, 250, 1024)


@pytest.mark.parametrize(
    ("quantity", "mib"), [("4Gi", 4096), ("1536Mi", 1536), ("128974848", 123), ("129M", 124), ("512Ki", 1)]
)
def test_quantities_of_memory(quantity: str, mib: int) -> None:
    assert pods.mebibytes(quantity) == mib  # Kubernetes documentation, "Resource units": the first three are like these


def test_requests_on_system_nodes_are_as_rendered() -> None:
    """2.1 CPUs and 6.7 GiB on two nodes: charts rendered with helm 3.18 with these values, and the add-ons."""
    run = record(
        lambda: runpy.run_path(str(ROOT / "infra")),
        stack="dev",
        config=yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))["config"],
    )
    found = report.build(run, "eks-llm", "dev").needs
    assert found
    (group,) = found.groups
    assert group.cpu_m["min"] / 1000 == pytest.approx(2.1, abs=0.4)
    assert group.memory_mib["min"] / 1024 == pytest.approx(6.7, abs=0.7)
    roles = {item.role for item in found.permissions}
    assert {"kube-system/cluster-autoscaler", "kube-system/aws-load-balancer-controller"} < roles
    charts = {item.reference.split()[0] for item in found.artifacts if item.kind == "chart"}
    assert charts == CHARTS.keys()


# What runs must fit where it runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "cpu_m", "mib", "places"),
    # Karpenter's page of instance types, which takes off 7.5 % of the memory for the operating system.
    [("m7i.xlarge", 3920, 14162, 58), ("t3.nano", 1930, 74, 4), ("c5.2xlarge", 7910, 14162, 58)],
)
def test_what_a_node_offers(type_: str, cpu_m: int, mib: int, places: int) -> None:
    node = NODES[type_]
    cpu, memory, number = pods.allocatable(node)
    assert (cpu, number) == (cpu_m, places)
    assert memory - pods.OVERHEAD * node.memory_mib == pytest.approx(mib, abs=1)


def held(*running: Pod, type_: str = "m7i.xlarge", nodes: int = 2) -> list[str]:
    group = NodeGroup("system nodes", "cluster.systemNodes", (type_,), 1, nodes)
    return [f"{'E' if item.error else 'W'} {item.message}" for item in pods.misfits(group, running)]


def test_pods_that_no_node_holds_are_an_error_and_those_that_barely_fit_a_warning() -> None:
    assert held(Pod("prometheus", 1, 500, 14000)) == []
    (close,) = held(Pod("prometheus", 1, 500, 15000))  # 14,162 to 15,391 MiB
    assert close.startswith("W prometheus requests 0.50 CPUs and 14.6 GiB; a m7i.xlarge may have no more than")
    (none,) = held(Pod("prometheus", 1, 500, 16384))
    assert none.startswith("E prometheus requests 0.50 CPUs and 16.0 GiB; a m7i.xlarge has at most 3.92 CPUs")
    (both,) = held(Pod("prometheus", 3, 500, 14000))
    assert "3 pods of add-ons and operators request" in both
    assert held(Pod("agent", 1, 100, 10, every_node=True), Pod("a", 1, 3900, 1))[0].startswith("E a requests")
    (unknown,) = held(Pod("a", 1, 1, 1), type_="x1e.xlarge")
    assert unknown.startswith("W the size of x1e.xlarge is not known")


def test_a_stack_whose_operators_do_not_fit_is_refused() -> None:
    def refused(path: str, value: Any) -> str:
        content = platform()
        put(path, value)(content)
        return "\n".join(problems(content))

    assert "prometheus requests 0.51 CPUs and 16.0 GiB" in refused("monitoring", {"memory": "16GiB"})
    nano = refused("cluster.systemNodes", {"instanceTypes": ["t3.nano"]})
    assert "platform.cluster.systemNodes.instanceTypes: t3.nano takes 4 pods" in nano
    content = platform()
    put("monitoring", {"memory": "16GiB"})(content)
    put("cluster.systemNodes", {"instanceTypes": ["m7i.2xlarge"]})(content)
    settings(content)


def test_monitoring_alone_says_its_volumes() -> None:
    (charge,) = needs_of(Monitoring, MonitoringSettings()).charges
    assert (charge.what, charge.minimum) == ("EBS volumes", 102)  # 100 GiB, and 2 of Alertmanager
