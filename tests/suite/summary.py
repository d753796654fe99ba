"""What came out of the levels: results of tests, and the report that is printed and written."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.suite.jobs import Job

SLOWEST = 10
NO_TESTS = 5  # pytest.ExitCode.NO_TESTS_COLLECTED


@dataclass(frozen=True)
class Test:
    """One test, or one check."""

    name: str
    outcome: str
    """`passed`, `failed` or `skipped`."""
    seconds: float
    """Set-up, call and tear-down. The set-up of a shared server counts for the test that came first."""
    reason: str = ""
    """Why it was skipped."""


@dataclass(frozen=True)
class Result:
    """One level."""

    name: str
    tests: list[Test]
    wall: float
    cpu: float
    left: list[str]
    """Processes that still ran at its end, and were ended."""

    def count(self, outcome: str) -> int:
        return sum(test.outcome == outcome for test in self.tests)


def read(job: Job, alone: bool) -> Result:
    """The result of a job that has ended. Whatever went wrong counts as a failure, also where no test says so."""
    tests = {
        line["test"]: Test(line["test"], line["outcome"], sum(line["seconds"].values()), line.get("reason", ""))
        for line in job.tests()
        if "test" in line
    }
    try:
        took = json.loads(job.result.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        took = {"code": None, "wall": 0.0, "cpu": 0.0, "left": []}
    told = any(test.outcome == "failed" for test in tests.values())
    fine = took["code"] == 0 or (took["code"] == NO_TESTS and not alone)
    if not fine and not told:
        what = "was ended" if took["code"] is None else f"ended with status {took['code']}"
        tests[job.name] = Test(f"{job.name} {what}", "failed", took["wall"])
    return Result(job.name, list(tests.values()), took["wall"], took["cpu"], took["left"])


def rerun(result: Result, test: Test) -> str:
    """The command that runs a test again, or its level where that fell without a word of a test."""
    if result.name == "checks":
        return "./dev check"
    return f"./dev test {shlex.quote(test.name) if test.name.startswith('tests/') else result.name}"


def clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"


def line(result: Result) -> str:
    """A level in one line."""
    return f"{result.name}: {total([result])} in {clock(result.wall)}, {clock(result.cpu)} of processor time"


def total(results: Iterable[Result]) -> str:
    count = Counter(test.outcome for result in results for test in result.tests)
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    return f"{count['passed']} passed, {count['failed']} failed{skipped}"


def text(results: list[Result], wall: float, report: Path) -> str:
    """The summary. Its last line is the total."""
    tests = [test for result in results for test in result.tests]
    out = [f"{'level':<10}{'passed':>8}{'failed':>8}{'skipped':>9}{'wall':>8}{'CPU':>8}"]
    for item in results:
        counts = "".join(
            f"{item.count(outcome):>{width}}" for outcome, width in (("passed", 8), ("failed", 8), ("skipped", 9))
        )
        out.append(f"{item.name:<10}{counts}{clock(item.wall):>8}{clock(item.cpu):>8}")
    if len(results) > 1:
        out.append(f"{'all':<35}{clock(wall):>8}{clock(sum(item.cpu for item in results)):>8}")
    slowest = sorted((test for test in tests if test.seconds >= 0.1), key=lambda test: -test.seconds)[:SLOWEST]
    out += ["", "slowest:", *(f"{test.seconds:8.1f} s  {test.name}" for test in slowest)]
    reasons = Counter(test.reason for test in tests if test.outcome == "skipped")
    if reasons:
        out += ["", "skipped:", *(f"{number:8}    {reason}" for reason, number in reasons.most_common())]
    left = [f"  {item.name}: {process}" for item in results for process in item.left]
    if left:
        out += ["", "still ran at the end of a level, and was ended:", *left]
    failed = [(item, test) for item in results for test in item.tests if test.outcome == "failed"]
    if failed:
        out += ["", "failed:", *(f"  {test.name}\n      {rerun(item, test)}" for item, test in failed)]
    return "\n".join([*out, "", f"what each test took: {report}", "", total(results)])


def write(results: list[Result], wall: float, file: Path) -> None:
    """All of it for programs: each test with its outcome and its seconds, the slowest first."""
    levels: list[dict[str, Any]] = []
    for item in results:
        content = asdict(item)
        content["tests"] = sorted(content["tests"], key=lambda test: -test["seconds"])
        levels.append(content)
    file.write_text(json.dumps({"wall": round(wall, 1), "levels": levels}, indent=1) + "\n", encoding="utf-8")
