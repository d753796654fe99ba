"""What a change can reach: on a small tree with known dependencies, and on this one."""

import subprocess
from pathlib import Path

import pytest

from tests.suite.levels import ROOT
from tests.suite.reach import Reach, RevisionError, changed_files
from tests.suite.selection import affected

SOURCES = {
    "components/eks_llm/core/cron.py": "",
    "components/eks_llm/core/names.py": "from .cron import parse\n",
    "components/eks_llm/core/__init__.py": "",
    "components/eks_llm/catalog/prices.py": "",
    "components/eks_llm/other.py": "import eks_llm.catalog.prices\n",
    "embedded/__main__.py": "def main():\n    from embedded.up import up\n",
    "embedded/up.py": "from eks_llm.core import names\n",
    "tests/unit/conftest.py": "from tests.helper import thing\n",
    "tests/helper.py": "",
    "tests/unit/test_names.py": "from eks_llm.core.names import name\n",
    "tests/unit/test_prices.py": "from eks_llm.other import x\n",
    "tests/unit/test_page.py": 'PAGE = ROOT / "docs" / "serving.md"\nFOLDER = ROOT / "docs" / "runbooks" / f"{x}.md"\n',
    "tests/cluster/test_up.py": 'run([python, "-m", "embedded", "up"])\n',
    "tests/engine/test_dev.py": 'DEV = ROOT / "dev"\n',
}
DATA = ("components/eks_llm/catalog/prices.yaml", "docs/serving.md", "docs/other.md", "docs/runbooks/A.md", "dev")


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("components/eks_llm/core/cron.py", ["tests/unit/test_names.py", "tests/cluster/test_up.py"]),
        ("components/eks_llm/catalog/prices.yaml", ["tests/unit/test_prices.py"]),
        ("docs/serving.md", ["tests/unit/test_page.py"]),
        ("docs/runbooks/A.md", ["tests/unit/test_page.py"]),
        ("docs/other.md", []),
        ("dev", ["tests/engine/test_dev.py"]),
        ("embedded/up.py", ["tests/cluster/test_up.py"]),
        ("tests/unit/test_names.py", ["tests/unit/test_names.py"]),
        ("tests/helper.py", ["tests/unit/test_names.py", "tests/unit/test_page.py", "tests/unit/test_prices.py"]),
        ("tests/unit/test_gone.py", []),
    ],
)
def test_what_depends_on_a_file(changed: str, reached: list[str]) -> None:
    assert Reach([*SOURCES, *DATA], SOURCES).tests([changed]) == reached


def test_what_is_installed_reaches_all() -> None:
    reach = Reach([*SOURCES, *DATA], SOURCES)
    assert len(reach.tests(["requirements.txt"])) == 5


@pytest.fixture(scope="module")
def tree() -> Reach:
    return Reach.of(ROOT)


@pytest.mark.parametrize(
    ("changed", "reached", "not_reached"),
    [
        ("policy/rules.py", "tests/engine/test_policy.py", "tests/unit/test_sizing_memory.py"),
        (
            "components/eks_llm/catalog/prices.yaml",
            "tests/unit/test_catalog_instances.py",
            "tests/unit/test_processes.py",
        ),
        ("model_repository/llm/1/model.py", "tests/serving/test_streaming.py", "tests/unit/test_sizing_memory.py"),
        ("infra/__main__.py", "tests/engine/test_stacks.py", "tests/serving/test_streaming.py"),
        ("tests/rules/service_pods.yaml", "tests/rules/test_rules.py", "tests/engine/test_stacks.py"),
        ("docs/runbooks/KedaDown.md", "tests/rules/test_runbook_queries.py", "tests/cluster/test_keda.py"),
        ("embedded/keda.py", "tests/cluster/test_keda.py", "tests/engine/test_stacks.py"),
    ],
)
def test_in_this_repository(tree: Reach, changed: str, reached: str, not_reached: str) -> None:
    found = tree.tests([changed])
    assert reached in found
    assert not_reached not in found


def test_long_levels_are_named_and_not_run() -> None:
    wanted, left = affected(["tests/unit/test_reach.py", "tests/cluster/test_keda.py"])
    assert wanted.targets == {"unit": ["tests/unit/test_reach.py"]}
    assert left == ["not run, though the change can reach it: ./dev test tests/cluster/test_keda.py"]


def test_what_has_changed_is_committed_or_not_or_new(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for name in ("same", "committed", "edited", "a b"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    git("checkout", "-q", "-b", "branch")
    (tmp_path / "committed").write_text("2")
    git("commit", "-q", "-a", "-m", "two")
    (tmp_path / "edited").write_text("2")
    (tmp_path / "a b").unlink()
    (tmp_path / "new").write_text("1")
    assert changed_files(tmp_path, "main") == ["a b", "committed", "edited", "new"]
    with pytest.raises(RevisionError, match="nowhere"):
        changed_files(tmp_path, "nowhere")
