"""`Cluster`: who gets in, what is encrypted and pinned, in which order it comes up, and what it refuses."""

import json
from datetime import date
from typing import Any

import pulumi
import pytest

from eks_llm.aws import cluster as module
from eks_llm.aws.cluster import Cluster, LogType, admin_key, kubeconfig, support_problem, support_warning
from eks_llm.aws.node_pool import GpuNodePool
from eks_llm.core.problems import InvalidArgs
from eks_llm.plan.recorder import Recording, Resource, record

ADMIN = "arn:aws:iam::111122223333:role/platform-admin"
CI = "arn:aws:iam::111122223333:role/github-deploy"
TODAY = date(2026, 11, 29)


@pytest.fixture(autouse=True)
def _on_a_fixed_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_today", lambda: TODAY)


def cluster(**args: Any) -> Recording:
    basic = {"version": "1.35", "admins": [ADMIN], "subnet_ids": ["subnet-00000001", "subnet-00000002"]}
    return record(lambda: Cluster("dev", {**basic, **args}))  # type: ignore[typeddict-item]


def control_plane(run: Recording) -> Resource:
    return run.one("aws:eks/cluster:Cluster")


def before(run: Recording, resource: Resource) -> set[str]:
    """Names of everything that exists before `resource` does, with its kind."""
    by_urn = {item.urn: item for item in run.resources}
    todo, seen = [resource], set()
    while todo:
        for urn in todo.pop().dependencies - seen:
            if urn in by_urn:
                seen.add(urn)
                todo.append(by_urn[urn])
    return {f"{by_urn[urn].kind} {by_urn[urn].name}" for urn in seen}


# Access -------------------------------------------------------------------------------------------------------------


def test_only_the_named_administrators_get_in() -> None:
    run = cluster(admins=[ADMIN, CI])
    assert control_plane(run).inputs["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": False,
    }
    assert {entry.inputs["principalArn"] for entry in run.of("AccessEntry")} == {ADMIN, CI}
    for association in run.of("AccessPolicyAssociation"):
        assert association.inputs["accessScope"] == {"type": "cluster"}
        assert f"AccessEntry {association.name}" in before(run, association)


def test_administrators_of_equal_role_names_do_not_collide() -> None:
    other = ADMIN.replace("111122223333", "444455556666")
    assert admin_key(ADMIN) == "111122223333-role-platform-admin"
    assert len(cluster(admins=[ADMIN, other]).of("AccessEntry")) == 2


def test_administrators_of_like_role_names_do_not_collide() -> None:
    # IAM: role names have letters, digits and +=,.@-_ and a path
    roles = ["role/a-b", "role/a_b", "role/a.b", "role/a/b", "role/a--b", "user/a-b"]
    admins = [f"arn:aws:iam::111122223333:{role}" for role in roles]
    assert len({admin_key(admin) for admin in admins}) == len(roles)
    assert len(cluster(admins=admins).of("AccessEntry")) == len(roles)


@pytest.mark.parametrize("name", ["m7i.xlarge", "c7i-flex.2xlarge", "t3.medium", "m7i.metal-24xl", "u-6tb1.56xlarge"])
def test_instance_types_of_system_nodes(name: str) -> None:
    assert cluster(system_nodes={"instance_types": [name]}).one("NodeGroup").inputs["instanceTypes"] == [name]


def test_without_public_ranges_only_the_vpc_reaches_the_api() -> None:
    vpc = control_plane(cluster()).inputs["vpcConfig"]
    assert vpc == {
        "subnetIds": ["subnet-00000001", "subnet-00000002"],
        "endpointPrivateAccess": True,
        "endpointPublicAccess": False,
    }


def test_public_ranges_open_the_endpoint_to_them_only() -> None:
    vpc = control_plane(cluster(public_access_cidrs=["203.0.113.0/24"])).inputs["vpcConfig"]
    assert (vpc["endpointPrivateAccess"], vpc["endpointPublicAccess"]) == (True, True)
    assert vpc["publicAccessCidrs"] == ["203.0.113.0/24"]


def test_an_open_endpoint_has_to_be_accepted() -> None:
    run = cluster(public_access_cidrs=["0.0.0.0/0"], accept_open_endpoint=True)
    assert control_plane(run).inputs["vpcConfig"]["publicAccessCidrs"] == ["0.0.0.0/0"]


# Control plane ------------------------------------------------------------------------------------------------------


def test_secrets_are_encrypted_with_a_key_that_rotates() -> None:
    run = cluster()
    key = run.one("Key")
    assert key.inputs["enableKeyRotation"] is True
    assert control_plane(run).inputs["encryptionConfig"] == {
        "resources": ["secrets"],
        "provider": {"keyArn": key.outputs["arn"]},
    }


def test_logs_are_kept_for_a_while_not_for_ever() -> None:
    run = cluster(log_types=[LogType.AUDIT], log_retention_days=30)
    group = run.one("LogGroup")
    assert group.inputs == {"name": "/aws/eks/dev/cluster", "retentionInDays": 30}
    assert control_plane(run).inputs["enabledClusterLogTypes"] == ["audit"]
    assert "LogGroup dev-logs" in before(run, control_plane(run))


def test_no_logs_no_group() -> None:
    assert cluster(log_types=[]).of("LogGroup") == []


def test_the_upgrade_policy_is_spelled_out_and_protection_is_opt_in() -> None:
    assert control_plane(cluster()).inputs["upgradePolicy"] == {"supportType": "EXTENDED"}
    assert control_plane(cluster()).inputs["deletionProtection"] is False
    assert control_plane(cluster(deletion_protection=True)).inputs["deletionProtection"] is True
    assert control_plane(cluster()).inputs["bootstrapSelfManagedAddons"] is False


# Add-ons and nodes --------------------------------------------------------------------------------------------------


def test_addons_are_pinned_and_come_in_the_order_that_nodes_need() -> None:
    run = cluster()
    addons = {addon.inputs["addonName"]: addon for addon in run.of("Addon")}
    assert all(addon.inputs["addonVersion"].startswith("v") for addon in addons.values())
    nodes = run.one("NodeGroup")
    first = {"eks-pod-identity-agent", "vpc-cni", "kube-proxy"}
    assert {f"Addon dev-{name}" for name in first} <= before(run, nodes)
    for name in set(addons) - first:
        assert "NodeGroup dev-system" in before(run, addons[name]), name
    assert set(addons) - first == {"coredns", "aws-ebs-csi-driver", "metrics-server", "eks-node-monitoring-agent"}
    # The CNI takes its credentials from the agent (amazon-vpc-cni-k8s issue 3840: it crashes without).
    assert "Addon dev-eks-pod-identity-agent" in before(run, addons["vpc-cni"])


def test_gpu_pools_come_after_the_addons_without_which_their_nodes_fail() -> None:
    def program() -> None:
        subnets = ["subnet-00000001", "subnet-00000002"]
        made = Cluster("dev", {"version": "1.35", "admins": [ADMIN], "subnet_ids": subnets})
        GpuNodePool(
            "a100",
            {
                "instance_type": "p4d.24xlarge",
                "zone": "us-west-2b",
                "nodes": {"min": 1, "max": 1},
                "cluster_name": made.cluster_name,
                "kubernetes_version": "1.35",
                "subnet_id": "subnet-00000001",
                "security_group_id": made.security_group_id,
                "node_role_arn": made.node_role_arn,
            },
        )

    run = record(program)
    assert {"Addon dev-vpc-cni", "Addon dev-kube-proxy", "RolePolicyAttachment dev-node-images"} <= before(
        run, run.one("NodeGroup", "a100-nodes")
    )


def test_an_addon_build_can_be_overridden() -> None:
    run = cluster(addons={"vpc-cni": "v1.23.0-eksbuild.1"})
    assert run.one("Addon", "dev-vpc-cni").inputs["addonVersion"] == "v1.23.0-eksbuild.1"


def test_network_policy_is_on_and_addresses_are_not_hoarded() -> None:
    values = json.loads(cluster().one("Addon", "dev-vpc-cni").inputs["configurationValues"])
    assert values["enableNetworkPolicy"] == "true"  # a string: the add-on's schema refuses a boolean
    assert set(values["env"]) == {"MINIMUM_IP_TARGET", "WARM_IP_TARGET"}
    assert all(isinstance(value, str) for value in values["env"].values())


def test_the_gpu_probe_tolerates_the_taint_of_gpu_nodes() -> None:
    values = json.loads(cluster().one("Addon", "dev-eks-node-monitoring-agent").inputs["configurationValues"])
    assert values["dcgmAgent"]["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_nodes_hold_no_permissions_of_the_cni_or_the_disk_driver() -> None:
    run = cluster()
    granted = {item.inputs["role"]: set() for item in run.of("RolePolicyAttachment")}
    for item in run.of("RolePolicyAttachment"):
        granted[item.inputs["role"]].add(item.inputs["policyArn"].rsplit("/", 1)[-1])
    assert granted["dev-node"] == {
        "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore",
    }  # fmt: skip
    assert granted["dev-vpc-cni"] == {"AmazonEKS_CNI_Policy"}
    assert granted["dev-aws-ebs-csi-driver"] == {"AmazonEBSCSIDriverPolicy"}
    trust = json.loads(run.one("Role", "dev-vpc-cni").inputs["assumeRolePolicy"])["Statement"][0]
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-name": "dev",
        "aws:RequestTag/kubernetes-namespace": "kube-system",
        "aws:RequestTag/kubernetes-service-account": "aws-node",
    }
    association = run.one("Addon", "dev-vpc-cni").inputs["podIdentityAssociations"]
    assert association == [{"roleArn": run.one("Role", "dev-vpc-cni").outputs["arn"], "serviceAccount": "aws-node"}]


def test_system_nodes_shut_the_metadata_service_to_pods_and_encrypt_their_disk() -> None:
    template = cluster(tags={"team": "ml"}).one("LaunchTemplate").inputs
    assert template["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": 1,
    }
    disk = template["blockDeviceMappings"][0]
    assert (disk["deviceName"], disk["ebs"]["volumeType"], disk["ebs"]["encrypted"]) == ("/dev/xvda", "gp3", "true")
    assert {spec["resourceType"] for spec in template["tagSpecifications"]} == {
        "instance",
        "volume",
        "network-interface",
    }
    assert all(spec["tags"]["team"] == "ml" for spec in template["tagSpecifications"])


def test_system_nodes_belong_to_the_autoscaler_within_their_range() -> None:
    group = cluster(system_nodes={"min": 3, "max": 5}).one("NodeGroup")
    assert group.inputs["scalingConfig"] == {"minSize": 3, "maxSize": 5, "desiredSize": 3}
    assert group.ignore_changes == ("scalingConfig.desiredSize",)
    assert group.inputs["releaseVersion"] == "1.35.6-20260714"
    assert group.inputs["amiType"] == "AL2023_x86_64_STANDARD"
    assert group.inputs["nodeRepairConfig"]["enabled"] is True


def test_the_provider_asks_for_tokens_and_comes_after_access_and_addons() -> None:
    run = cluster()
    provider = run.one("pulumi:providers:kubernetes")
    config = json.loads(provider.inputs["kubeconfig"])
    assert config["users"][0]["user"]["exec"]["args"][:4] == ["eks", "get-token", "--cluster-name", "dev"]
    assert provider.inputs["clusterIdentifier"] == control_plane(run).outputs["arn"]
    earlier = before(run, provider)
    assert f"AccessPolicyAssociation dev-admin-{admin_key(ADMIN)}" in earlier
    assert {"Addon dev-coredns", "Addon dev-aws-ebs-csi-driver", "NodeGroup dev-system"} <= earlier


def test_a_kubeconfig_holds_no_secret() -> None:
    config = json.loads(kubeconfig("dev", "us-west-2", "https://x", "Q0E="))
    assert config["clusters"][0]["cluster"] == {"server": "https://x", "certificate-authority-data": "Q0E="}
    user = config["users"][0]["user"]
    assert list(user) == ["exec"]
    assert user["exec"]["command"] == "aws"
    assert user["exec"]["args"][4:6] == ["--region", "us-west-2"]


def test_everything_is_a_child_of_the_component() -> None:
    run = cluster()
    parent = run.resources[0]
    assert parent.type == "eks-llm:index:Cluster"
    assert {item.parent for item in run.resources[1:]} == {parent.urn}
    assert set(run.outputs[parent.urn]) == {
        "clusterName", "arn", "endpoint", "certificateAuthority", "securityGroupId", "nodeRoleArn",
    }  # fmt: skip


# Kubernetes versions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "day", "problem", "warning"),
    [
        ("1.35", TODAY, None, None),
        ("1.34", TODAY, None, None),
        ("1.34", date(2026, 12, 2), None, "in extended support since 2026-12-02"),
        ("1.33", TODAY, None, "0.50 USD per hour more (about 365 USD a month)"),
        ("1.33", date(2027, 7, 29), "out of support on EKS since 2027-07-29", None),
        ("1.31", TODAY, "out of support on EKS since 2026-11-26", None),
        ("1.99", TODAY, "(use 1.36, 1.35, 1.34, 1.33, 1.32)", None),
    ],
)
def test_support_of_a_version_by_date(version: str, day: date, problem: str | None, warning: str | None) -> None:
    found = support_problem(version, day)
    assert (problem in found) if problem and found else (found == problem)
    if not problem:
        said = support_warning(version, day)
        assert (warning in said) if warning and said else (said == warning)


def test_extended_support_is_warned_of_in_the_preview() -> None:
    assert cluster().warnings == []
    assert "Kubernetes 1.33 is in extended support" in cluster(version="1.33").warnings[0]


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"version": "1.31"}, "version: '1.31': out of support on EKS since 2026-11-26"),
        ({"version": "1.4"}, "version: '1.4': not a Kubernetes version of the catalogue (use 1.36"),
        ({"admins": []}, "name at least one administrator, or nobody can reach the cluster"),
        ({"admins": [ADMIN, ADMIN]}, "an administrator is listed twice"),
        ({"admins": ["platform-admin"]}, "admins[0]: 'platform-admin': not an ARN"),
        ({"admins": ["arn:aws:s3:::bucket"]}, "not an IAM role or user"),
        ({"admins": ["arn:aws:sts::111122223333:assumed-role/a/b"]}, "a session is not a principal"),
        ({"public_access_cidrs": ["0.0.0.0/0"]}, "public_access_cidrs: 0.0.0.0/0 opens the API server to the internet"),
        ({"public_access_cidrs": ["0.0.0.0/1", "128.0.0.0/1"]}, "0.0.0.0/0 opens the API server"),
        # two /9 hold as much as one /8, and a /16 more
        (
            {"public_access_cidrs": ["3.0.0.0/9", "18.0.0.0/9", "52.0.0.0/16"]},
            "public_access_cidrs: 3.0.0.0/9, 18.0.0.0/9, 52.0.0.0/16 opens the API server to the internet",
        ),
        (
            {"public_access_cidrs": [f"203.0.113.{i}/32" for i in range(41)]},
            "public_access_cidrs: 41 ranges; EKS takes at most 40",
        ),
        ({"public_access_cidrs": ["203.0.113.7/24"]}, "not an IPv4 range"),
        ({"service_cidr": "10.0.0.0/8"}, "private and /12 to /24"),
        ({"service_cidr": "169.254.0.0/16"}, "private and /12 to /24"),
        ({"service_cidr": "100.64.0.0/16"}, "private and /12 to /24"),
        ({"service_cidr": "8.8.0.0/16"}, "private and /12 to /24"),
        ({"log_types": ["audits"]}, "'audits' is not one of 'api', 'audit'"),
        ({"log_retention_days": 31}, "log_retention_days: 31: logs can be kept for 1, 3, 5"),
        ({"system_nodes": {"min": 3, "max": 2}}, "system_nodes: min 3 is more than max 2"),
        ({"system_nodes": {"min": 0}}, "system_nodes.min: 0: input should be greater than or equal to 1"),
        ({"system_nodes": {"instance_types": []}}, "name 1 to 20 instance types (EKS), each once"),
        ({"system_nodes": {"instance_types": ["m7i.xlarge"] * 2}}, "name 1 to 20 instance types (EKS), each once"),
        (
            {"system_nodes": {"instance_types": ["nonsense"]}},
            "'nonsense' is not an EC2 instance type such as m7i.xlarge",
        ),
        ({"system_nodes": {"max": 451}}, "system_nodes.max: 451: input should be less than or equal to 450"),
        ({"tags": {"aws:owner": "x"}}, "aws:owner: AWS keeps tags that begin with aws: for itself"),
        ({"admins": ["arn:aws-us-gov:iam::111122223333:role/a"]}, "of another partition than arn:aws"),
        ({"system_nodes": {"instance_types": ["p4d.24xlarge"]}}, "p4d.24xlarge has GPUs"),
        ({"system_nodes": {"instance_types": ["m7g.large"]}}, "m7g.large is an arm64 type"),
        ({"system_nodes": {"ami_release": "1.34.9-20260714"}}, "is not a release for Kubernetes 1.35"),
        ({"system_nodes": {"ami_release": "latest"}}, "'latest' is not an AMI release such as"),
        ({"addons": {"vpc-cn": "v1.23.0-eksbuild.1"}}, "addons.vpc-cn: not an add-on of this cluster; did you mean"),
        ({"addons": {"vpc-cni": "latest"}}, "addons.vpc-cni: 'latest' is not a build such as v1.22.3-eksbuild.1"),
        ({"addons": {"kube-proxy": "v1.34.6-eksbuild.13"}}, "is not a build for Kubernetes 1.35"),
        ({"versoin": "1.35"}, "versoin: unknown key; did you mean 'version'?"),
    ],
)
def test_refuses(args: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgs) as error:
        cluster(**args)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "ids", [["subnet-00000001"], [], ["subnet-00000001", "subnet-00000001"], ["subnet-00000001", "vpc-00000001"]]
)
def test_refuses_subnets_that_eks_would(ids: list[str]) -> None:
    with pytest.raises(InvalidArgs, match="subnet_ids"):
        cluster(subnet_ids=ids)


def test_subnets_may_be_known_later() -> None:
    def program() -> None:
        ids: list[Any] = [pulumi.Output.from_input("subnet-00000001"), "subnet-00000002"]
        Cluster("dev", {"version": "1.35", "admins": [ADMIN], "subnet_ids": ids})

    made = control_plane(record(program)).inputs["vpcConfig"]["subnetIds"]
    assert made == ["subnet-00000001", "subnet-00000002"]
