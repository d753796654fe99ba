"""`./dev test`: what its arguments name, what its summary says, and that it leaves nothing running."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.suite import summary
from tests.suite.jobs import Job, SignalledError, run
from tests.suite.levels import LEVELS, LONGEST_FIRST, ROOT
from tests.suite.selection import UsageError, chosen
from tests.suite.supervise import descendants

# Arguments ----------------------------------------------------------------------------------------------------------


def test_every_folder_with_tests_is_a_level() -> None:
    assert {file.parent.name for file in (ROOT / "tests").glob("*/test_*.py")} == set(LEVELS)
    assert set(LONGEST_FIRST) == {"checks", *LEVELS}


@pytest.mark.parametrize(
    ("arguments", "targets", "options"),
    [
        ("unit", {"unit": []}, []),
        ("unit rules -x", {"unit": [], "rules": []}, ["-x"]),
        ("cluster -k admission", {"cluster": []}, ["-k", "admission"]),
        ("tests/unit/test_names.py", {"unit": ["tests/unit/test_names.py"]}, []),
        ("unit test_names.py -k x", {"unit": ["tests/unit/test_names.py"]}, ["-k", "x"]),
        ("test_names.py::test_a", {"unit": ["tests/unit/test_names.py::test_a"]}, []),
        (
            "tests/unit/test_names.py tests/rules/test_rules.py",
            {"unit": ["tests/unit/test_names.py"], "rules": ["tests/rules/test_rules.py"]},
            [],
        ),
        ("tests/engine", {"engine": ["tests/engine"]}, []),
    ],
)
def test_arguments(arguments: str, targets: dict[str, list[str]], options: list[str]) -> None:
    found = chosen(arguments.split(), ROOT / "tests" / "unit")
    assert (found.targets, found.options, found.everything) == (targets, options, False)


def test_without_a_level_or_a_file_it_is_everything() -> None:
    found = chosen(["-x"], ROOT)
    assert found.everything
    assert (list(found.targets), found.options) == (list(LEVELS), ["-x"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("units", "units is neither a level (unit, rules, "),
        ("tests/unit/test_nothing.py", "tests/unit/test_nothing.py is neither a level"),
        ("dev", "dev is neither a level"),
        ("engine tests/unit/test_names.py", "test_names.py is a test of the level unit, not of engine"),
    ],
)
def test_arguments_that_name_nothing(arguments: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        chosen(arguments.split(), ROOT)
    assert message in str(error.value)


# Results ------------------------------------------------------------------------------------------------------------

TESTS = """
import pytest

def test_good(): pass

@pytest.mark.parametrize("name", ["a b"])
def test_bad(name): assert False

@pytest.mark.skip("not here")
def test_skipped(): pass

@pytest.fixture
def broken(): 1 / 0

def test_not_set_up(broken): pass

@pytest.fixture
def late():
    yield
    1 / 0

def test_not_torn_down(late): pass
"""


def job(folder: Path, *command: str, name: str = "unit") -> Job:
    return Job(name, list(command), folder / "state")


def pytest_job(folder: Path, *options: str) -> Job:
    made = job(folder)
    made.command = [
        sys.executable, "-m", "pytest", "-p", "tests.suite.plugin", "--test-lines", str(made.lines),
        "--rootdir", str(folder), "-c", os.devnull, *options, str(folder),
    ]  # fmt: skip
    return made


def ended(*jobs: Job) -> list[summary.Result]:
    over: list[summary.Result] = []
    run(jobs, 2, lambda _: None, lambda job: over.append(summary.read(job, alone=False)))
    return over


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_each_test_counts_once_with_its_outcome(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (result,) = ended(pytest_job(tmp_path, *options))
    assert {test.name.partition("::")[2]: test.outcome for test in result.tests} == {
        "test_good": "passed",
        "test_bad[a b]": "failed",
        "test_skipped": "skipped",
        "test_not_set_up": "failed",
        "test_not_torn_down": "failed",
    }
    text = summary.text([result], 1, Path("report.json"))
    assert text.splitlines()[-1] == "1 passed, 3 failed, 1 skipped"
    assert re.search(r"not here$", text, re.MULTILINE)
    assert result.cpu > 0


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("import nothing_of_that_name")
    (result,) = ended(pytest_job(tmp_path))
    assert summary.total([result]) == "0 passed, 1 failed"


def test_a_level_that_falls_without_a_word_is_a_failure(tmp_path: Path) -> None:
    good = job(tmp_path, sys.executable, "-c", "", name="rules")
    bad = job(tmp_path, sys.executable, "-c", "import os; print('the end'); os.abort()", name="engine")
    results = {result.name: result for result in ended(good, bad)}
    assert summary.total(results.values()) == "0 passed, 1 failed"
    text = summary.text(list(results.values()), 1, Path("report.json"))
    assert "engine ended with status -6\n      ./dev test engine\n" in text
    assert bad.log.read_text() == "the end\n"


def test_the_report_has_the_slowest_first_and_how_to_run_a_failure_again(tmp_path: Path) -> None:
    tests = [
        summary.Test("tests/unit/test_a.py::test_quick", "passed", 0.2),
        summary.Test("tests/unit/test_a.py::test_slow[a b]", "failed", 7.0),
    ]
    results = [
        summary.Result("checks", [summary.Test("ruff check", "failed", 1)], 61.0, 50.0, []),
        summary.Result("unit", tests, 90.0, 100.0, ["17 sleep 60"]),
    ]
    text = summary.text(results, 95, Path("report.json"))
    assert text.splitlines() == [
        "level       passed  failed  skipped    wall     CPU",
        "checks           0       1        0    1:01    0:50",
        "unit             1       1        0    1:30    1:40",
        "all                                    1:35    2:30",
        "",
        "slowest:",
        "     7.0 s  tests/unit/test_a.py::test_slow[a b]",
        "     1.0 s  ruff check",
        "     0.2 s  tests/unit/test_a.py::test_quick",
        "",
        "still ran at the end of a level, and was ended:",
        "  unit: 17 sleep 60",
        "",
        "failed:",
        "  ruff check",
        "      ./dev check",
        "  tests/unit/test_a.py::test_slow[a b]",
        "      ./dev test 'tests/unit/test_a.py::test_slow[a b]'",
        "",
        "what each test took: report.json",
        "",
        "1 passed, 2 failed",
    ]
    summary.write(results, 95, tmp_path / "report.json")
    level = json.loads((tmp_path / "report.json").read_text())["levels"][1]
    assert [test["seconds"] for test in level["tests"]] == [7.0, 0.2]


# Processes ----------------------------------------------------------------------------------------------------------

DAEMON = """
import os, subprocess, sys, time
busy = "import time\\nend = time.process_time() + 0.3\\nwhile time.process_time() < end: pass\\ntime.sleep(600)"
daemon = subprocess.Popen([sys.executable, "-c", busy], start_new_session=True, stdout=subprocess.DEVNULL)
print(daemon.pid, flush=True)
daemon.returncode = 0
while sum(map(int, open(f"/proc/{daemon.pid}/stat").read().split()[13:15])) < 25: time.sleep(0.01)
"""


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt others")
def test_what_a_level_leaves_behind_is_named_counted_and_ended(tmp_path: Path) -> None:
    daemon = job(tmp_path, sys.executable, "-c", DAEMON)
    (result,) = ended(daemon)
    pid = int(daemon.log.read_text())
    assert not is_there(pid)
    assert [line.split()[0] for line in result.left] == [str(pid)]
    assert result.cpu > 0.25


WAITS = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
try:
    open(sys.argv[1], "w").close()
    time.sleep(600)
except KeyboardInterrupt:
    print("cleared up")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_every_level_and_what_it_started(tmp_path: Path, number: int) -> None:
    jobs = [job(tmp_path, sys.executable, "-c", WAITS, str(tmp_path / name), name=name) for name in ("unit", "rules")]
    seen: list[int] = []

    def tick(running: list[Job]) -> None:
        if not seen and all((tmp_path / item.name).exists() for item in jobs):
            seen.extend(pid for item in running if item.process for pid in descendants(item.process.pid))
            signal.raise_signal(number)

    before = signal.getsignal(number)
    with pytest.raises(SignalledError) as error:
        run(jobs, 2, tick, lambda _: None)
    assert error.value.args == (number,)
    assert signal.getsignal(number) is before
    assert [item.log.read_text() for item in jobs] == ["cleared up\n"] * 2
    assert len(seen) == 4
    assert not [pid for pid in seen if is_there(pid)]


# A session may have no group of its own; the file is empty then.
NICENESS = "import os; print(os.nice(0), (open('/proc/self/autogroup').read().split() or ['none'])[-1])"
LOOKS = f"""
import pathlib, sys, time
pathlib.Path(sys.argv[1]).touch()
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.01)
{NICENESS}
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this system has no groups of processes")
def test_what_yields_runs_beside_another_level_and_behind_it(tmp_path: Path) -> None:
    names = ("serving", "unit")
    files = [str(tmp_path / name) for name in names]
    serving = job(tmp_path, sys.executable, "-c", LOOKS, *files, name=names[0])
    unit = job(tmp_path, sys.executable, "-c", LOOKS, *reversed(files), name=names[1])
    unit.yields = True
    run([serving, unit], 1, lambda _: None, lambda _: None)  # each waits until the other runs
    niceness, group = unit.log.read_text().split()
    assert niceness == "19"
    assert group in {"19", "none"}
    niceness, group = serving.log.read_text().split()
    assert niceness == str(os.nice(0))
    assert group in {"0", "none"}


def test_a_level_starts_with_the_default_handling_of_ctrl_c(tmp_path: Path) -> None:
    """Under `nohup … &` SIGINT is ignored, which programs inherit; tests of Ctrl-C would wait for ever."""
    code = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)"
    command = [sys.executable, "-m", "tests.suite.supervise", str(tmp_path / "result"), sys.executable, "-c", code]
    ignoring = ["bash", "-c", "trap '' INT; exec \"$@\"", "bash", *command]
    assert subprocess.run(ignoring, cwd=ROOT, check=False).returncode == 0


def test_a_supervisor_ends_with_who_started_it(tmp_path: Path) -> None:
    code = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(600)"
    inner = [sys.executable, "-m", "tests.suite.supervise", str(tmp_path / "result")]
    waits = [*inner, sys.executable, "-c", WAITS, str(tmp_path / "begun")]
    outer = subprocess.Popen([sys.executable, "-c", code, *waits], cwd=ROOT, process_group=0)
    until = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    below = descendants(outer.pid)
    outer.kill()
    outer.wait()
    while any(map(is_there, below)):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert json.loads((tmp_path / "result").read_text())["left"]
