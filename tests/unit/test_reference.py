"""The page about the stack file says what the code does."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"


def test_the_page_about_the_stack_file_is_current() -> None:
    page = runpy.run_path(str(REFERENCE / "build.py"))["page"]()
    committed = (REFERENCE / "stack-file.md").read_text(encoding="utf-8")
    assert page == committed, "run: .venv/bin/python docs/reference/build.py"


def test_every_setting_is_documented() -> None:
    rows = [line.split(" | ") for line in (REFERENCE / "stack-file.md").read_text(encoding="utf-8").splitlines()]
    undocumented = [row[0] for row in rows if len(row) == 3 and row[0].startswith("| `") and row[2].strip(" |") == ""]
    assert undocumented == []


def test_the_reports_in_the_docs_are_current() -> None:
    page = runpy.run_path(str(DOCS / "build_reports.py"))["document"]()
    assert page == (DOCS / "plan.md").read_text(encoding="utf-8"), "run: .venv/bin/python docs/build_reports.py"
