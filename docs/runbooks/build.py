"""Writes what pages say of alerts from the alerts themselves: `.venv/bin/python docs/runbooks/build.py`.

That is the head of each runbook, up to "First look", and the tables in docs/runbooks/README.md and
docs/observability.md. The rest of a runbook is written by hand. A unit test compares.
"""

import datetime
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.marked import replaced  # noqa: E402
from eks_llm.observe import alerts  # noqa: E402
from eks_llm.observe.rules import Alert  # noqa: E402
from eks_llm.observe.watched import EXAMPLE  # noqa: E402

HERE = Path(__file__).parent
TABLES = {ROOT / "docs" / "observability.md": "runbooks/", HERE / "README.md": ""}
"""Pages with tables of all alerts, and the way from there to the runbooks."""
BY_HAND = "## First look\n"
"""Where the part begins that people write."""
OF_A_SERVICE = f"Of a service: `{EXAMPLE.name}` stands for it, `{EXAMPLE.namespace}` for its namespace."
OF_THE_PLATFORM = "Of the platform."


def of_a_service() -> list[Alert]:
    return _once(alerts.of_service(EXAMPLE))


def of_the_platform() -> list[Alert]:
    return _once(alerts.of_platform({"POOL": datetime.datetime.fromtimestamp(0, datetime.UTC)}))


def _once(found: Iterable[Alert]) -> list[Alert]:
    """Of alerts of one name, such as one per latency target, the first."""
    by_name: dict[str, Alert] = {}
    for alert in found:
        by_name.setdefault(alert.name, alert)
    return list(by_name.values())


def runbooks() -> dict[Path, str]:
    """Every runbook as it should be. Raises `ValueError` for an alert without one, or one without `BY_HAND`."""
    pages: dict[Path, str] = {}
    for owner, found in ((OF_A_SERVICE, of_a_service()), (OF_THE_PLATFORM, of_the_platform())):
        for alert in found:
            page = HERE / f"{alert.name}.md"
            _, mark, after = page.read_text(encoding="utf-8").partition(BY_HAND) if page.exists() else ("",) * 3
            if not mark:
                raise ValueError(f"{page.relative_to(ROOT)} has to have the sections from {BY_HAND.strip()!r} on")
            pages[page] = head(alert, owner) + BY_HAND + after
    return pages


def head(alert: Alert, owner: str) -> str:
    return (
        f"# {alert.name}\n\nSeverity: {alert.severity.value}. {owner}\n\n"
        f"## Meaning\n\n{_wrapped(alert.meaning)}\n\n## Impact\n\n{_wrapped(alert.impact)}\n\n"
    )


def table(found: Iterable[Alert], folder: str) -> str:
    rows = (f"| [{a.name}]({folder}{a.name}.md) | {a.severity.value} | {a.fires} |" for a in found)
    return "\n".join(["| alert | severity | fires when |", "|---|---|---|", *rows])


def tables() -> dict[Path, str]:
    """The pages with tables, as they should be."""
    return {
        page: replaced(
            page.read_text(encoding="utf-8"),
            {
                "alerts of a service": table(of_a_service(), folder),
                "alerts of the platform": table(of_the_platform(), folder),
            },
        )
        for page, folder in TABLES.items()
    }


def pages() -> dict[Path, str]:
    return runbooks() | tables()


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
