"""The catalogue of EKS: dates that fit AWS's rules, pins for every supported version, images that the code can name."""

import datetime
import re

import pytest

from eks_llm.catalog.eks import AMI_TYPES, CONTROL_PLANE_USD, KUBERNETES, AmiType, architecture

SUPPORTED = {name: facts for name, facts in KUBERNETES.items() if facts.addons}
ADDONS = {
    "vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns", "aws-ebs-csi-driver", "metrics-server",
    "eks-node-monitoring-agent",
}  # fmt: skip


@pytest.mark.parametrize("version", KUBERNETES)
def test_support_lasts_as_aws_says(version: str) -> None:
    facts = KUBERNETES[version]
    # EKS user guide: 14 months of standard support after the release, then 12 months of extended support.
    assert facts.extended_until == facts.standard_until.replace(year=facts.standard_until.year + 1)
    assert 13 * 30 <= (facts.standard_until - facts.release).days <= 15 * 31


def test_dates_of_the_user_guide() -> None:
    assert KUBERNETES["1.34"].standard_until == datetime.date(2026, 12, 2)
    assert KUBERNETES["1.32"].extended_until == datetime.date(2027, 3, 23)


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_supported_version_pins_all_addons_and_the_image(version: str) -> None:
    facts = SUPPORTED[version]
    assert set(facts.addons) == ADDONS
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", build) for build in facts.addons.values())
    assert facts.addons["kube-proxy"].startswith(f"v{version}.")
    assert re.fullmatch(re.escape(version) + r"\.\d+-20\d{6}", facts.ami_release)
    assert set(facts.unverified) <= ADDONS | {"release"}


def test_code_and_catalogue_name_the_same_images() -> None:
    assert {ami.value for ami in AmiType} == set(AMI_TYPES)
    for name, facts in AMI_TYPES.items():
        assert facts.nvidia == name.endswith("_NVIDIA")
        assert facts.architecture == ("arm64" if "_ARM_64_" in name else "x86_64")


def test_what_the_nvidia_images_ship() -> None:
    # EKS user guide, "EKS-optimized accelerated AMIs": only Bottlerocket runs the device plugin itself.
    assert AmiType.AL2023_NVIDIA.facts.driver == "580.159.03"
    assert AmiType.AL2023_NVIDIA.facts.container_toolkit
    assert not AmiType.AL2023_NVIDIA.facts.device_plugin
    assert AmiType.BOTTLEROCKET_NVIDIA.facts.device_plugin
    assert AmiType.BOTTLEROCKET_NVIDIA.family == "bottlerocket"


def test_extended_support_costs_six_times_as_much() -> None:
    assert CONTROL_PLANE_USD == {"standard": 0.10, "extended": 0.60}


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("p4d.24xlarge", "x86_64"),
        ("g6e.xlarge", "x86_64"),
        ("p6-b200.48xlarge", "x86_64"),
        ("m7i.large", "x86_64"),
        ("g5g.xlarge", "arm64"),
        ("m7gd.large", "arm64"),
        ("im4gn.large", "arm64"),
        ("t4g.small", "arm64"),
        ("p6e-gb200.36xlarge", "arm64"),
    ],
)
def test_architecture_follows_from_the_name(instance_type: str, expected: str) -> None:
    assert architecture(instance_type) == expected
