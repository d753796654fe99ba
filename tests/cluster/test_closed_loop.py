"""The loop with real servers: load, more replicas, less load, fewer replicas, and no stream is lost on the way.

The stack is `local` as `./dev up` deploys it: one Triton + vLLM server at rest, 4 requests per replica wanted, 8 at
once possible, 60 s of low demand before a replica ends. Only its maximum is 2 here, as two cores start two servers in
time. tests/unit/test_closed_loop_records.py has the arithmetic.
"""

import time
from queue import Empty

import pytest

from eks_llm import metrics
from embedded.addresses import loopback
from embedded.api import Api, Manifest, NotFoundError
from embedded.load.client import Task
from embedded.load.report import Totals
from embedded.load.run import Clients
from embedded.load.shape import Ramp
from embedded.platform import Platform
from embedded.services import address
from embedded.telemetry import connect
from tests.cluster.test_up import Dev, dev, model, real_cluster

pytestmark = pytest.mark.cluster

__all__ = ["dev", "model", "real_cluster"]  # fixtures

NAMESPACE, SERVICE, PORT = "inference", "tiny", 8000
HERE = (NAMESPACE, SERVICE)


def streams(url: str, connections: int, tokens_in: int = 32, tokens_out: int = 200) -> Clients:
    """Connections that each have a stream open at all times, until they are ended."""
    ramp = Ramp(connections, connections, 0, duration=1800)
    return Clients([Task(url, True, SERVICE, tokens_in, tokens_out, ramp, rate=0, seed=connections)])


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


def is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def test_load_adds_a_real_server_and_its_end_removes_one_without_losing_a_stream(dev: Dev) -> None:
    dev.run("up")
    api, telemetry = Api(dev.home / "kubeconfig"), connect(Platform(dev.home))
    host, port = address(api, *HERE, "http")
    url, begin = f"http://{host}:{port}", time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {what}", flush=True)

    def pods() -> list[Manifest]:
        found = [pod for pod in api.list("v1", "Pod", NAMESPACE) if is_ready(pod)]
        return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def waiting() -> float:
        return telemetry.value(metrics.total(metrics.WAITING, *HERE)) or 0.0

    def busy() -> float:
        """Replicas that answer requests."""
        return telemetry.value(f"count({metrics.RUNNING}{{{metrics.selector(*HERE)}}} > 0)") or 0.0

    identity = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
    api.patch({**identity, "metadata": {"name": SERVICE, "namespace": NAMESPACE}, "spec": {"maxReplicaCount": 2}})

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
