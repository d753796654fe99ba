"""The page about the stack file says what the code does."""

import runpy
from pathlib import Path

import pytest

from eks_llm.catalog.instances import INSTANCES
from eks_llm.catalog.models import MODELS
from eks_llm.catalog.quantization import KV_CACHES, QUANTIZATIONS

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"


def test_the_page_about_the_stack_file_is_current() -> None:
    page = runpy.run_path(str(REFERENCE / "build.py"))["page"]()
    committed = (REFERENCE / "stack-file.md").read_text(encoding="utf-8")
    assert page == committed, "run: .venv/bin/python docs/reference/build.py"


def rows(key: str) -> list[str]:
    lines = (REFERENCE / "stack-file.md").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(f"| `{key}` |")]


def test_what_is_required_says_so() -> None:
    assert rows("version")[0].startswith("| `version` | text; required | ")


def test_the_page_names_keys_and_values_of_a_stack_file_only() -> None:
    page = (REFERENCE / "stack-file.md").read_text(encoding="utf-8")
    assert "`draft_model`, `eagle`, `eagle3`." in page  # a value, as the list of values has it
    for python in ("draftModel", "subnetId`", "subnet_id", "but `region`", "catalog.", "max_num_seqs"):
        assert python not in page, python


@pytest.mark.parametrize("name", [*MODELS, *QUANTIZATIONS, *KV_CACHES, *INSTANCES, "kvHeads", "maxPosition"])
def test_the_page_lists_what_may_be_named(name: str) -> None:
    assert rows(name)


def test_every_setting_is_documented() -> None:
    rows = [line.split(" | ") for line in (REFERENCE / "stack-file.md").read_text(encoding="utf-8").splitlines()]
    undocumented = [row[0] for row in rows if len(row) == 3 and row[0].startswith("| `") and row[2].strip(" |") == ""]
    assert undocumented == []


def test_the_reports_in_the_docs_are_current() -> None:
    page = runpy.run_path(str(DOCS / "build_reports.py"))["document"]()
    assert page == (DOCS / "plan.md").read_text(encoding="utf-8"), "run: .venv/bin/python docs/build_reports.py"
