"""What Pulumi's CLI fetches when other languages ask for the components: the whole repository as one archive."""

import subprocess
from pathlib import Path

from eks_llm.serving.service import bundled_repository
from embedded.tools.registry import TOOLS

ROOT = Path(__file__).parents[2]


def test_no_symbolic_link_is_in_the_tree() -> None:
    """CLIs of before May 2026 refuse an archive with one, wherever in the repository (pulumi/pulumi, issue 19537)."""
    listed = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line for line in listed.splitlines() if line.startswith("120000")] == []


def test_the_programs_of_pods_are_files_of_the_package() -> None:
    package = ROOT / "components" / "eks_llm"
    assert "llm/config.pbtxt" in bundled_repository()
    assert (package / "openai_middleware" / "eks_llm_door.py").resolve().is_relative_to(package.resolve())


def test_the_readme_names_the_cli_that_tests_run() -> None:
    version = TOOLS["pulumi"].version
    assert f"CLI {version.removeprefix('v')}" in (ROOT / "components" / "README.md").read_text(encoding="utf-8")
