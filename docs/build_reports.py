"""Writes the reports in docs/plan.md: `.venv/bin/python docs/build_reports.py`. A unit test compares.

Only what follows from the stack files is shown: the sections from `fit` to `quotas`. Warnings depend on the day.
"""

import io
import sys
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.marked import replaced  # noqa: E402
from eks_llm.plan import render, report  # noqa: E402
from eks_llm.plan.program import find_project, own_prices, run  # noqa: E402

PAGE = ROOT / "docs" / "plan.md"
WIDTH = 100


def answers(stack: str) -> str:
    """The sections of a stack's plan that answer fit, capacity, quotas and cost."""
    project = find_project(ROOT)
    out = io.StringIO()
    plan = report.build(run(project, stack), project.name, stack, own_prices(project))
    render.text(plan, Console(file=out, width=WIDTH, highlight=False, markup=False, emoji=False))
    text = out.getvalue()
    return text[text.index("\nfit\n") : text.index("\nimages\n")].strip("\n")


def document() -> str:
    """docs/plan.md with the reports as they are now."""
    parts = {stack: f"```\n{answers(stack)}\n```" for stack in ("dev", "prod")}
    return replaced(PAGE.read_text(encoding="utf-8"), parts)


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
