"""The script that copies weights to a node, run by a POSIX shell with a stand-in for rclone."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from eks_llm.serving.fetch import SCRIPT, init_container

RCLONE = """#!/bin/sh -eu
if [ "$1" = lsf ]; then
  cd "$BUCKET"
  find . -type f -exec stat -c '%n;%s' {} + | sed 's|^\\./||'
  exit
fi
echo "$2" >> "$LOG"
sleep "${SLOW:-0}"
rm -rf "$3"
mkdir -p "$3"
cp -R "$BUCKET/." "$3"
if [ -n "${LATE:-}" ]; then echo late > "$BUCKET/$LATE"; fi
exit "$RESULT"
"""
MODEL = {
    "config.json": "{}",
    "model-00001-of-00002.safetensors": "one",
    "model-00002-of-00002.safetensors": "two",
    "model.safetensors.index.json": '{"weight_map": {"a": "model-00001-of-00002.safetensors", '
    '"b": "model-00002-of-00002.safetensors"}}',
    "tokenizer.json": "{}",
}


def upload(node: dict[str, str], files: dict[str, str]) -> None:
    """Makes the bucket's prefix hold these files and no others."""
    bucket = Path(node["BUCKET"])
    shutil.rmtree(bucket, ignore_errors=True)
    for name, text in files.items():
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_text(text)


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    """A node with its folder for pods, and a bucket that holds a model in two files."""
    program = tmp_path / "bin" / "rclone"
    program.parent.mkdir()
    program.write_text(RCLONE)
    program.chmod(0o755)
    chown = tmp_path / "bin" / "chown"  # tests need not be root
    chown.write_text("#!/bin/sh\n")
    chown.chmod(0o755)
    folder = tmp_path / "disks" / "0" / "eks-llm"
    folder.mkdir(parents=True)
    made = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "FOLDER": str(folder),
        "SOURCE": "s3://acme-models/llama/1/",
        "TARGET": str(folder / "models" / "abc"),
        "CACHE": str(folder / "cache" / "inference-llama"),
        "OWNER": "2000:0",
        "AWS_REGION": "us-west-2",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials",
        "BUCKET": str(tmp_path / "bucket"),
        "LOG": str(tmp_path / "log"),
        "RESULT": "0",
    }
    upload(made, MODEL)
    return made


def start(node: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(["sh", "-ceu", SCRIPT], env=node, stderr=subprocess.PIPE, text=True, start_new_session=True)


def run(node: dict[str, str]) -> tuple[int, str]:
    process = start(node)
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def copies(node: dict[str, str]) -> list[str]:
    log = Path(node["LOG"])
    return log.read_text().splitlines() if log.exists() else []


def test_weights_are_copied_once(node: dict[str, str]) -> None:
    assert run(node) == (0, "")
    assert run(node) == (0, "")
    assert copies(node) == [":s3,provider=AWS,env_auth=true,region=us-west-2:acme-models/llama/1/"]
    assert Path(node["TARGET"], "config.json").exists()
    assert Path(node["CACHE"]).is_dir()


def test_a_copy_that_broke_off_is_taken_up_again(node: dict[str, str]) -> None:
    code, _ = run({**node, "RESULT": "1"})
    assert code == 1
    assert run(node) == (0, "")
    assert len(copies(node)) == 2


def test_a_second_pod_waits_for_the_first_and_copies_nothing(node: dict[str, str]) -> None:
    both = [start({**node, "SLOW": "0.5"}) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert len(copies(node)) == 1


def test_a_pod_that_is_killed_leaves_no_lock(node: dict[str, str]) -> None:
    first = start({**node, "SLOW": "60"})
    while not copies(node):
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)  # as the runtime kills a container, children too
    first.communicate(timeout=120)
    assert run(node) == (0, "")
    assert len(copies(node)) == 2


INCOMPLETE = {
    "no config": ({"model.safetensors": "one"}, "config.json"),
    "the first file of an upload": ({"config.json": "{}"}, "weights (*.safetensors)"),
    "another folder": ({"readme.txt": ""}, "config.json and weights (*.safetensors)"),
    "a missing shard": (
        {"config.json": "{}", "model-00001-of-00003.safetensors": "one"},
        "2 of 3 files model-*-of-00003.safetensors",
    ),
    "a missing shard of a folder": (
        {"config.json": "{}", "a.safetensors": "", "adapters/b-1-of-2.bin": ""},
        "1 of 2 files adapters/b-*-of-2.bin",
    ),
    "a shard that only the index names": (
        {"config.json": "{}", "a.safetensors": "one", "x.safetensors.index.json": '{"w": "b.safetensors"}'},
        "b.safetensors, which x.safetensors.index.json names",
    ),
}


@pytest.mark.parametrize("name", INCOMPLETE)
def test_what_a_prefix_lacks_is_named_and_nothing_is_called_complete(node: dict[str, str], name: str) -> None:
    files, words = INCOMPLETE[name]
    upload(node, files)
    code, errors = run(node)
    assert code == 1
    assert f"s3://acme-models/llama/1/ lacks {words}. If an upload is under way" in errors
    assert not Path(node["TARGET"] + ".complete").exists()
    upload(node, MODEL)
    assert run(node) == (0, "")


def test_a_prefix_that_changes_meanwhile_is_not_complete(node: dict[str, str]) -> None:
    code, errors = run({**node, "LATE": "tokenizer.model"})
    assert code == 1
    assert "has changed while it was copied: an upload is under way" in errors
    assert run(node) == (0, "")
    assert Path(node["TARGET"], "tokenizer.model").exists()


@pytest.mark.parametrize("harm", ["truncated", "removed"])
def test_a_file_that_is_not_as_it_was_copied_is_copied_again(node: dict[str, str], harm: str) -> None:
    """As after a node that lost power before its disks had everything."""
    assert run(node) == (0, "")
    shard = Path(node["TARGET"], "model-00002-of-00002.safetensors")
    shard.write_text("t") if harm == "truncated" else shard.unlink()
    assert run(node) == (0, "")
    assert shard.read_text() == "two"
    assert len(copies(node)) == 2


def test_file_names_may_hold_what_the_list_separates_by(node: dict[str, str]) -> None:
    upload(node, {**MODEL, "notes; and 'more' of it;7.txt": "x"})
    assert run(node) == (0, "")
    assert run(node) == (0, "")
    assert len(copies(node)) == 1


def test_a_pod_that_was_created_too_early_is_told_to_be_replaced(node: dict[str, str]) -> None:
    del node["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    code, errors = run(node)
    assert code == 1
    assert errors.startswith("No Pod Identity credentials: they are given when a pod is created")
    assert "may read s3://acme-models/llama/1/. Delete this pod, and the next one gets them." in errors
    assert copies(node) == []


def test_weights_that_are_there_need_no_credentials(node: dict[str, str]) -> None:
    run(node)
    del node["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    assert run(node) == (0, "")


def test_the_region_of_the_bucket_can_be_said() -> None:
    def environment(region: str | None) -> dict[str, str]:
        container = init_container("s3://acme-models/llama/1/", region, "/mnt/k8s-disks/0/eks-llm/cache/a-b", "0:0")
        return {item["name"]: item["value"] for item in container["env"]}

    assert environment("eu-west-1")["AWS_REGION"] == "eu-west-1"
    assert "AWS_REGION" not in environment(None)  # Pod Identity adds the cluster's
