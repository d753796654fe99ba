"""`GpuNodePool`: launch template, capacity kinds, EFA, autoscaler hints, and what it refuses."""

import base64
import datetime
import email
import os
import subprocess
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
import yaml

from eks_llm.aws.node_pool import (
    Capacity,
    CapacityKind,
    GpuNodePool,
    PoolSettings,
    block_warning,
    efa_interfaces,
    node_config,
    pod_storage_gib,
    root_gib,
    root_throughput,
    user_data,
)
from eks_llm.catalog.eks import AmiType
from eks_llm.catalog.instances import INSTANCES
from eks_llm.core.problems import InvalidArgs
from eks_llm.core.quantities import Size
from eks_llm.plan.recorder import Recording, record

BLOCK = {"kind": "capacityBlock", "id": "cr-0123456789abcdef0"}
RESERVATION = {"kind": "reservation", "id": "cr-0123456789abcdef0"}
NO_DISKS = INSTANCES["p4d.24xlarge"].model_copy(update={"nvme_disks": 0, "nvme_gb": 0})
BASIC: dict[str, Any] = {
    "instance_type": "p4d.24xlarge",
    "zone": "us-west-2b",
    "nodes": {"min": 1, "max": 4},
    "cluster_name": "dev",
    "kubernetes_version": "1.35",
    "subnet_id": "subnet-00000001",
    "security_group_id": "sg-0000000c",
    "node_role_arn": "arn:aws:iam::111122223333:role/node",
}


def pool(**args: Any) -> Recording:
    return record(lambda: GpuNodePool("a100", {**BASIC, **args}))  # type: ignore[typeddict-item]


def group(run: Recording) -> dict[str, Any]:
    return run.one("NodeGroup").inputs


def template(run: Recording) -> dict[str, Any]:
    return run.one("LaunchTemplate").inputs


def parsed(data: str) -> tuple[str, dict[str, Any]]:
    """Content type and document of the only part of user data, read as nodeadm does."""
    message = email.message_from_bytes(base64.b64decode(data))
    assert message.get_content_type() == "multipart/mixed"
    part, *_ = message.get_payload()
    return part.get_content_type(), yaml.safe_load(part.get_payload(decode=True))  # type: ignore[union-attr]


# Node and launch template -------------------------------------------------------------------------------------------


def test_user_data_makes_one_array_of_the_disks_and_pulls_images_in_parallel() -> None:
    content_type, config = parsed(template(pool())["userData"])
    assert content_type == "application/node.eks.aws"
    assert config == {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "featureGates": {"FastImagePull": True},
            "instance": {"localStorage": {"strategy": "RAID0"}},
        },
    }


def test_user_data_leaves_to_eks_what_eks_writes() -> None:
    assert not {"cluster", "kubelet"} & set(parsed(template(pool())["userData"])[1]["spec"])


def test_a_type_without_disks_gets_no_array_and_a_large_fast_root() -> None:
    assert "instance" not in yaml.safe_load(node_config(NO_DISKS))["spec"]
    assert root_gib(NO_DISKS, None) == 200
    assert root_throughput(NO_DISKS) >= 600  # nodeadm's documentation of FastImagePull
    assert root_gib(INSTANCES["p4d.24xlarge"], None) == 50


def test_user_data_never_changes_by_itself() -> None:
    instance = INSTANCES["p4d.24xlarge"]
    assert user_data(instance) == user_data(instance)


def test_a_node_makes_the_folder_for_pods_once_its_array_is_mounted(tmp_path: Path) -> None:
    parts: Any = message_from_bytes(base64.b64decode(template(pool())["userData"])).get_payload()
    script = parts[1]
    assert script.get_content_type() == "text/x-shellscript"
    text = script.get_payload().replace("/mnt/k8s-disks/0", str(tmp_path / "array"))
    log = tmp_path / "log"
    for name, body in {
        "systemd-run": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
        "mountpoint": f'echo looked >> "{log}"; [ -d "$2" ] || {{ mkdir "$2"; exit 1; }}',
        "sleep": "exit 0",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    subprocess.run(["sh", "-c", text], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True, timeout=60)
    assert log.read_text() == "looked\n" * 2, "first it is no mount"
    assert (tmp_path / "array" / "eks-llm").is_dir()


def test_a_type_without_disks_makes_no_folder() -> None:
    document = message_from_bytes(base64.b64decode(user_data(NO_DISKS)))
    assert len(document.get_payload()) == 1


def test_the_template_holds_nothing_that_eks_forbids() -> None:
    made = template(pool())
    assert made["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": 1,
    }
    assert made["vpcSecurityGroupIds"] == ["sg-0000000c"]
    # EKS user guide: no image here, or EKS would neither choose one nor join the node; no profile, no subnet.
    assert not {"imageId", "iamInstanceProfile", "networkInterfaces", "instanceType"} & set(made)


def test_the_root_volume_is_encrypted_and_can_be_sized() -> None:
    disk = template(pool(root_volume="300GiB"))["blockDeviceMappings"][0]["ebs"]
    assert (disk["volumeSize"], disk["volumeType"], disk["encrypted"]) == (300, "gp3", "true")


def test_tags_reach_instances_volumes_and_interfaces() -> None:
    specs = template(pool(tags={"team": "ml"}))["tagSpecifications"]
    assert {spec["resourceType"] for spec in specs} == {"instance", "volume", "network-interface"}
    assert all(spec["tags"] == {"Name": "a100", "team": "ml"} for spec in specs)


# Node group ---------------------------------------------------------------------------------------------------------


def test_one_zone_one_type_one_pinned_image() -> None:
    made = group(pool())
    assert made["subnetIds"] == ["subnet-00000001"]
    assert made["instanceTypes"] == ["p4d.24xlarge"]
    assert (made["amiType"], made["version"], made["releaseVersion"]) == (
        "AL2023_x86_64_NVIDIA", "1.35", "1.35.6-20260714",
    )  # fmt: skip
    assert group(pool(ami_release="1.35.6-20260818"))["releaseVersion"] == "1.35.6-20260818"
    assert made["launchTemplate"] == {"id": "‹a100-nodes.id›", "version": "1"}


def test_the_autoscaler_owns_the_number_of_nodes() -> None:
    run = pool()
    assert group(run)["scalingConfig"] == {"minSize": 1, "maxSize": 4, "desiredSize": 1}
    assert run.one("NodeGroup").ignore_changes == ("scalingConfig.desiredSize",)


def test_labels_and_taint_keep_the_pool_for_its_services() -> None:
    made = group(pool())
    assert made["labels"] == {
        "eks-llm.dev/pool": "a100",
        "k8s.amazonaws.com/accelerator": "nvidia-tesla-a100",
        "nvidia.com/gpu.present": "true",
    }
    assert made["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]


def test_an_empty_pool_tells_the_autoscaler_about_its_disks() -> None:
    tags = group(pool())["tags"]
    assert set(tags) == {"k8s.io/cluster-autoscaler/node-template/resources/ephemeral-storage"}
    size = tags["k8s.io/cluster-autoscaler/node-template/resources/ephemeral-storage"]
    # 8 x 1,000 GB are 7,450 GiB; kubelet's hard eviction threshold takes a tenth.
    assert 6500 < int(size.removesuffix("Gi")) < 7450 * 0.9


def test_pods_of_a_type_without_disks_share_the_root_volume() -> None:
    assert 100 < pod_storage_gib(NO_DISKS, 200) < 180


def test_nodes_are_repaired_one_at_a_time() -> None:
    assert group(pool())["nodeRepairConfig"] == {"enabled": True, "maxParallelNodesRepairedCount": 1}


# Capacity -----------------------------------------------------------------------------------------------------------


def test_on_demand_gets_the_new_node_before_it_gives_up_the_old() -> None:
    made = group(pool())
    assert (made["capacityType"], made["updateConfig"]) == (
        "ON_DEMAND", {"maxUnavailable": 1, "updateStrategy": "DEFAULT"},
    )  # fmt: skip
    assert "capacityReservationSpecification" not in template(pool())


def test_spot() -> None:
    run = pool(capacity={"kind": "spot"})
    assert group(run)["capacityType"] == "SPOT"
    assert "instanceMarketOptions" not in template(run)  # EKS asks for spot itself


def test_a_reservation_is_used_and_nothing_beyond_it() -> None:
    run = pool(capacity=RESERVATION)
    assert group(run)["capacityType"] == "ON_DEMAND"
    assert group(run)["updateConfig"]["updateStrategy"] == "MINIMAL"
    assert template(run)["capacityReservationSpecification"] == {
        "capacityReservationPreference": "capacity-reservations-only",
        "capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"},
    }


def test_a_capacity_block_starts_empty_with_its_type_in_the_template() -> None:
    run = pool(capacity=BLOCK, nodes={"min": 0, "max": 2})
    assert group(run)["capacityType"] == "CAPACITY_BLOCK"
    assert group(run)["scalingConfig"] == {"minSize": 0, "maxSize": 2, "desiredSize": 0}
    assert "instanceTypes" not in group(run)
    made = template(run)
    assert made["instanceType"] == "p4d.24xlarge"
    assert made["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert made["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}
    }


def test_a_block_that_has_ended_gives_a_warning() -> None:
    end = datetime.datetime(2026, 12, 14, 11, 30, tzinfo=datetime.UTC)
    block = Capacity(kind=CapacityKind.CAPACITY_BLOCK, id="cr-0123456789abcdef0", ends_at=end)
    assert block_warning(block, end - datetime.timedelta(minutes=1)) is None
    assert "ended at 2026-12-14T11:30:00+00:00" in (block_warning(block, end) or "")
    run = pool(capacity={**BLOCK, "ends_at": "2026-01-02T11:30:00Z"}, nodes={"min": 0, "max": 2})
    assert "this pool gets no nodes any more" in run.warnings[0]


# EFA and placement --------------------------------------------------------------------------------------------------


def places(instance_type: str) -> list[tuple[int, int, str]]:
    return [
        (made["network_card_index"], made["device_index"], made["interface_type"])  # type: ignore[typeddict-item]
        for made in efa_interfaces(INSTANCES[instance_type], ["sg-00000001"])
    ]


def test_efa_layout_of_p4d() -> None:
    # EC2 user guide, "Maximize network bandwidth on instances with multiple network cards".
    assert places("p4d.24xlarge") == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
        (3, 0, "efa-only"),
    ]


@pytest.mark.parametrize("name", [name for name, facts in INSTANCES.items() if facts.efa])
def test_efa_layout_of_every_type_that_has_it(name: str) -> None:
    instance, made = INSTANCES[name], places(name)
    assert made[0] == (0, 0, "interface")
    assert len(made) == instance.efa + 1
    assert len({place[:2] for place in made}) == len(made)  # aws-efa-nccl-baseami-pipeline issue 1: all on card 0
    assert {device for _, device, _ in made} <= {0, 1}  # terraform-aws-eks issue 2654: device index counted up
    assert max(card for card, _, _ in made) < instance.network_cards


def test_efa_interfaces_carry_both_groups_and_the_fabric_is_closed() -> None:
    run = pool(efa=True, vpc_id="vpc-00000001")
    made = template(run)
    assert "vpcSecurityGroupIds" not in made  # cannot be mixed with groups of interfaces
    assert all(nic["securityGroups"] == ["sg-0000000c", "‹a100-efa.id›"] for nic in made["networkInterfaces"])
    assert not any({"subnetId", "associatePublicIpAddress"} & set(nic) for nic in made["networkInterfaces"])
    fabric = run.one("SecurityGroup").inputs
    rule = {"self": True, "protocol": "-1", "fromPort": 0, "toPort": 0}
    assert (fabric["vpcId"], fabric["ingress"], fabric["egress"]) == ("vpc-00000001", [rule], [rule])
    assert group(run)["tags"]["k8s.io/cluster-autoscaler/node-template/resources/vpc.amazonaws.com/efa"] == "4"


def test_a_placement_group_only_on_request() -> None:
    assert pool().of("PlacementGroup") == []
    run = pool(placement_group=True)
    assert run.one("PlacementGroup").inputs == {"strategy": "cluster"}
    assert template(run)["placement"] == {"groupName": "a100-placement"}


# Instance types and images ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(INSTANCES))
def test_every_type_of_the_catalogue_makes_a_pool_or_says_what_it_lacks(name: str) -> None:
    if name.startswith("g7."):
        with pytest.raises(InvalidArgs, match="needs NVIDIA driver 595 or later; AL2023_x86_64_NVIDIA carries 580"):
            pool(instance_type=name)
    else:
        assert group(pool(instance_type=name))["instanceTypes"] == [name]


def test_efa_without_a_device_plugin_is_warned_of() -> None:
    assert pool().warnings == []
    (warning,) = pool(efa=True, vpc_id="vpc-00000001").warnings
    assert "nothing here installs one; install the chart aws-efa-k8s-device-plugin" in warning
    assert "a toleration of nvidia.com/gpu" in warning


def test_settings_of_a_stack_file() -> None:
    settings = PoolSettings.model_validate(
        {
            "instanceType": "p4d.24xlarge",
            "zone": "us-west-2b",
            "nodes": {"min": 0, "max": 2},
            "capacity": {"kind": "capacityBlock", "id": "cr-0123456789abcdef0", "endsAt": "2026-12-14T11:30:00Z"},
            "rootVolume": "100GiB",
        }
    )
    assert settings.ami_type is AmiType.AL2023_NVIDIA
    assert settings.root_volume == Size(100)
    assert template(pool(**settings.args()))["blockDeviceMappings"][0]["ebs"]["volumeSize"] == 100


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"instance_type": "p4d.24xlarg"}, "not a GPU instance type of the catalogue; did you mean 'p4d.24xlarge'?"),
        ({"zone": "us-west-2"}, "'us-west-2' is not an availability zone"),
        ({"nodes": {"min": 3, "max": 2}}, "nodes: min 3 is more than max 2"),
        ({"nodes": {"min": 0, "max": 0}}, "nodes.max: 0: input should be greater than or equal to 1"),
        ({"ami_type": "AL2023_x86_64_STANDARD"}, "has no NVIDIA driver, and p4d.24xlarge has GPUs"),
        ({"ami_type": "AL2023_ARM_64_NVIDIA"}, "AL2023_ARM_64_NVIDIA is an arm64 image, and p4d.24xlarge is x86_64"),
        ({"ami_type": "BOTTLEROCKET_x86_64_NVIDIA"}, "does not read nodeadm's NodeConfig"),
        ({"ami_type": "AL2_x86_64_GPU"}, "'AL2_x86_64_GPU' is not one of 'AL2023_x86_64_STANDARD'"),
        ({"ami_release": "20260714"}, "ami_release: '20260714' is not an AMI release such as 1.35.6-20260714"),
        ({"ami_release": "1.34.9-20260714"}, "is not a release for Kubernetes 1.35"),
        ({"kubernetes_version": "1.20"}, "kubernetes_version: '1.20' is not in the catalogue"),
        ({"instance_type": "g6.xlarge", "efa": True, "vpc_id": "vpc-00000001"}, "efa: g6.xlarge has no EFA interface"),
        ({"efa": True}, "vpc_id: required with efa"),
        ({"capacity": {"kind": "reservation"}}, "capacity: reservation needs the id of what was bought"),
        ({"capacity": {"kind": "capacityBlock"}}, "capacity: capacityBlock needs the id of what was bought"),
        ({"capacity": {"kind": "spot", "id": "cr-0123456789abcdef0"}}, "capacity: spot takes no id"),
        ({"capacity": {"id": "cr-0123456789abcdef0", "kind": "onDemand"}}, "capacity: onDemand takes no id"),
        ({"capacity": {"kind": "reservation", "id": "my-block"}}, "'my-block': not the id of a capacity reservation"),
        ({"capacity": {**RESERVATION, "ends_at": "2026-12-14T11:30:00Z"}}, "ends_at belongs to capacityBlock"),
        ({"capacity": {**BLOCK, "ends_at": "2026-12-14T11:30:00"}}, "input should have timezone info"),
        ({"capacity": BLOCK}, "nodes.min: set 0 with a capacityBlock"),
        ({"capacity": {"kind": "block"}}, "'block' is not one of 'onDemand', 'spot', 'reservation' or 'capacityBlock'"),
        ({"capacity": RESERVATION, "placement_group": True}, "EC2 answers InsufficientInstanceCapacity"),
        ({"capacity": BLOCK, "placement_group": True, "nodes": {"min": 0, "max": 1}}, "capacityBlock capacity that"),
        ({"nodes": {"min": 0, "max": 451}}, "nodes.max: 451: input should be less than or equal to 450"),
        ({"root_volume": "10GiB"}, "at least 20GiB"),
        ({"root_volume": "65TiB"}, "root_volume: '65TiB': a root volume is whole GiB, at least 20GiB, the size of the"),
        ({"tags": {"aws:owner": "x"}}, "aws:owner: AWS keeps tags that begin with aws: for itself"),
        ({"root_volume": "200"}, "write a number with a unit"),
    ],
)  # fmt: skip
def test_refuses(args: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgs) as error:
        pool(**args)
    assert message in str(error.value)
