"""Writes the reports in docs/plan.md: `.venv/bin/python docs/build_reports.py`. A unit test compares.

Only what follows from the stack files is shown: the sections from `fit` to `cost`. Warnings depend on the day.
"""

import io
from pathlib import Path

from rich.console import Console

from eks_llm.plan import render, report
from eks_llm.plan.program import find_project, own_prices, run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "plan.md"
WIDTH = 100


def answers(stack: str) -> str:
    """The sections of a stack's plan that answer fit, capacity, quotas and cost."""
    project = find_project(ROOT)
    out = io.StringIO()
    plan = report.build(run(project, stack), project.name, stack, own_prices(project))
    render.text(plan, Console(file=out, width=WIDTH, highlight=False, markup=False, emoji=False))
    text = out.getvalue()
    return text[text.index("\nfit\n") : text.index("\ntotals\n")].strip("\n")


def document() -> str:
    """docs/plan.md with the reports as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    for stack in ("dev", "prod"):
        begin, end = f"<!-- begin: {stack} -->", f"<!-- end: {stack} -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n\n```\n{answers(stack)}\n```\n\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
