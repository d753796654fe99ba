"""`./dev test`: all checks and levels, some of them, or what a change can reach.

python -m tests.suite [--cwd FOLDER] [LEVEL… | changed [--against REVISION]] [FILE…] [options of pytest]
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.suite import summary
from tests.suite.jobs import Job, SignalledError, run
from tests.suite.levels import CORES, LEVELS, LONGEST_FIRST, ROOT, Level
from tests.suite.progress import Progress
from tests.suite.reach import Reach, RevisionError, changed_files
from tests.suite.selection import Chosen, UsageError, affected, chosen

STATE = ROOT / ".local" / "test"
"""Logs and results of the last run."""
MANY = 8
"""Files from which on the workers of a level are worth their start."""
AT_ONCE = max(1, CORES // 2)
"""Levels of servers that run side by side. Each keeps two cores busy at times, and more would starve each other; those
that only compute run beside them and take what is left."""


def pytest(level: Level, targets: list[str], options: list[str]) -> Job:
    """A level, or the `targets` in it."""
    job = Job(level.name, [], STATE, yields=level.yields)
    many = not targets or len(targets) >= MANY
    job.command = [
        sys.executable, "-m", "pytest", "-p", "tests.suite.plugin", "--test-lines", str(job.lines),
        *(level.workers if many else ()), *(targets or [str(level.folder.relative_to(ROOT))]), *options,
    ]  # fmt: skip
    return job


def checks() -> Job:
    job = Job("checks", [], STATE, yields=True)
    job.command = [sys.executable, "-m", "tests.suite.checks", str(job.lines)]
    return job


def build_tools() -> subprocess.Popen[bytes]:
    """Builds in the background what levels need: one that wants a tool sooner waits for it."""
    STATE.mkdir(parents=True, exist_ok=True)
    command = ["nice", "-n", "19", sys.executable, "-m", "embedded.tools", "--all"]
    with (ROOT / ".local" / "tools.log").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def test(jobs: list[Job]) -> int:
    """Runs the jobs and prints what came out; returns the status of the command."""
    progress, begin, alone = Progress(), time.monotonic(), len(jobs) == 1
    jobs[0].live = alone
    results: dict[str, summary.Result] = {}

    def over(job: Job) -> None:
        result = results[job.name] = summary.read(job, alone)
        if alone:
            return
        progress.clear()
        if result.count("failed"):
            print(f"\n{'=' * 20} {job.name}, all that it said {'=' * 20}")
            print(job.log.read_text(encoding="utf-8", errors="replace"), flush=True)
        print(summary.line(result), flush=True)

    status = 0
    try:
        run(jobs, AT_ONCE, (lambda _: None) if alone else progress.show, over)
    except SignalledError as error:
        status = 128 + error.args[0]
        for job in jobs:
            if job.process and job.name not in results:
                results[job.name] = summary.read(job, alone)
    progress.clear()
    found = [results[name] for name in ("checks", *LEVELS) if name in results]
    wall, report = time.monotonic() - begin, STATE / "report.json"
    summary.write(found, wall, report)
    print("\n" + summary.text(found, wall, report.relative_to(ROOT)), flush=True)
    return status or (1 if any(item.count("failed") for item in found) else 0)


def of_change(arguments: list[str]) -> Chosen:
    """What a change can reach: the quick levels at once, and a word on the others."""
    against, options = "origin/main", list(arguments)
    known = ["git", "rev-parse", "-q", "--verify", against]
    if options[:1] == ["--against"]:
        against, options = (options[1] if len(options) > 1 else ""), options[2:]
    elif subprocess.run(known, cwd=ROOT, capture_output=True, check=False).returncode != 0:
        against = "main"
    wanted, left = affected(Reach.of(ROOT).tests(changed_files(ROOT, against)))
    wanted.options = options
    for line in left:
        print(line)
    return wanted


def main(arguments: list[str]) -> int:
    cwd = Path.cwd()
    if arguments[:1] == ["--cwd"]:
        cwd, arguments = Path(arguments[1]), arguments[2:]
    try:
        wanted = of_change(arguments[1:]) if arguments[:1] == ["changed"] else chosen(arguments, cwd)
    except (UsageError, RevisionError) as error:
        print(error, file=sys.stderr)
        return 2
    jobs = {name: pytest(LEVELS[name], targets, wanted.options) for name, targets in wanted.targets.items()}
    if not jobs:
        print("no test depends on what has changed")
        return 0
    if not wanted.everything:
        return test([jobs[name] for name in LONGEST_FIRST if name in jobs])
    jobs["checks"] = checks()
    tools = build_tools()
    try:
        return test([jobs[name] for name in LONGEST_FIRST])
    finally:
        end(tools)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
