"""Builders that the launch templates of system and GPU nodes share. Pure: values in, plain data out."""

import re

import pulumi_aws as aws

METADATA_OPTIONS: aws.ec2.LaunchTemplateMetadataOptionsArgsDict = {
    "http_endpoint": "enabled",
    "http_tokens": "required",
    "http_put_response_hop_limit": 1,
}
"""IMDSv2 only, and one hop: a pod cannot take the node's role. Pods get their own roles from Pod Identity."""

REPAIR: aws.eks.NodeGroupNodeRepairConfigArgsDict = {"enabled": True, "max_parallel_nodes_repaired_count": 1}
"""EKS replaces or reboots a node whose conditions stay bad; one at a time, as nodes are few and dear."""


def root_volume(gib: int, throughput_mibs: int) -> list[aws.ec2.LaunchTemplateBlockDeviceMappingArgsDict]:
    """An encrypted gp3 root volume. gp3 needs 1 IOPS per 0.25 MiB/s and has 3,000 in its price (EBS user guide)."""
    return [
        {
            "device_name": "/dev/xvda",
            "ebs": {
                "volume_type": "gp3",
                "volume_size": gib,
                "throughput": throughput_mibs,
                "iops": max(3000, throughput_mibs * 4),
                "encrypted": "true",
                "delete_on_termination": "true",
            },
        }
    ]


def tag_specifications(tags: dict[str, str]) -> list[aws.ec2.LaunchTemplateTagSpecificationArgsDict]:
    """Tags for what an instance brings along: neither node-group tags nor the provider's default tags reach these."""
    return [{"resource_type": kind, "tags": tags} for kind in ("instance", "volume", "network-interface")]


def release_problem(release: str, kubernetes_version: str) -> str | None:
    """What is wrong with an AMI release such as `1.35.6-20260714` on nodes of a Kubernetes minor."""
    if not re.fullmatch(r"\d+\.\d+\.\d+-20\d{6}", release):
        return f"{release!r} is not an AMI release such as 1.35.6-20260714 (amazon-eks-ami, CHANGELOG.md)"
    if not release.startswith(f"{kubernetes_version}."):
        return f"{release!r} is not a release for Kubernetes {kubernetes_version}"
    return None
