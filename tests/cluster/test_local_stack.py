"""One `./dev up`, and what people do with it, in their order: status, logs, an update, a load, down.

The load closes the loop with real servers: more of it, more replicas; less, fewer; and no stream is lost on the way.
There is one Triton + vLLM server at rest, 4 requests per replica wanted, 8 at once possible. The load's test shortens
the 60 s of low demand before a replica ends, and allows two. tests/unit/test_closed_loop_records.py has the arithmetic.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest

from eks_llm.observe import metrics
from embedded.addresses import loopback
from embedded.api import Api, Manifest, NotFoundError, condition
from embedded.load.client import GRACE, Task
from embedded.load.report import Totals
from embedded.load.run import Clients
from embedded.load.shape import Ramp
from embedded.platform import ALL, Platform
from embedded.process import PATIENCE, pid_of, start_time
from embedded.services import address
from embedded.telemetry import connect
from tests.cluster.dev import FIRST_TOKEN, Dev, developing, pids, said

pytestmark = pytest.mark.cluster

NAMESPACE, SERVICE, PORT = "inference", "tiny", 8000
HERE = (NAMESPACE, SERVICE)


def streams(url: str, connections: int, tokens_in: int = 32, tokens_out: int = 200) -> Clients:
    """Connections that each have a stream open at all times, until they are ended."""
    ramp = Ramp(connections, connections, 0, duration=1800)
    return Clients([Task(url, True, SERVICE, tokens_in, tokens_out, ramp, rate=0, seed=connections, grace=300)])


def ended(clients: Clients, totals: Totals | None = None) -> Totals:
    """Ends the load and waits for its streams; what came of all of them."""
    totals = totals or Totals()
    clients.end()
    while clients.running or not clients.reports.empty():
        heard(clients, totals, wait=0.5)
    return totals


def heard(clients: Clients, totals: Totals, wait: float = 0.01) -> Totals:
    """What the clients have said since."""
    try:
        while True:
            totals.add(*clients.reports.get(timeout=wait), 0.0)
    except Empty:
        return totals


@pytest.fixture(scope="module")
def dev(everything: None, tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Dev]:
    with developing(tmp_path_factory.mktemp("dev"), model) as dev:
        yield dev


@pytest.fixture(scope="module")
def killed(dev: Dev) -> list[int]:
    """What a `./dev up` left that was killed while the pods of the service were starting."""
    up = dev.start("up")
    said(up, "Waiting for app")
    up.kill()
    up.wait()
    left = pids(dev.home)
    assert pid_of(dev.home, "deployment") in left  # it goes on by itself, until the next command ends it
    return left


@pytest.fixture(scope="module")
def up(dev: Dev, killed: list[int]) -> str:
    """What the next `./dev up` said."""
    return dev.run("up")


def test_up_after_a_killed_one_starts_afresh(dev: Dev, killed: list[int], up: str) -> None:
    assert "an earlier run was killed: ending what it left, and starting afresh" in up
    assert FIRST_TOKEN.search(up)
    assert not [pid for pid in killed if start_time(pid)]


def test_up_streams_a_token(dev: Dev, up: str) -> None:
    first = FIRST_TOKEN.search(up)
    assert first
    print(f"first token after {first[2]} s, at a load of {os.getloadavg()[0]:.0f}")
    (pod,) = Api(dev.home / "kubeconfig").list("v1", "Pod", "inference")
    status = dev.run("status", COLUMNS="160")
    assert f"{len(ALL)} of {len(ALL)} run" in status
    assert re.search(rf"inference/{pod['metadata']['name']} +yes +0 +Running +local-local-0", status)
    assert re.search(rf"inference/tiny +1 ready, 1 desired, 1 to 3 +demand 0 of 4 +{re.escape(first[1])}", status)
    assert "kv-cache" in status
    assert "Started container server" in dev.run("logs", "pod-runner")
    assert "Started HTTPService at 0.0.0.0:8000" in dev.run("logs", "tiny")
    assert "no logs of 'pod-runer'; did you mean 'pod-runner'" in dev.run("logs", "pod-runer", status=1)


def test_ctrl_c_of_an_update_leaves_what_was_up(dev: Dev, up: str) -> None:
    left = pids(dev.home)
    assert len(left) == len(ALL)
    update = dev.start("up")
    said(update, "deploying")
    time.sleep(1)
    update.send_signal(signal.SIGINT)
    rest, _ = update.communicate(timeout=120)
    assert update.returncode == 130
    assert "ending the update; what was up stays up" in rest
    assert pids(dev.home) == left


def test_a_second_up_changes_nothing(dev: Dev, up: str) -> None:
    left = pids(dev.home)
    again = dev.run("up")
    assert "the platform is up already" in again
    assert re.search(r"^no change, \d+ as before", again, re.MULTILINE)
    assert FIRST_TOKEN.search(again)
    assert pids(dev.home) == left


def test_load_adds_a_real_server_and_its_end_removes_one_without_losing_a_stream(dev: Dev, up: str) -> None:
    api, telemetry = Api(dev.home / "kubeconfig"), connect(Platform(dev.home))
    host, port = address(api, *HERE, "http")
    url, begin = f"http://{host}:{port}", time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {what}", flush=True)

    def pods() -> list[Manifest]:
        found = [pod for pod in api.list("v1", "Pod", NAMESPACE) if condition(pod, "Ready") == "True"]
        return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def waiting() -> float:
        return telemetry.value(metrics.total(metrics.WAITING, *HERE)) or 0.0

    def busy() -> float:
        """Replicas that answer requests."""
        return telemetry.value(f"count({metrics.RUNNING}{{{metrics.selector(*HERE)}}} > 0)") or 0.0

    identity = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
    window = {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 15}}}}
    spec = {"maxReplicaCount": 2, "advanced": window}
    api.patch({**identity, "metadata": {"name": SERVICE, "namespace": NAMESPACE}, "spec": spec})

    # Long prompts, so that the engine is the limit, and not those who read its tokens.
    with streams(url, 16, tokens_in=300, tokens_out=150) as load:
        api.wait("requests that wait", lambda: waiting() >= 4, 120)
        told("16 streams, of which one server runs 8: some wait")
        api.wait("a second replica is desired", lambda: telemetry.service(SERVICE).desired == 2, 120)
        told("a second replica is desired")
        api.wait("a second server is ready", lambda: len(pods()) == 2, 600)
        told("a second server is ready")
        api.wait("both answer, and the queue is gone", lambda: busy() == 2 and waiting() < 4, 120)
        told("both answer, and the queue is gone")
        loaded = ended(load)

    # Three streams are within the target of one replica. Two of them run on the server that will go: the younger one.
    first, last = pods()
    with streams(url, 1) as rest, streams(f"http://{loopback(last['status']['podIP'])}:{PORT}", 2) as leaving:
        totals = Totals()

        def removed() -> bool:
            heard(leaving, totals)
            pod = api.get("v1", "Pod", last["metadata"]["name"], NAMESPACE)
            return "deletionTimestamp" in pod["metadata"]

        low = time.monotonic()
        api.wait("a server is removed", removed, 400)
        told(f"a server is removed, {time.monotonic() - low:.0f} s after the load, with {totals.open} streams on it")
        assert totals.open > 0
        drained = ended(leaving, totals)
        told("its last streams have ended")

        def gone() -> bool:
            try:
                api.get("v1", "Pod", last["metadata"]["name"], NAMESPACE)
            except NotFoundError:
                return True
            return False

        api.wait("the server is gone", gone, 90)
        told("it is gone")
        rested = ended(rest)
    assert [pod["metadata"]["name"] for pod in pods()] == [first["metadata"]["name"]]
    for part in (loaded, drained, rested):
        assert part.counts["finished"] > 0
        assert part.counts["lost"] == part.counts["cut"] == 0, part.problems


def test_down_leaves_nothing(dev: Dev, up: str) -> None:
    left = pids(dev.home)
    load = dev.start("load", "--to", "2", "--ramp", "0s")
    said(load, "0:00 of")
    begin = time.monotonic()
    dev.run("down")
    took = time.monotonic() - begin
    print(f"down in {took:.1f} s")
    rest, _ = load.communicate(timeout=GRACE + PATIENCE)
    assert load.returncode == 1
    assert "the platform is down" in rest
    dev.nothing_left(left)
    dev.real.untouched()
