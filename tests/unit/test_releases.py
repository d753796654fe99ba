"""How published tools are downloaded: from a host on the loopback interface, that behaves and misbehaves."""

import datetime
import json
import re
import socket
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedded.tools import TOOLS, ToolError, find, obtain, provide, provide_all, releases
from embedded.tools.download import DownloadError, Network, fetch
from tests.unit.release_host import Host, archive, image, serving, sha256

ETCD = TOOLS["etcd"]
BINARY = f"#!/bin/sh\necho etcd Version: {ETCD.version.removeprefix('v')}\n".encode()
PROGRAM = ("etcd-x/etcd", BINARY)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Host]:
    """A host for releases, on a machine that has neither tools nor Go on PATH."""
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "EKS_LLM_TOOLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(obtain, "NETWORK", Network(timeout=5))
    with serving() as running:
        yield running


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    return tmp_path / "tools"


def publish(monkeypatch: pytest.MonkeyPatch, entries: dict[str, Any]) -> None:
    monkeypatch.setattr(releases, "entries", lambda: entries)


def published(host: Host, monkeypatch: pytest.MonkeyPatch, content: bytes, checksum: str = "", **entry: Any) -> None:
    """etcd is published on the host as this archive."""
    host.files["/etcd.tar.gz"] = content
    of_etcd = {
        "version": ETCD.version,
        "url": f"{host.url}/etcd.tar.gz",
        "member": PROGRAM[0],
        "sha256": {"amd64": checksum or sha256(content)},
        **entry,
    }
    publish(monkeypatch, {"etcd": [of_etcd]})


def go(folder: Path) -> None:
    """A `go` that builds a program which reports etcd's version."""
    file = folder / "go"
    file.write_text(
        f"""#!{sys.executable}
import pathlib, sys
if sys.argv[1] == "env":
    sys.exit()
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
out.write_text("#!/bin/sh\\necho {ETCD.version}\\n")
out.chmod(0o755)
"""
    )
    file.chmod(0o755)


def left(tools: Path) -> set[str]:
    """All files of the folder of tools but its lock."""
    return {str(file.relative_to(tools)) for file in tools.rglob("*") if not file.is_dir()} - {"lock"}


def test_every_release_says_where_its_checksum_was_read_and_is_of_the_pinned_version() -> None:
    for name, entries in releases.entries().items():
        assert not TOOLS[name].edit, f"{name} is edited, so what is published does not do"
        for entry in entries:
            assert entry["version"] == TOOLS[name].version
            assert len(entry["source"]) > 20
            assert datetime.date(2026, 1, 1) < entry["date"] <= datetime.datetime.now(datetime.UTC).date()
            checksums = [entry["digest"].removeprefix("sha256:")] if "image" in entry else [*entry["sha256"].values()]
            assert all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in checksums)
            assert "image" in entry or set(entry["sha256"]) <= {"amd64", "arm64"}
            assert "image" in entry or entry["url"].startswith("https://")
            assert "member" in entry or not entry["url"].endswith(".tar.gz")
        for arch in ("amd64", "arm64"):
            found = releases.origins(TOOLS[name], arch)
            assert found
            assert not any("{" in origin.location + origin.member for origin in found)


def test_a_release_is_downloaded_once(host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = archive(("etcd-x/README", b"?"), PROGRAM)
    published(host, monkeypatch, content)
    installed = provide("etcd", tools)
    assert installed == tools / "bin" / f"etcd-{ETCD.version}-{sha256(content)[:8]}" / "etcd"
    assert installed.read_bytes() == BINARY
    assert installed.stat().st_mode & stat.S_IXUSR
    assert left(tools) == {str(installed.relative_to(tools))}
    assert provide("etcd", tools) == installed
    assert host.targets == ["/etcd.tar.gz"]


def test_another_checksum_is_another_pin(host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(host, monkeypatch, archive(PROGRAM))
    provide("etcd", tools)
    published(host, monkeypatch, archive(PROGRAM), checksum="0" * 64)
    assert find(ETCD, tools) is None


def test_what_is_on_path_comes_first(host: Host, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(host, monkeypatch, archive(PROGRAM))
    (file := tmp_path / "path" / "etcd").write_bytes(BINARY)
    file.chmod(0o755)
    assert provide("etcd", tools) == file
    assert not host.seen


def test_a_wrong_checksum_is_refused_aloud_and_leaves_nothing(
    host: Host, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    published(host, monkeypatch, archive(("etcd-x/etcd", b"#!/bin/sh\necho evil\n")), checksum="a" * 64)
    with pytest.raises(ToolError, match="Go is missing to build it"):
        provide("etcd", tools)
    assert not left(tools)
    said = capfd.readouterr().err
    assert f"REFUSED: etcd: {host.url}/etcd.tar.gz has the SHA-256 " in said
    assert f"and not {'a' * 64} as pinned\n" in said
    go(tmp_path / "path")
    assert provide("etcd", tools) == tools / "bin" / ETCD.key / "etcd"  # built, which go.sum vouches for
    assert "as pinned; built instead" in capfd.readouterr().err


def test_a_download_that_is_cut_goes_on(host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = archive(PROGRAM)
    published(host, monkeypatch, content)
    host.cuts = [20, 0, 30]
    assert provide("etcd", tools).read_bytes() == BINARY
    assert [headers.get("Range") for _, headers in host.seen] == [None, "bytes=20-", "bytes=20-", "bytes=50-"]


def test_a_download_that_brings_nothing_more_is_given_up_and_kept(host: Host, tmp_path: Path) -> None:
    host.files["/file"] = b"0123456789"
    host.cuts = [4, 0, 0, 0]
    file = tmp_path / "file"
    with pytest.raises(DownloadError, match="broke off 3 times"):
        fetch(Network(5), f"{host.url}/file", file, sha256(b"0123456789"))
    assert (tmp_path / "file.part").read_bytes() == b"0123"
    fetch(Network(5), f"{host.url}/file", file, sha256(b"0123456789"))
    assert file.read_bytes() == b"0123456789"
    assert host.seen[-1][1]["Range"] == "bytes=4-"


@pytest.mark.parametrize("part", [b"another", b"one that is longer"])
def test_the_part_of_another_file_is_not_used(host: Host, tmp_path: Path, part: bytes) -> None:
    host.files["/file"] = b"0123456789"
    (tmp_path / "file.part").write_bytes(part)
    fetch(Network(5), f"{host.url}/file", tmp_path / "file", sha256(b"0123456789"))
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_what_is_not_there_is_built(
    host: Host, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    published(host, monkeypatch, archive(PROGRAM), url=f"{host.url}/gone")
    go(tmp_path / "path")
    assert provide("etcd", tools) == tools / "bin" / ETCD.key / "etcd"
    said = capfd.readouterr().err
    assert f"etcd: {host.url}/gone answers 404 Not Found; built instead" in said
    assert f"etcd {ETCD.version}: building (once), 0:00" in said


def test_without_a_network_each_host_is_tried_once(
    host: Host, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The host takes connections and never answers, which is how a firewall looks that drops everything."""
    monkeypatch.setattr(obtain, "NETWORK", Network(timeout=0.3))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        names = ["actionlint", "etcd", "kwok", "prometheus"]
        entry = {"url": f"{url}/{{binary}}", "sha256": {"amd64": "0" * 64}}
        publish(monkeypatch, {name: [{"version": TOOLS[name].version, **entry}] for name in names})
        with pytest.raises(ToolError, match="Go is missing"):
            provide_all(names, tools)
        with pytest.raises(ToolError, match="Go is missing"):
            provide("etcd", tools)
        silent.settimeout(0.2)
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()
    said = [line for line in capfd.readouterr().err.splitlines() if "cannot be reached" in line]
    of_all, of_etcd = said
    assert of_all.startswith("actionlint, etcd, kwok, prometheus: 127.0.0.1:")
    assert of_all.endswith("cannot be reached (timed out)")
    assert of_etcd.startswith("etcd: 127.0.0.1:")


def test_a_proxy_is_asked(host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(host, monkeypatch, archive(PROGRAM), url="http://releases.example/etcd.tar.gz")
    monkeypatch.setenv("HTTP_PROXY", host.url)
    provide("etcd", tools)
    assert host.targets == ["http://releases.example/etcd.tar.gz"]


def test_a_host_without_proxy_is_asked_directly(host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(host, monkeypatch, archive(PROGRAM))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    provide("etcd", tools)
    assert host.targets == ["/etcd.tar.gz"]


def link(kind: bytes, name: str = PROGRAM[0], target: str = "/bin/sh") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (archive(link(tarfile.SYMTYPE)), "is no regular file"),
        (archive(link(tarfile.LNKTYPE)), "is no regular file"),
        (archive(link(tarfile.CHRTYPE)), "is no regular file"),
        (archive((f"../../{PROGRAM[0]}", BINARY)), "has no file etcd-x/etcd"),
        (archive((f"/{PROGRAM[0]}", BINARY)), "has no file etcd-x/etcd"),
        (archive((f"etcd-x/../{PROGRAM[0]}", BINARY)), "has no file etcd-x/etcd"),
        (archive(PROGRAM)[:-40], "cannot be unpacked"),
        (b"<html>Sign in to the network</html>", "cannot be unpacked"),
    ],
)
def test_a_hostile_archive_leads_nowhere(
    host: Host,
    tools: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    content: bytes,
    problem: str,
) -> None:
    published(host, monkeypatch, content)
    with pytest.raises(ToolError):
        provide("etcd", tools)
    assert problem in capfd.readouterr().err
    assert not left(tools)


def test_other_entries_of_an_archive_are_not_written(
    host: Host, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = (f"../{'../' * 20}{tmp_path}/evil", b"x"), (f"{tmp_path}/evil", b"x")
    folder = link(tarfile.SYMTYPE, "etcd-x", str(tmp_path))
    published(host, monkeypatch, archive(*outside, folder, ("./etcd-x/etcd", BINARY)))
    installed = provide("etcd", tools)
    assert installed.read_bytes() == BINARY
    assert left(tools) == {str(installed.relative_to(tools))}
    assert {file.name for file in tmp_path.iterdir()} == {"path", "tools"}


def test_a_binary_that_tells_another_version_or_does_not_run_is_not_installed(
    host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for body, problem in (
        (b"#!/bin/sh\necho 3.6.1\n", f"does not say that it is {ETCD.version}"),
        (b"\x7fELF of another machine", "does not run on x86_64 (Exec format error)"),
    ):
        published(host, monkeypatch, archive((PROGRAM[0], body)))
        with pytest.raises(ToolError):
            provide("etcd", tools)
        assert problem in capfd.readouterr().err
        assert not left(tools)


def test_two_processes_at_once_download_once(host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(host, monkeypatch, archive(PROGRAM))
    code = (
        "import json, pathlib, sys; from embedded.tools import provide, releases\n"
        "entries = json.loads(sys.argv[1]); releases.entries = lambda: entries\n"
        "print(provide('etcd', pathlib.Path(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, json.dumps(releases.entries()), str(tools)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) for _ in range(2)
    ]
    answers = {process.communicate(timeout=60)[0] for process in both}
    assert len(answers) == 1
    assert Path(answers.pop().strip()).read_bytes() == BINARY
    assert host.targets == ["/etcd.tar.gz"]


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("arm64", "arm64")])
def test_each_architecture_has_its_own_file(
    host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch, machine: str, arch: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    content = archive((f"etcd-{arch}/etcd", BINARY))
    host.files[f"/etcd-{ETCD.version}-{arch}.tar.gz"] = content
    entry = {
        "version": ETCD.version,
        "url": f"{host.url}/etcd-{{version}}-{{arch}}.tar.gz",
        "member": "etcd-{arch}/etcd",
        "sha256": {"amd64": "0" * 64, arch: sha256(content)},
    }
    publish(monkeypatch, {"etcd": [entry]})
    assert provide("etcd", tools).read_bytes() == BINARY


@pytest.mark.parametrize(("machine", "mode"), [("riscv64", ""), ("x86_64", "build")])
def test_elsewhere_and_where_it_is_asked_for_all_is_built(
    host: Host, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, mode: str
) -> None:
    published(host, monkeypatch, archive(PROGRAM))
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setenv("EKS_LLM_TOOLS", mode)
    go(tmp_path / "path")
    assert provide("etcd", tools) == tools / "bin" / ETCD.key / "etcd"
    assert not host.seen


def test_an_archive_with_two_tools_is_downloaded_once(host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = TOOLS["prometheus"].version
    say = f"#!/bin/sh\necho version {version}\n".encode()
    content = archive(("p/prometheus", say), ("p/promtool", say + b"#\n"))
    host.files["/p.tar.gz"] = content
    entry = {
        "version": version,
        "url": f"{host.url}/p.tar.gz",
        "member": "p/{binary}",
        "sha256": {"amd64": sha256(content)},
    }
    publish(monkeypatch, {"prometheus": [entry], "promtool": [entry]})
    assert provide("promtool", tools).read_bytes() == say + b"#\n"
    assert host.targets == ["/p.tar.gz"]
    assert find(TOOLS["prometheus"], tools)  # beside: it is wanted next


# Images -------------------------------------------------------------------------------------------------------------


def in_image(host: Host, monkeypatch: pytest.MonkeyPatch, digest: str) -> None:
    entry = {"version": ETCD.version, "image": f"127.0.0.1:{host.port}/x/etcd", "member": "usr/bin/etcd"}
    publish(monkeypatch, {"etcd": [{**entry, "digest": f"sha256:{digest}"}]})


def test_a_file_of_an_image_is_taken_from_its_layer(host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, top = archive(("etc/passwd", b"x")), archive(("usr/bin/etcd", BINARY))
    digest = image(host, "x/etcd", {"arm64": [base, archive(("usr/bin/etcd", b"arm"))], "amd64": [base, top]})
    in_image(host, monkeypatch, digest)
    assert provide("etcd", tools).read_bytes() == BINARY
    assert [target.rpartition("/")[0] for target in host.targets] == ["/v2/x/etcd/manifests"] * 2 + ["/v2/x/etcd/blobs"]


def test_a_registry_that_wants_a_token_gets_it_and_nobody_else_does(
    host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = archive(("usr/bin/etcd", BINARY))
    in_image(host, monkeypatch, image(host, "x/etcd", {"amd64": [layer]}))
    host.token = "anyone"
    host.files["/token"] = b'{"token": "anyone"}'
    blob = f"/v2/x/etcd/blobs/sha256:{sha256(layer)}"
    host.files["/store"] = host.files.pop(blob)
    host.answers[blob] = (307, {"Location": f"{host.url}/store"})
    provide("etcd", tools)
    sent = {target.partition("?")[0].rpartition("/")[0] or target: headers for target, headers in host.seen}
    assert sent["/v2/x/etcd/blobs"]["Authorization"] == "Bearer anyone"
    assert "Authorization" not in sent["/store"]
    assert "/token?service=test&scope=repository%3Ax%3Apull" in host.targets


@pytest.mark.parametrize("kind", ["manifests", "blobs"])
def test_a_registry_that_sends_something_else_is_refused(
    host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    in_image(host, monkeypatch, image(host, "x/etcd", {"amd64": [archive(("usr/bin/etcd", BINARY))]}))
    for path in [path for path in host.files if kind in path]:
        host.files[path] += b" "
    with pytest.raises(ToolError):
        provide("etcd", tools)
    assert "REFUSED: etcd: " in capfd.readouterr().err
    assert not left(tools)


def test_an_image_that_lacks_this_architecture_or_the_file_is_not_used(
    host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for arch, problem in (("arm64", "is not published for amd64"), ("amd64", "has no file usr/bin/etcd")):
        in_image(host, monkeypatch, image(host, "x/etcd", {arch: [archive(("bin/etcd", BINARY))]}))
        with pytest.raises(ToolError):
            provide("etcd", tools)
        assert problem in capfd.readouterr().err
        assert not left(tools)


def test_a_registry_that_breaks_off_or_answers_nonsense_is_passed_over(
    host: Host, tools: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    in_image(host, monkeypatch, image(host, "x/etcd", {"amd64": [archive(("usr/bin/etcd", BINARY))]}))
    host.cuts = [10]
    with pytest.raises(ToolError):
        provide("etcd", tools)
    assert "the connection broke off" in capfd.readouterr().err
    host.token, host.files["/token"] = "anyone", b"<html>Sign in to the network</html>"
    with pytest.raises(ToolError):
        provide("etcd", tools)
    assert f"etcd: 127.0.0.1:{host.port}/x/etcd: Expecting value" in capfd.readouterr().err
    assert not left(tools)
