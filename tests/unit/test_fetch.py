"""The script that copies weights to a node, run by a POSIX shell with a stand-in for rclone."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from eks_llm.serving.fetch import SCRIPT, init_container

RCLONE = """#!/bin/sh
echo "$2" >> "$LOG"
sleep "${SLOW:-0}"
mkdir -p "$3" && if [ "$RESULT" = 0 ]; then touch "$3/${FILE:-config.json}"; fi
exit "$RESULT"
"""
SHM = Path("/dev/shm")


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    """A node whose NVMe folder is on another device than its parent, as a mount is."""
    program = tmp_path / "bin" / "rclone"
    program.parent.mkdir()
    program.write_text(RCLONE)
    program.chmod(0o755)
    chown = tmp_path / "bin" / "chown"  # tests need not be root
    chown.write_text("#!/bin/sh\n")
    chown.chmod(0o755)
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "NVME": str(tmp_path / "disks" / "0"),
        "SOURCE": "s3://acme-models/llama/1/",
        "TARGET": str(tmp_path / "disks" / "0" / "models" / "abc"),
        "CACHE": str(tmp_path / "disks" / "0" / "cache" / "inference-llama"),
        "OWNER": "2000:0",
        "AWS_REGION": "us-west-2",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials",
        "LOG": str(tmp_path / "log"),
        "RESULT": "0",
    }


def mounted(script: str) -> str:
    """The script as it runs where the folder is a mount, which a test cannot arrange without privileges."""
    return script.replace('"$(stat -c %d "$NVME/..")"', '"another device"')


def start(script: str, node: dict[str, str]) -> "subprocess.Popen[str]":
    Path(node["NVME"]).mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(["sh", "-ceu", script], env=node, stderr=subprocess.PIPE, text=True, start_new_session=True)


def run(script: str, node: dict[str, str]) -> tuple[int, str]:
    process = start(script, node)
    _, errors = process.communicate(timeout=20)
    return process.returncode, errors


def copies(node: dict[str, str]) -> list[str]:
    log = Path(node["LOG"])
    return log.read_text().splitlines() if log.exists() else []


def test_a_folder_on_the_root_disk_is_refused_before_anything_is_written(node: dict[str, str]) -> None:
    code, errors = run(SCRIPT, node)
    assert code == 1
    assert "is not a mount" in errors
    assert "RAID0" in errors
    assert list(Path(node["NVME"]).iterdir()) == []


@pytest.mark.skipif(not SHM.is_mount(), reason="no second file system at hand")
def test_a_real_mount_is_recognised(node: dict[str, str]) -> None:
    check = SCRIPT.split("\nfi\n")[0] + "\nfi"
    code, errors = run(check, {**node, "NVME": str(SHM)})
    assert (code, errors) == (0, "")


def test_weights_are_copied_once(node: dict[str, str]) -> None:
    assert run(mounted(SCRIPT), node) == (0, "")
    assert run(mounted(SCRIPT), node) == (0, "")
    assert copies(node) == [":s3,provider=AWS,env_auth=true,region=us-west-2:acme-models/llama/1/"]
    assert Path(node["TARGET"], "config.json").exists()
    assert Path(node["CACHE"]).is_dir()


def test_a_copy_that_broke_off_is_taken_up_again(node: dict[str, str]) -> None:
    code, _ = run(mounted(SCRIPT), {**node, "RESULT": "1"})
    assert code == 1
    assert run(mounted(SCRIPT), node) == (0, "")
    assert len(copies(node)) == 2


def test_a_second_pod_waits_for_the_first_and_copies_nothing(node: dict[str, str]) -> None:
    both = [start(mounted(SCRIPT), {**node, "SLOW": "0.5"}) for _ in range(2)]
    assert [process.wait(timeout=20) for process in both] == [0, 0]
    assert len(copies(node)) == 1


def test_a_pod_that_is_killed_leaves_no_lock(node: dict[str, str]) -> None:
    first = start(mounted(SCRIPT), {**node, "SLOW": "60"})
    while not copies(node):
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)  # as the runtime kills a container, children too
    first.communicate(timeout=20)
    assert run(mounted(SCRIPT), node) == (0, "")
    assert len(copies(node)) == 2


def test_a_prefix_without_a_model_is_named(node: dict[str, str]) -> None:
    code, errors = run(mounted(SCRIPT), {**node, "FILE": "readme.txt"})
    assert code == 1
    assert "s3://acme-models/llama/1/ holds no config.json" in errors
    assert not Path(node["TARGET"] + ".complete").exists()


def test_a_pod_that_was_created_too_early_is_told_to_be_replaced(node: dict[str, str]) -> None:
    del node["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    code, errors = run(mounted(SCRIPT), node)
    assert code == 1
    assert errors.startswith("No Pod Identity credentials: they are given when a pod is created")
    assert "may read s3://acme-models/llama/1/. Delete this pod, and the next one gets them." in errors
    assert copies(node) == []


def test_weights_that_are_there_need_no_credentials(node: dict[str, str]) -> None:
    run(mounted(SCRIPT), node)
    del node["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    assert run(mounted(SCRIPT), node) == (0, "")


def test_the_region_of_the_bucket_can_be_said() -> None:
    def environment(region: str | None) -> dict[str, str]:
        container = init_container("s3://acme-models/llama/1/", region, "/mnt/k8s-disks/0/cache/a-b", "0:0")
        return {item["name"]: item["value"] for item in container["env"]}

    assert environment("eu-west-1")["AWS_REGION"] == "eu-west-1"
    assert "AWS_REGION" not in environment(None)  # Pod Identity adds the cluster's
