"""The commands of the embedded platform: the parts that need no platform."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from embedded import logs, preflight, prompt, weights
from embedded.deployment import Narrator
from embedded.ports import DEFAULT_BASE, chosen_base
from embedded.process import PlatformError
from embedded.stack import Stack
from embedded.tools import TOOLS
from embedded.tools.progress import costs
from embedded.view import reason, signals

# Stack files ----------------------------------------------------------------------------------------------------------


def test_the_stack_for_this_machine_names_its_kubeconfig() -> None:
    local = Stack.find("local")
    assert local.is_local
    assert not Stack.find("dev").is_local
    (node,) = local.nodes()
    assert node["metadata"]["labels"]["eks-llm.dev/pool"] == "local"
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "8"  # AWS: p4d.24xlarge has eight A100
    local.check()


def test_an_unknown_stack_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        PlatformError, match=r"no stack 'loacl': Pulumi.loacl.yaml does not exist .* did you mean 'local'"
    ):
        Stack.find("loacl")


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Stack]:
    """The stack `local` with a part of its file replaced."""
    root = Path(__file__).parents[2]
    for name in ("infra", "components", "model_repository"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "Pulumi.yaml").write_text((root / "Pulumi.yaml").read_text())
    monkeypatch.setattr("embedded.stack.ROOT", tmp_path)

    def change(old: str, new: str) -> Stack:
        text = (root / "Pulumi.local.yaml").read_text()
        assert text.count(old) == 1
        (tmp_path / "Pulumi.local.yaml").write_text(text.replace(old, new))
        return Stack.find("local")

    return change


def test_all_that_is_wrong_with_a_stack_is_said_before_anything_starts(changed: Callable[[str, str], Stack]) -> None:
    with pytest.raises(PlatformError) as refused:
        changed("maxNumSeqs: 8", "maxNumSeqs: none").check()
    assert str(refused.value).startswith("Pulumi.local.yaml cannot run:\n")
    assert "platform.services.tiny.engine.maxNumSeqs" in str(refused.value)


def test_a_secret_is_refused_as_there_is_nowhere_to_set_it(changed: Callable[[str, str], Stack]) -> None:
    stack = changed("runtime: triton", "runtime: openai\n        apiKeySecret: inferenceApiKey")
    with pytest.raises(
        PlatformError, match=r"services\.tiny\.apiKeySecret: no secrets are kept for a stack on this machine"
    ):
        stack.check()


def test_weights_that_nobody_makes_must_be_there(tmp_path: Path) -> None:
    service = {"model": "llama-3-8b-instruct", "weights": "s3://models/llama/"}
    stack: Any = SimpleNamespace(services={"chat": service}, file=Path("Pulumi.local.yaml"))
    serving: Any = None  # not needed for files that are there
    folder = tmp_path / "models" / "llama"
    with pytest.raises(PlatformError, match=f"services.chat.weights: {folder} holds no model, .*s3://models/llama/"):
        weights.provide(stack, tmp_path, serving, print)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    weights.provide(stack, tmp_path, serving, print)


# Before the start -----------------------------------------------------------------------------------------------------


def test_all_that_a_machine_lacks_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=7.8e9))
    monkeypatch.setattr("embedded.preflight.disk_of", lambda _: 1)
    for name, value in {"PATH": tmp_path, "PYENV_ROOT": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("EKS_LLM_SERVING_ENV", raising=False)
    with pytest.raises(PlatformError) as refused:
        preflight.check(tmp_path / "home", ["etcd"])
    said = str(refused.value)
    assert "unshare is missing (package util-linux)" in said
    assert "Go is missing" in said
    assert "no Python 3.12 or 3.11 with a shared libpython found" in said
    assert f"the disk of {tmp_path / 'home'} has 7.8 GB free, and 8.5 GB are needed: 3 GB for state" in said


def test_a_first_run_needs_room_for_gos_caches(tmp_path: Path) -> None:
    caches = {"GOCACHE": tmp_path / "compiled", "GOMODCACHE": tmp_path / "modules"}

    def wanted(*missing: str) -> dict[str, float]:
        found = preflight.needs(tmp_path, missing, servers=False, caches=caches)
        return {need.what.partition(" (")[0]: need.gb for need in found}

    cold = wanted("etcd", "kube-apiserver", "kube-scheduler")
    of_both = [costs()[module] for module in ("etcd", "kubernetes-1.36")]
    assert cold["what Go compiles"] == round(sum(cost.compiled for cost in of_both), 1)
    assert cold["sources that Go downloads"] == round(sum(cost.sources for cost in of_both), 1)
    assert cold["Triton and vLLM"] == 6.5
    (caches["GOMODCACHE"] / "k8s.io" / f"kubernetes@{TOOLS['kube-apiserver'].version}").mkdir(parents=True)
    assert sum(wanted("kube-apiserver").values()) == 15
    assert sum(wanted().values()) == 9.5


def test_what_is_published_is_not_counted_as_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert preflight.unpublished(["etcd", "keda-metrics-adapter"]) == ["keda-metrics-adapter"]
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert preflight.unpublished(["etcd", "keda-metrics-adapter"]) == ["etcd", "keda-metrics-adapter"]


def test_each_disk_is_counted_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, other = tmp_path / "small", tmp_path / "other"
    for folder in (small, other):
        folder.mkdir()
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4e9))
    monkeypatch.setattr("embedded.preflight.disk_of", [other, small].index)
    needs = [preflight.Need(other / "a", 3, "a"), preflight.Need(small / "b", 3, "b")]
    assert not list(preflight.too_full(needs))
    more = preflight.Need(small / "c", 1.5, "c")
    (said,) = preflight.too_full([*needs, more])
    assert said == f"the disk of {small / 'b'} has 4.0 GB free, and 4.5 GB are needed: 3 GB for b, 1.5 GB for c"


@pytest.mark.parametrize("text", ["80", "abc", "40000", "-1"])
def test_a_bad_base_of_ports_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EKS_LLM_PORTS", text)
    with pytest.raises(PlatformError, match=f"EKS_LLM_PORTS={text}: not the first port of a block, 1024 to 32000"):
        chosen_base()
    monkeypatch.setenv("EKS_LLM_PORTS", "")
    assert chosen_base() == DEFAULT_BASE


# Logs -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    pods = tmp_path / "logs" / "pods"
    pods.mkdir(parents=True)
    (tmp_path / "logs" / "etcd.log").write_text("one\ntwo\nthree\n")
    for pod in ("tiny-5f7-abc", "tiny-5f7-def", "tinybig-1"):
        (pods / f"llm_{pod}_server.log").write_text(f"hello from {pod}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("etcd", ["etcd"]),
        ("tiny", ["llm/tiny-5f7-abc/server", "llm/tiny-5f7-def/server"]),
        ("tiny-5f7-abc", ["llm/tiny-5f7-abc/server"]),
        ("llm/tiny-5f7-abc", ["llm/tiny-5f7-abc/server"]),
        ("tinybig-1/server", ["llm/tinybig-1/server"]),
        (None, ["etcd", "llm/tiny-5f7-abc/server", "llm/tiny-5f7-def/server", "llm/tinybig-1/server"]),
    ],
)
def test_a_name_means_a_process_a_pod_or_the_pods_of_a_service(home: Path, wanted: str, names: list[str]) -> None:
    assert list(logs.chosen(home, wanted)) == names


def test_an_unknown_name_gets_the_nearest_and_all(home: Path) -> None:
    with pytest.raises(
        PlatformError, match=r"no logs of 'etdc'; did you mean 'etcd'\? \(there are: etcd, tiny-5f7-abc"
    ):
        logs.chosen(home, "etdc")


def test_the_last_lines_and_what_is_added(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "logs" / "etcd.log"
    select = lambda: logs.chosen(home, "etcd")  # noqa: E731
    assert list(logs.lines(select, follow=False, tail=None)) == [("etcd", line) for line in ("one", "two", "three")]
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    following = logs.lines(select, follow=True, tail=1)
    assert next(following) == ("etcd", "three")
    with file.open("a") as more:
        more.write("four\n")
    assert next(following) == ("etcd", "four")


# Status ---------------------------------------------------------------------------------------------------------------


def test_signals_have_the_names_of_their_triggers() -> None:
    """The HPA's status as KEDA 2.20 and Kubernetes 1.36 write it; quantities: `500m` is a half."""

    def metric(name: str, **value: Any) -> dict[str, Any]:
        return {"type": "External", "external": {"metric": {"name": name}, **value}}

    target = {"type": "AverageValue"}
    hpa = {
        "spec": {
            "metrics": [
                metric("s0-prometheus", target={**target, "averageValue": "4"}),
                metric("s1-prometheus", target={**target, "averageValue": "80"}),
            ]
        },
        "status": {"currentMetrics": [{"type": ""}, metric("s0-prometheus", current={"averageValue": "2500m"})]},
    }
    scaler = {"spec": {"triggers": [{"type": "prometheus", "name": "demand"}, {"type": "prometheus"}]}}
    assert signals(hpa, scaler) == ["demand 2.5 of 4", "prometheus unknown of 80"]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, "Running"),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "exit code 3"}}}]},
            "CrashLoopBackOff: exit code 3",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]},
            "Unschedulable: 0/1",
        ),
    ],
)
def test_why_a_pod_does_not_run(status: dict[str, Any], said: str) -> None:
    assert reason({"metadata": {}, "status": status}) == said
    assert reason({"metadata": {"deletionTimestamp": "2026-11-30T00:00:00Z"}, "status": status}) == "Terminating"


# The first token ------------------------------------------------------------------------------------------------------


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def events(*contents: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(content).encode() + b"\n\n" for content in contents)


def test_the_answers_of_both_runtimes_are_read() -> None:
    """Events as Triton's generate_stream and vLLM's completions write them."""
    triton = events({"TEXT_OUTPUT": "a", "FINISH_REASON": ""}, {"TEXT_OUTPUT": "", "FINISH_REASON": "length"})
    with answering(triton) as url:
        assert list(prompt.stream(url, triton=True, model="tiny")) == ["a"]
    openai = events({"choices": [{"text": "b"}]}, {"choices": [], "usage": {}}) + b"data: [DONE]\n\n"
    with answering(openai) as url:
        assert list(islice(prompt.stream(url, triton=False, model="tiny"), 5)) == ["b"]


@pytest.mark.parametrize(
    ("body", "status"), [(b'{"error": "model is full"}', 503), (events({"error": "model is full"}), 200)]
)
def test_an_error_of_the_server_is_passed_on(body: bytes, status: int) -> None:
    with answering(body, status) as url, pytest.raises(PlatformError, match="model is full"):
        list(prompt.stream(url, triton=True, model="tiny"))


# The engine -----------------------------------------------------------------------------------------------------------


def test_the_engines_events_become_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def resource(op: str, kind: str) -> Any:
        metadata = SimpleNamespace(
            op=SimpleNamespace(value=op), type=kind, urn=f"urn:pulumi:local::eks-llm::{kind}::tiny"
        )
        return SimpleNamespace(diagnostic_event=None, res_outputs_event=SimpleNamespace(metadata=metadata))

    def diagnostic(severity: str, message: str) -> Any:
        found = SimpleNamespace(severity=severity, message=message)
        return SimpleNamespace(diagnostic_event=found, res_outputs_event=None)

    narrator = Narrator()
    for event in (
        resource("create", "kubernetes:apps/v1:Deployment"),
        resource("same", "kubernetes:core/v1:Namespace"),
        resource("create", "pulumi:pulumi:Stack"),
        diagnostic("info", "[1/2] Waiting for app\nReplicaSet"),
        diagnostic("info", "[1/2] Waiting for app\nReplicaSet"),
        diagnostic("warning", "an image has no digest"),
        diagnostic("error", "not ready"),
    ):
        narrator.hear(event)
    assert capsys.readouterr().out.splitlines() == [
        "  create   Deployment tiny",
        "  [1/2] Waiting for app ReplicaSet",
        "  error: not ready",
    ]
    assert narrator.failed
