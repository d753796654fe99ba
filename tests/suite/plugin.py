"""A pytest plugin: one line of JSON per test, with its outcome and what it took.

It runs in the environments of all levels, so it needs pytest alone.
"""

import json
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--test-lines", type=Path, help="file that gets a line of JSON per test")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--test-lines")
    if file and not hasattr(config, "workerinput"):  # workers of pytest-xdist tell their controller
        config.pluginmanager.register(Lines(file))


class Lines:
    """Writes a line when a test is over, so that a run that is killed has told what it did."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.open: dict[str, dict[str, Any]] = {}

    def write(self, **line: Any) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.write(collected=len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.write(collected=len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write(test=report.nodeid, outcome="failed", seconds={})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self.open.setdefault(report.nodeid, {"outcome": "passed", "seconds": {}})
        test["seconds"][report.when] = round(report.duration, 3)
        if report.failed:
            test["outcome"] = "failed"
        elif report.skipped and test["outcome"] == "passed":
            test["outcome"] = "skipped"
            test["reason"] = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if report.when not in ("setup", "call"):  # the last part, or a worker that crashed
            self.write(test=report.nodeid, **self.open.pop(report.nodeid))
