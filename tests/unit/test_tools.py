"""How tools are found and built, without building one. test_releases.py: how they are downloaded."""

import datetime
import fcntl
import os
import shutil
import stat
import sys
import threading
from pathlib import Path

import pytest
import yaml

from eks_llm.catalog.eks import KUBERNETES
from embedded.tools import TOOLS, ToolError, find, progress, provide
from embedded.tools.__main__ import main
from embedded.tools.build import cache_of, groups
from embedded.tools.install import on_path

PULUMI = TOOLS["pulumi"]
ROOT = Path(__file__).parents[2]


def program(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!{sys.executable}\n{body}\n")
    file.chmod(file.stat().st_mode | stat.S_IEXEC)
    return file


def fake_go(folder: Path, version: str = PULUMI.version, status: int = 0) -> None:
    """A `go` that 'builds' a program which reports `version`, and that counts its own runs."""
    program(
        folder,
        "go",
        f"""
import os, pathlib, sys
if sys.argv[1] == "env":
    print({str(folder / "cache")!r})
    sys.exit()
with open({str(folder / "runs")!r}, "a") as runs:
    runs.write("x")
work = pathlib.Path(os.environ["GOTMPDIR"])
assert not list(work.iterdir())
(work / "go-build1").mkdir()
print("go: downloading example.com/a v1.0.0", file=sys.stderr)
print("example.com/a", file=sys.stderr)
if {status}:
    print("a.go:1: does not compile", file=sys.stderr)
    sys.exit({status})
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
out.write_text("#!/bin/sh\\necho {version}\\n")
out.chmod(0o755)
""",
    )


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH, on a machine that downloads no release."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("EKS_LLM_TOOLS", "build")
    monkeypatch.delenv("GOCACHE", raising=False)
    return folder


def test_the_kubernetes_of_every_stack_is_one_that_tests_run() -> None:
    api_servers = [tool for tool in TOOLS.values() if tool.binary == "kube-apiserver"]
    tested = {tool.version.removeprefix("v").rpartition(".")[0] for tool in api_servers}
    platforms = [yaml.safe_load(file.read_text())["config"]["eks-llm:platform"] for file in ROOT.glob("Pulumi.*.yaml")]
    named = {platform["cluster"]["version"] for platform in platforms if "cluster" in platform}
    assert named
    assert named <= tested
    supported = [minor for minor, facts in KUBERNETES.items() if facts.standard_until > datetime.date(2026, 12, 2)]
    assert tested == {min(supported), max(supported)}


def test_the_pin_is_the_version_of_the_committed_module() -> None:
    for tool in TOOLS.values():
        assert (tool.pin or tool.version) in (tool.module / "go.mod").read_text()
        assert "-X" not in tool.ldflags or tool.version.removeprefix("v") in tool.ldflags


@pytest.mark.parametrize(("version", "serves"), [("v3.274.9", True), ("v3.273.0", False), ("v4.274.1", False)])
def test_a_tool_on_path_serves_at_the_same_minor(path: Path, version: str, serves: bool) -> None:
    file = program(path, "pulumi", f"print('{version}')")
    assert on_path(PULUMI) == (file if serves else None)


def test_builds_once_and_then_finds_it(path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fake_go(path)
    built = provide("pulumi", tmp_path / "tools")
    assert built == tmp_path / "tools" / "bin" / PULUMI.key / "pulumi"
    assert provide("pulumi", tmp_path / "tools") == built
    assert (path / "runs").read_text() == "x"
    assert "pulumi v3.274.1: building (once), 0:00" in capfd.readouterr().err


def test_a_build_leaves_the_tool_alone_and_clears_up_after_one_that_was_killed(path: Path, tmp_path: Path) -> None:
    """Go removes its temporary files at the end of a build, but not if it is killed."""
    tools = tmp_path / "tools"
    (tools / "work" / "go-build0").mkdir(parents=True)
    fake_go(path)
    built = provide("pulumi", tools)
    assert not (tools / "work").exists()
    assert {file for file in tools.rglob("*") if file.is_file()} == {built, tools / "lock"}


EDITS = {
    "keda-metrics-adapter": ('Sprintf(":%v", metricsAPI)', 'Sprintf("127.0.0.1:%v", metricsAPI)'),
    "keda-admission-webhooks": ("webhook.Options{Port: 1}", 'webhook.Options{Host: "127.0.0.1",Port: 1}'),
}
GO_COPIES = """
import json, os, pathlib, sys
if sys.argv[1] == "env":
    sys.exit()
published = pathlib.Path(PUBLISHED)
if sys.argv[1] == "list":
    print(published / sys.argv[-1].rpartition("/")[2])
    sys.exit()
overlay = json.loads(pathlib.Path(sys.argv[sys.argv.index("-overlay") + 1]).read_text())["Replace"]
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
for package in sys.argv[sys.argv.index("-overlay") + 2:]:
    main = overlay.get(os.path.join(os.getcwd(), package[2:], "main.go"))
    name = package.rpartition("/")[2]
    (out / name).write_text(pathlib.Path(main).read_text() if main else "as published")
"""


@pytest.mark.parametrize("changed", ["", "webhook.Settings{}"])
def test_tools_of_one_module_are_built_at_once_with_edited_mains_in_folders_of_their_own(
    path: Path, tmp_path: Path, changed: str
) -> None:
    """Go refuses to replace files of its module cache. Here `go build` copies what it would compile."""
    sources = {"adapter": EDITS["keda-metrics-adapter"][0], "webhooks": changed or EDITS["keda-admission-webhooks"][0]}
    for name, text in sources.items():
        (tmp_path / "published" / name).mkdir(parents=True)
        (tmp_path / "published" / name / "main.go").write_text(text)
    program(path, "go", GO_COPIES.replace("PUBLISHED", repr(str(tmp_path / "published"))))
    tools = tmp_path / "tools"
    if changed:
        with pytest.raises(ToolError, match=r"'webhook\.Options\{' is 0 times in "):
            provide("keda-admission-webhooks", tools)
        return
    provide("keda-admission-webhooks", tools)
    built = {name: find(TOOLS[name], tools) for name in ("keda-operator", *EDITS)}
    assert {name: file.read_text() for name, file in built.items() if file} == {
        "keda-operator": "as published",
        **{name: after for name, (_, after) in EDITS.items()},
    }
    assert {name: (tmp_path / "published" / name / "main.go").read_text() for name in sources} == sources


def test_tools_of_one_module_are_built_alike() -> None:
    for tools in groups(TOOLS.values()):
        assert len({(tool.ldflags, tool.tags, tool.version) for tool in tools}) == 1


def test_what_was_compiled_goes_unless_it_is_in_the_cache_of_somebody_who_works_with_go(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, cache = tmp_path / "tools", path / "cache"
    fake_go(path)
    monkeypatch.setattr("embedded.tools.build.WARM", 1000)
    assert cache_of("go", tools) == tools / "go-build"
    (cache / "01").mkdir(parents=True)
    (cache / "01" / "a").write_bytes(b"x" * 600)
    assert cache_of("go", tools) == tools / "go-build"
    (cache / "01" / "b").write_bytes(b"x" * 600)
    assert cache_of("go", tools) is None
    shutil.rmtree(cache)
    monkeypatch.setenv("GOCACHE", str(cache))
    assert cache_of("go", tools) is None


def test_an_estimate_follows_the_pace_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(progress, "costs", lambda: {"pulumi": cost(400, 2000), "etcd": cost(40, 200)})
    pulumi, etcd = [PULUMI], [TOOLS["etcd"]]
    estimate = progress.Estimate([pulumi, etcd], begin=0)
    assert estimate.seconds(pulumi, 0, now=0) == pytest.approx(440 / 1.6)  # nothing seen yet: two processors, shared
    slow = estimate.seconds(pulumi, 1000, now=400)  # half of Pulumi took 400 s, so the other half takes as long
    assert 400 < slow < 500
    estimate.finished(pulumi)
    assert estimate.seconds(etcd, 0, now=800) == pytest.approx(40 / ((400 + 32) / 820))
    assert estimate.text(etcd, 0, now=800) == "0 of some 200 packages compiled, about 1 minute left for all builds"
    assert "less than a minute left" in estimate.text(etcd, 190, now=800)


def cost(cpu: float, packages: int) -> progress.Cost:
    return progress.Cost(cpu, packages, compiled=1, sources=1)


def test_every_module_has_a_recorded_cost() -> None:
    assert set(progress.costs()) == {tool.module.name for tool in TOOLS.values()}


def test_a_changed_pin_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = PULUMI.key
    monkeypatch.setattr("embedded.tools.registry.HERE", tmp_path)
    (tmp_path / "pulumi").mkdir()
    for name in ("go.mod", "go.sum"):
        (tmp_path / "pulumi" / name).write_text("another pin")
    assert PULUMI.key != key


def test_without_go_it_says_what_to_install(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as error:
        provide("pulumi", tmp_path / "tools")
    assert "Go is missing" in str(error.value)
    assert "https://go.dev/dl/" in str(error.value)
    assert "https://www.pulumi.com/docs/install/" in str(error.value)


def test_a_failed_build_shows_the_compilers_words_and_installs_nothing(path: Path, tmp_path: Path) -> None:
    fake_go(path, status=1)
    with pytest.raises(ToolError, match="status 1") as error:
        provide("pulumi", tmp_path / "tools")
    assert "a.go:1: does not compile" in str(error.value)
    assert not list((tmp_path / "tools").rglob("pulumi"))


def test_a_binary_that_reports_another_version_is_not_installed(path: Path, tmp_path: Path) -> None:
    fake_go(path, version="v0.0.0")
    with pytest.raises(ToolError, match=r"reports v0\.0\.0, not v3\.274\.1"):
        provide("pulumi", tmp_path / "tools")
    assert not list((tmp_path / "tools").rglob("pulumi"))


def test_a_build_that_takes_too_long_is_ended(path: Path, tmp_path: Path) -> None:
    program(path, "go", "import time; time.sleep(60)")
    with pytest.raises(ToolError, match="time limit"):
        provide("pulumi", tmp_path / "tools", limit=0.3)


def test_one_build_at_a_time(path: Path, tmp_path: Path) -> None:
    fake_go(path)
    lock = tmp_path / "lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ToolError, match="another process still holds"):
            provide("pulumi", tmp_path, limit=0)
    assert provide("pulumi", tmp_path).exists()


def test_who_waits_leaves_once_the_other_has_built_its_tool(path: Path, tmp_path: Path) -> None:
    """The other goes on with further tools, and holds the lock."""
    fake_go(path)
    installed = tmp_path / "bin" / PULUMI.key / "pulumi"
    installed.parent.mkdir(parents=True)
    built = threading.Timer(0.3, installed.touch)
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        built.start()
        assert provide("pulumi", tmp_path, limit=20) == installed


def test_command_line_prints_the_path_or_what_is_wrong(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = program(path, "pulumi", f"print('{PULUMI.version}')")
    assert main(["pulumi"]) == 0
    assert capsys.readouterr().out == f"{file}{os.linesep}"
    assert main(["helmet"]) == 1
    assert f"unknown tool 'helmet' (known: {', '.join(sorted(TOOLS))})" in capsys.readouterr().err
    assert main([]) == 2
