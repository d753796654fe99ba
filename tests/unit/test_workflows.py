"""What GitHub runs: nothing that a tag could change under us, and no more rights than a job needs.

`./dev check` has zizmor and actionlint read the same files.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))


def workflow(file: Path) -> dict[Any, Any]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actions_are_pinned_by_commit_and_say_their_version(file: Path) -> None:
    used = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert used
    assert not [line for line in used if not re.fullmatch(r"- uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_forks_get_no_rights_of_the_repository(file: Path) -> None:
    content = workflow(file)
    triggers = content[True]  # YAML 1.1 reads the key `on` as a truth value
    assert "pull_request_target" not in triggers
    assert content["permissions"] == {}


def test_what_can_write_runs_no_code_of_the_pull_request() -> None:
    jobs = workflow(FOLDER / "preview.yml")["jobs"]
    for name, job in jobs.items():
        writes = {key for key, value in job["permissions"].items() if value == "write"}
        checks_out = any("actions/checkout@" in step.get("uses", "") for step in job["steps"])
        if name == "plan":
            assert not writes
            assert "if" not in job  # also for forks
            assert "secrets." not in str(job)
        else:
            assert "head.repo.full_name == github.repository" in job["if"]
        assert not ("pull-requests" in writes and checks_out)


@pytest.mark.parametrize(("rows", "truncated"), [(10, False), (1000, True)])
def test_a_comment_is_cut_between_lines(tmp_path: Path, rows: int, truncated: bool) -> None:
    (step,) = [step for step in workflow(FOLDER / "preview.yml")["jobs"]["comment"]["steps"] if "run" in step]
    writing, _, _ = step["run"].partition("known=")
    (tmp_path / "plans").mkdir()
    row = "—" * 33  # of 3 bytes each, 100 with the end of the line
    (tmp_path / "plans" / "dev.md").write_text(f"{row}\n" * rows, encoding="utf-8")
    subprocess.run(["bash", "-euo", "pipefail", "-c", writing], cwd=tmp_path, check=True)
    body = (tmp_path / "body.md").read_text(encoding="utf-8").splitlines()
    notice = ["", "**truncated**: the whole plan is in the summary of this run"]
    # 22 bytes of the mark's line, so 639 rows stay below 64,000 bytes.
    assert body == ["<!-- eks-llm plan -->", *[row] * min(rows, 639), *(notice if truncated else [])]


def test_every_committed_stack_is_previewed() -> None:
    stacks = {file.name.split(".")[1] for file in FOLDER.parents[1].glob("Pulumi.*.yaml")}
    matrix = workflow(FOLDER / "preview.yml")["jobs"]["preview"]["strategy"]["matrix"]["stack"]
    assert set(matrix) == stacks - {"local"}
