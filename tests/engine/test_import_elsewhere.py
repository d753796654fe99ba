"""The components work in somebody else's repository: installed by pip into a fresh environment, without this tree."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.harness import ROOT

PROGRAM = '''
"""A GPU pool in a cluster of our own: three of the components."""

import pulumi
from eks_llm.aws.cluster import Cluster
from eks_llm.aws.network import Nat, Network
from eks_llm.aws.node_pool import GpuNodePool

config = pulumi.Config()
region = pulumi.Config("aws").require("region")
zones = [f"{region}a", f"{region}b"]

network = Network("lab", {"region": region, "zones": zones, "nat": Nat.SINGLE})
cluster = Cluster(
    "lab",
    {
        "version": "1.35",
        "admins": [config.require("admin")],
        "subnet_ids": network.private_subnet_ids.apply(lambda ids: list(ids.values())),
    },
)
pool = GpuNodePool(
    "a100",
    {
        "instance_type": "p4d.24xlarge",
        "zone": zones[0],
        "nodes": {"min": 0, "max": config.require_int("maxNodes")},
        "cluster_name": cluster.cluster_name,
        "kubernetes_version": "1.35",
        "subnet_id": network.private_subnet_ids[zones[0]],
        "security_group_id": cluster.security_group_id,
        "node_role_arn": cluster.node_role_arn,
    },
)
pulumi.export("nodeGroup", pool.node_group_name)
'''

STACK = """
config:
  aws:region: eu-west-1
  lab:admin: arn:aws:iam::111122223333:role/lab
  lab:maxNodes: 3
"""


def run(*command: str | Path, cwd: Path, limit: float = 600) -> str:
    # Neither this repository nor the environment of the tests is visible to what runs there.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A repository with the program, and beside it a virtual environment with the installed components."""
    sources = tmp_path / "components"  # a copy, because a build writes into its sources
    shutil.copytree(ROOT / "components", sources, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    run(sys.executable, "-m", "venv", "--without-pip", ".venv", cwd=tmp_path)
    # The program's pins make pip find its own cached files; byte code would take longer to write than it saves.
    pip = [sys.executable, "-m", "pip", "--python", tmp_path / ".venv" / "bin" / "python", "install"]
    pins = ["-c", ROOT / "requirements.txt"]
    run(*pip, "-q", "--no-compile", "--disable-pip-version-check", *pins, sources, cwd=tmp_path)
    shutil.rmtree(sources)

    repository = tmp_path / "lab"
    repository.mkdir()
    (repository / "Pulumi.yaml").write_text("name: lab\nruntime: python\n")
    (repository / "Pulumi.dev.yaml").write_text(STACK)
    (repository / "__main__.py").write_text(PROGRAM)
    return repository


@pytest.mark.slow
def test_a_program_with_three_components_plans_in_another_repository(elsewhere: Path) -> None:
    binaries = elsewhere.parent / ".venv" / "bin"
    where = run(binaries / "python", "-c", "import eks_llm; print(eks_llm.__file__)", cwd=elsewhere)
    assert Path(where).is_relative_to(elsewhere.parent / ".venv")

    plan = json.loads(run(binaries / "eks-llm", "plan", "dev", "--format", "json", cwd=elsewhere))
    assert plan["project"] == "lab"
    assert [node["kind"] for node in plan["tree"]] == ["Network", "Cluster", "GpuNodePool"]
    assert plan["totals"]["gpus"] == {"min": 0, "max": 24}  # three p4d.24xlarge of eight A100
