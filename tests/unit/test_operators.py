"""Operators: values per chart, what each component registers, and the order in which it is created and destroyed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from eks_llm.catalog.charts import CHARTS, CLUSTER_AUTOSCALER, LOAD_BALANCER_POLICY, Crds
from eks_llm.catalog.eks import KUBERNETES, AmiType
from eks_llm.core.problems import InvalidArgs
from eks_llm.core.quantities import Size
from eks_llm.operators import gpu_operator, keda, load_balancer, monitoring, node_autoscaler
from eks_llm.operators.gpu_operator import GpuOperator, Mig, gpu_operator_values
from eks_llm.operators.keda import Keda
from eks_llm.operators.load_balancer import LoadBalancerController
from eks_llm.operators.monitoring import Monitoring, MonitoringSettings, default_rules
from eks_llm.operators.node_autoscaler import NodeAutoscaler, NodeAutoscalerSettings, autoscaler_policy
from eks_llm.plan.recorder import Recording, Resource, record
from tests.unit.serving import on_cluster

IN_CLUSTER = {"cluster_name": "main", "region": "us-west-2"}
COMPONENTS: dict[str, Callable[[], pulumi.ComponentResource]] = {
    "gpu-operator": lambda: GpuOperator("gpu", {"ami_type": AmiType.AL2023_NVIDIA}, on_cluster()),
    "keda": lambda: Keda("keda", {}, on_cluster()),
    "kube-prometheus-stack": lambda: Monitoring("monitoring", {"grafana_admin_password": "hunter2"}, on_cluster()),
    "cluster-autoscaler": lambda: NodeAutoscaler("nodes", {**IN_CLUSTER, "kubernetes_version": "1.35"}, on_cluster()),  # type: ignore[typeddict-item]
    "aws-load-balancer-controller": lambda: LoadBalancerController(
        "lb",
        {**IN_CLUSTER, "vpc_id": "vpc-00000001"},  # type: ignore[typeddict-item]
        on_cluster(),
    ),
}


def recorded(chart: str) -> Recording:
    return record(COMPONENTS[chart])


def release_of(run: Recording, chart: str) -> Resource:
    return next(item for item in run.of("Release") if item.inputs["chart"] == chart)


def before(run: Recording, resource: Resource) -> set[str]:
    """Names of everything that exists before `resource` and outlives it."""
    by_urn = {item.urn: item for item in run.resources}
    found: set[str] = set()
    waiting = [resource]
    while waiting:
        for urn in waiting.pop().dependencies:
            if urn in by_urn and by_urn[urn].name not in found:
                found.add(by_urn[urn].name)
                waiting.append(by_urn[urn])
    return found


# Values against the pinned charts -----------------------------------------------------------------------------------


def known_values(chart: str) -> dict[str, Any]:
    path = Path(__file__).parents[1] / "data" / "chart_values" / f"{chart}-{CHARTS[chart].version}.yaml"
    table = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert (table["chart"], table["version"]) == (chart, CHARTS[chart].version)
    return with_templates(table["defaults"], table.get("templates", {}))


def with_templates(defaults: Any, templates: Any) -> Any:
    if not templates or not defaults:
        return templates
    return {**defaults, **{key: with_templates(defaults.get(key), value) for key, value in templates.items()}}


def unknown_paths(values: Any, known: Any, path: str = "") -> list[str]:
    if known == {}:
        return []
    if known is None:
        return [f"{path} is a value, not a map"] if isinstance(values, dict) else []
    if not isinstance(values, dict):
        return [f"{path} is a map, not a value"]
    found = [f"{path}.{key}" for key in values if key not in known]
    for key in values.keys() & known.keys():
        found += unknown_paths(values[key], known[key], f"{path}.{key}")
    return found


@pytest.mark.parametrize("chart", [*COMPONENTS, "prometheus-operator-crds"])
def test_every_key_that_we_set_exists_in_the_pinned_chart(chart: str) -> None:
    run = recorded("kube-prometheus-stack" if chart == "prometheus-operator-crds" else chart)
    assert unknown_paths(release_of(run, chart).inputs["values"], known_values(chart)) == []


def test_the_comparison_finds_what_a_chart_does_not_have() -> None:
    known = {"operator": {"replicaCount": None, "nodeSelector": {}}, "port": None}
    wrong = {"operator": {"replicas": 2, "nodeSelector": {"a": "b"}}, "port": {"http": 1}, "operators": 1}
    assert sorted(unknown_paths(wrong, known)) == [".operator.replicas", ".operators", ".port is a value, not a map"]


# All releases -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chart", COMPONENTS)
def test_a_release_is_pinned_and_named_and_keeps_the_traces_of_a_failure(chart: str) -> None:
    inputs = release_of(recorded(chart), chart).inputs
    assert inputs["version"] == CHARTS[chart].version
    assert inputs["repositoryOpts"]["repo"] == CHARTS[chart].repository
    assert inputs["name"] == chart
    assert inputs["timeout"] == 600
    assert inputs["cleanupOnFail"] is True
    assert inputs["atomic"] is False
    assert not inputs.get("disableWebhooks")  # Pulumi's name for "no hooks"
    assert not inputs.get("disableCRDHooks")


@pytest.mark.parametrize("chart", COMPONENTS)
def test_somebody_upgrades_the_custom_resource_definitions(chart: str) -> None:
    run = recorded(chart)
    release = release_of(run, chart)
    if CHARTS[chart].crds is Crds.CRDS_DIR:
        assert release.inputs["skipCrds"] is True
        assert before(run, release) & {"monitoring-crds", "lb-crds"}
    else:
        assert release.inputs["skipCrds"] is False


@pytest.mark.parametrize(
    ("chart", "namespace", "level"),
    [
        ("gpu-operator", "gpu-operator", "privileged"),  # DaemonSets with host paths
        ("kube-prometheus-stack", "monitoring", "privileged"),  # node-exporter: host network, PIDs and root
        ("keda", "keda", "restricted"),
    ],
)
def test_the_namespace_says_which_pods_it_admits_and_outlives_the_release(
    chart: str, namespace: str, level: str
) -> None:
    run = recorded(chart)
    own = run.one("Namespace")
    assert own.inputs["metadata"] == {
        "name": namespace,
        "labels": {"pod-security.kubernetes.io/enforce": level},
    }
    assert own.name in before(run, release_of(run, chart))


SERVICE_MONITORS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "gpu-operator": lambda on: gpu_operator_values(AmiType.AL2023_NVIDIA.facts, Mig.NONE, on)["dcgmExporter"],
    "keda": lambda on: keda.keda_values(on)["prometheus"]["operator"],
    "cluster-autoscaler": lambda on: node_autoscaler.autoscaler_values(
        NodeAutoscalerSettings(service_monitors=on), "1.35", "main", "us-west-2"
    ),
    "aws-load-balancer-controller": lambda on: load_balancer.controller_values("main", "us-west-2", "vpc-00000001", on),
}


@pytest.mark.parametrize("chart", SERVICE_MONITORS)
def test_service_monitors_can_be_left_out_where_their_definition_is_missing(chart: str) -> None:
    assert [SERVICE_MONITORS[chart](on)["serviceMonitor"]["enabled"] for on in (True, False)] == [True, False]


# GPU operator -------------------------------------------------------------------------------------------------------

# What EKS's images carry. Source: EKS user guide, "EKS-optimized accelerated AMIs".
AL2023 = {"driver": False, "toolkit": False, "devicePlugin": True}
BOTTLEROCKET = {"driver": False, "toolkit": False, "devicePlugin": False}


@pytest.mark.parametrize(
    ("ami", "mig", "expected"),
    [
        (AmiType.AL2023_NVIDIA, Mig.NONE, {**AL2023, "migManager": False}),
        (AmiType.AL2023_NVIDIA, Mig.SINGLE, {**AL2023, "migManager": True}),
        (AmiType.AL2023_ARM_NVIDIA, Mig.MIXED, {**AL2023, "migManager": True}),
        (AmiType.BOTTLEROCKET_NVIDIA, Mig.NONE, {**BOTTLEROCKET, "migManager": False}),
        (AmiType.BOTTLEROCKET_ARM_NVIDIA, Mig.MIXED, {**BOTTLEROCKET, "migManager": False}),
    ],
)
def test_the_operator_leaves_alone_what_the_image_carries(ami: AmiType, mig: Mig, expected: dict[str, bool]) -> None:
    values = gpu_operator_values(ami.facts, mig)
    assert {part: values[part]["enabled"] for part in expected} == expected
    assert values["mig"]["strategy"] == mig.value


def test_the_operands_run_on_gpu_nodes_and_the_operator_does_not() -> None:
    values = gpu_operator_values(AmiType.AL2023_NVIDIA.facts)
    taint = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert taint in values["daemonsets"]["tolerations"]
    assert taint in values["node-feature-discovery"]["worker"]["tolerations"]
    required = values["operator"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "eks-llm.dev/pool", "operator": "DoesNotExist"}]}
    ]


def test_the_metrics_file_has_three_columns_and_each_metric_once() -> None:
    rows = [line.split(", ") for line in gpu_operator.dcgm_csv().splitlines()]
    assert all(len(row) == 3 and row[1] in ("gauge", "counter") for row in rows)
    names = [row[0] for row in rows]
    assert len(set(names)) == len(names)
    # Missing from the operator's default file, and needed to see throttling and a new XID.
    assert {"DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_EXP_XID_ERRORS_COUNT"} <= set(names)


# KEDA ---------------------------------------------------------------------------------------------------------------


def test_keda_is_recent_enough() -> None:
    def parts(version: str) -> list[int]:
        return [int(part) for part in version.split(".")]

    assert parts(CHARTS["keda"].app_version) >= parts(keda.MINIMUM_VERSION)


def test_uninstalling_keda_keeps_every_scaled_object() -> None:
    crds = keda.keda_values()["crds"]
    assert crds == {"install": True, "additionalAnnotations": {"helm.sh/resource-policy": "keep"}}


def test_a_keda_that_is_down_blocks_nothing() -> None:
    values = keda.keda_values()
    assert values["webhooks"]["failurePolicy"] == "Ignore"
    assert all(values[part]["replicaCount"] == 2 for part in ("operator", "metricsServer", "webhooks"))
    assert all(budget == {"maxUnavailable": 1} for budget in values["podDisruptionBudget"].values())


# Monitoring ---------------------------------------------------------------------------------------------------------


def test_prometheus_keeps_its_data_on_an_encrypted_volume_that_it_cannot_fill() -> None:
    spec = monitoring.monitoring_values(MonitoringSettings(volume=Size(50), retention_days=30))
    spec = spec["prometheus"]["prometheusSpec"]
    claim = spec["storageSpec"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"]["requests"]["storage"] == "50Gi"
    assert spec["retention"] == "30d"
    assert spec["retentionSize"] == "40GiB"  # 80 % of the disk, the lower end of what Prometheus's documentation says
    storage = recorded("kube-prometheus-stack").one("StorageClass").inputs
    assert claim["storageClassName"] == storage["metadata"]["name"]
    assert storage["parameters"] == {"type": "gp3", "encrypted": "true"}
    assert storage["provisioner"] == "ebs.csi.aws.com"


def test_sizes_that_are_not_whole_gibibytes_are_written_in_mebibytes() -> None:
    spec = monitoring.monitoring_values(MonitoringSettings(memory=Size(1.5)))["prometheus"]["prometheusSpec"]
    assert spec["resources"]["limits"]["memory"] == "1536Mi"


def test_prometheus_selects_the_monitors_of_every_namespace() -> None:
    spec = monitoring.monitoring_values(MonitoringSettings())["prometheus"]["prometheusSpec"]
    assert {key: value for key, value in spec.items() if key.endswith("NilUsesHelmValues")} == {
        "serviceMonitorSelectorNilUsesHelmValues": False,
        "podMonitorSelectorNilUsesHelmValues": False,
        "ruleSelectorNilUsesHelmValues": False,
        "probeSelectorNilUsesHelmValues": False,
        "scrapeConfigSelectorNilUsesHelmValues": False,
    }


def test_targets_that_eks_hides_are_off() -> None:
    values = monitoring.monitoring_values(MonitoringSettings())
    assert [
        values[part]["enabled"] for part in ("kubeControllerManager", "kubeScheduler", "kubeEtcd", "kubeProxy")
    ] == [False] * 4


def test_grafanas_password_is_in_a_secret_and_nowhere_else() -> None:
    run = recorded("kube-prometheus-stack")
    release = release_of(run, "kube-prometheus-stack")
    secret = run.one("Secret")
    assert set(secret.inputs["stringData"]) == {"admin-user", "admin-password"}
    assert secret.inputs["stringData"]["admin-password"] == "[secret]"  # how the recorder shows what Pulumi encrypts
    assert release.inputs["values"]["grafana"]["admin"]["existingSecret"] == secret.inputs["metadata"]["name"]
    assert "hunter2" not in json.dumps(release.inputs["values"])
    assert secret.name in before(run, release)


def test_dashboards_get_their_folders() -> None:
    dashboards = monitoring.monitoring_values(MonitoringSettings())["grafana"]["sidecar"]["dashboards"]
    assert dashboards["folderAnnotation"] == "grafana_folder"
    assert dashboards["provider"]["foldersFromFilesStructure"] is True  # the annotation alone does nothing


def test_definitions_come_from_the_operators_own_version() -> None:
    assert CHARTS["prometheus-operator-crds"].app_version == CHARTS["kube-prometheus-stack"].app_version
    run = recorded("kube-prometheus-stack")
    assert release_of(run, "kube-prometheus-stack").inputs["values"]["crds"] == {"enabled": False}
    crds = release_of(run, "prometheus-operator-crds").inputs["values"]["crds"]
    assert crds["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_prometheus_url_is_known_at_preview() -> None:
    run = recorded("kube-prometheus-stack")
    url = next(iter(run.outputs.values()))["prometheusUrl"]
    assert url == "http://kube-prometheus-stack-prometheus.monitoring.svc:9090"


# Node autoscaler ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", [minor for minor, facts in KUBERNETES.items() if facts.addons])
def test_every_supported_kubernetes_has_an_autoscaler_of_its_minor(minor: str) -> None:
    assert CLUSTER_AUTOSCALER[minor].startswith(f"v{minor}.")


def test_the_autoscaler_waits_for_slow_nodes_and_is_not_held_by_a_cache() -> None:
    values = release_of(recorded("cluster-autoscaler"), "cluster-autoscaler").inputs["values"]
    assert values["image"]["tag"] == CLUSTER_AUTOSCALER["1.35"]
    assert values["extraArgs"] == {
        "max-node-provision-time": "1800s",
        "scale-down-unneeded-time": "600s",
        "scale-down-gpu-utilization-threshold": "0.01",  # below one GPU of sixteen: a node in use stays
        "skip-nodes-with-local-storage": "false",
        "emit-per-nodegroup-metrics": "true",  # off by default, says its FAQ
    }
    assert values["priorityClassName"] == "system-cluster-critical"


def test_the_autoscaler_may_change_only_groups_of_its_cluster() -> None:
    read, write = json.loads(autoscaler_policy("main"))["Statement"]
    assert all(":Describe" in action or ":Get" in action for action in read["Action"])
    assert write["Action"] == ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"]
    assert write["Condition"]["StringEquals"]["aws:ResourceTag/k8s.io/cluster-autoscaler/main"] == "owned"


@pytest.mark.parametrize("chart", ["cluster-autoscaler", "aws-load-balancer-controller"])
def test_a_pod_starts_only_when_its_service_account_has_a_role(chart: str) -> None:
    run = recorded(chart)
    association = run.one("PodIdentityAssociation")
    release = release_of(run, chart)
    values = release.inputs["values"]
    account = (values.get("rbac") or values)["serviceAccount"]
    assert (association.inputs["namespace"], association.inputs["serviceAccount"]) == ("kube-system", account["name"])
    assert release.inputs["namespace"] == "kube-system"
    assert {association.name, run.one("RolePolicy").name} <= before(run, release)
    trust = json.loads(run.one("Role").inputs["assumeRolePolicy"])["Statement"][0]
    assert trust["Condition"]["StringEquals"]["aws:RequestTag/kubernetes-service-account"] == account["name"]


# Load balancer controller -------------------------------------------------------------------------------------------


def test_the_two_traps_of_the_load_balancer_controller_are_avoided() -> None:
    values = release_of(recorded("aws-load-balancer-controller"), "aws-load-balancer-controller").inputs["values"]
    assert values["enableServiceMutatorWebhook"] is False
    assert values["keepTLSSecret"] is True
    assert (values["clusterName"], values["region"], values["vpcId"]) == ("main", "us-west-2", "vpc-00000001")


def test_the_controllers_policy_fits_an_inline_policy_and_deletes_only_what_it_made() -> None:
    policy = recorded("aws-load-balancer-controller").one("RolePolicy").inputs["policy"]
    assert len("".join(policy.split())) <= 10_240  # IAM quota of a role's inline policies, whitespace not counted
    deletes = [s for s in LOAD_BALANCER_POLICY if "elasticloadbalancing:DeleteLoadBalancer" in s["Action"]]
    assert [s["Condition"]["Null"] for s in deletes] == [{"aws:ResourceTag/elbv2.k8s.aws/cluster": "false"}]


def test_a_job_named_by_the_version_applies_the_controllers_definitions() -> None:
    job = recorded("aws-load-balancer-controller").one("Job").inputs
    version = CHARTS["aws-load-balancer-controller"].version
    assert job["metadata"]["name"].endswith(version.replace(".", "-"))
    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[:2] == ["apply", "--server-side"]
    assert all(f"/v{version}/" in arg for arg in args if arg.startswith("--filename="))
    assert sum(arg.startswith("--filename=") for arg in args) == 2  # core and gateway


# Order --------------------------------------------------------------------------------------------------------------


def test_what_follows_monitoring_follows_all_of_it() -> None:
    def program() -> None:
        first = COMPONENTS["kube-prometheus-stack"]()
        Keda("keda", {}, pulumi.ResourceOptions.merge(on_cluster("k"), pulumi.ResourceOptions(depends_on=[first])))

    run = record(program)
    assert "monitoring-release" in before(run, run.one("Keda"))


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "args", "message"),
    [
        (GpuOperator, {"ami_type": AmiType.AL2023}, "AL2023_x86_64_STANDARD has no NVIDIA driver (use AL2023_x86_64_N"),
        (GpuOperator, {"ami_type": AmiType.AL2023_NVIDIA, "mig": "on"}, "'on' is not one of 'none', 'single' or 'mix"),
        (GpuOperator, {}, "ami_type: required, but missing"),
        (Keda, {"servicemonitors": True}, "servicemonitors: unknown key; did you mean 'service_monitors'?"),
        (Monitoring, {"retention_days": 0}, "retention_days: 0: input should be greater than or equal to 1"),
        (Monitoring, {"volume": "5GiB"}, "volume: '5GiB': less than 10GiB fills up"),
        (Monitoring, {"volume": "50GB"}, "volume: '50GB': write a number with a unit, one of MiB, GiB, TiB"),
        (Monitoring, {"memory": "512MiB"}, "memory: '512MiB': below 1GiB Prometheus is killed"),
        (
            NodeAutoscaler,
            {**IN_CLUSTER, "kubernetes_version": "1.29"},
            "kubernetes_version: '1.29': no cluster-autosca",
        ),
        (
            NodeAutoscaler,
            {**IN_CLUSTER, "kubernetes_version": "1.35", "max_node_provision_time": 30},
            "max_node_provision_time: 30: write a number with a unit, one of ms, s, m, h",
        ),
        (LoadBalancerController, IN_CLUSTER, "vpc_id: required, but missing"),
    ],
)
def test_refuses(component: Callable[..., Any], args: dict[str, Any], message: str) -> None:
    if component is Monitoring:
        args = {"grafana_admin_password": "hunter2", **args}
    with pytest.raises(InvalidArgs) as error:
        record(lambda: component("bad", args))
    assert message in str(error.value)


def test_of_the_charts_alerts_those_stay_that_a_healthy_stack_does_not_set_off() -> None:
    usual = default_rules(MonitoringSettings())
    assert usual["disabled"] == {"KubeCPUOvercommit": True, "KubeMemoryOvercommit": True}
    assert (usual["appNamespacesOperator"], usual["appNamespacesTarget"]) == ("!~", "inference")
    own = MonitoringSettings.model_validate({"disabledRules": [], "serviceNamespaces": ["llm", "batch"]})
    assert default_rules(own) == {"disabled": {}, "appNamespacesOperator": "!~", "appNamespacesTarget": "llm|batch"}
    assert default_rules(MonitoringSettings(service_namespaces=[])).keys() == {"disabled"}
