"""The closed loop, recorded: real KEDA, a real HPA controller and a real Prometheus follow five scripted loads.

    python benchmarks/closed_loop.py record     # writes benchmarks/results/closed_loop/, about eight minutes
    python benchmarks/closed_loop.py draw       # docs/images/closed-loop.svg and the table of docs/autoscaling.md

Each script has a service with our own ScaledObject, and all run at the same time. Pods are KWOK's and become ready
after the script's start time. What they would export comes from an exporter for each service: requests arrive as a
Poisson process, the Deployment's ready replicas answer them, and what finds every queue full is refused. So replicas
act on the signal and the signal on replicas. Records hold what Prometheus scraped, and what the HPA says of each of its
turns.

`replay` gives the scrapes to the simulator's arithmetic, which tests/unit/test_closed_loop_records.py compares.
"""

import argparse
import datetime
import json
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.marked import replaced
from eks_llm.explain.observe import quantity
from eks_llm.observe.metrics import KV_USAGE, RUNNING, WAITING
from eks_llm.serving import scaling as policy
from eks_llm.serving.observability import SCRAPE_INTERVAL
from eks_llm.simulate.keda import autoscaler
from eks_llm.simulate.plot import BLUE, FAINT, GREY, GRID, INK, LEFT, LIGHT_BLUE, ORANGE, RIGHT, WIDTH, Panel
from eks_llm.simulate.promql import FRONT_DOOR_METRICS, Store
from embedded.addresses import loopback, pod_ip
from embedded.api import Api, Manifest
from embedded.controlplane import ControlPlane
from embedded.keda import Keda
from embedded.near import opener
from embedded.nodes import START, Nodes, add, gpu_node
from embedded.ports import allot, chosen_base
from embedded.prometheus import Prometheus
from embedded.tools import TOOLS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results" / "closed_loop"
PICTURE, PAGE = ROOT / "docs" / "images" / "closed-loop.svg", ROOT / "docs" / "autoscaling.md"
NAMESPACE = "closed-loop"
SECONDS = 360.0
"""Of a script, once its service is steady."""
STEP = 0.25
"""Seconds between two states of the load, and between two counts of the replicas."""
ARRIVED = FRONT_DOOR_METRICS[0]
PORT = 8003
FIRST_POD = 50_000
"""Number of the first exporter's address, far from those that the pod runner gives."""

SLOTS, QUEUE = 32, 8
"""Requests that run and that wait in a replica."""
ALONE, SHARED = 2.0, 1 / 12
"""Seconds of a request alone, and more for each other one that runs beside it: a replica with 24 answers 6 a second."""
KV_SHARE = 0.02
"""Of a replica's KV cache that a request takes, give or take a tenth."""
CAPACITY = {"requestsPerSecond": 6.0, "inFlight": 24}
WORTH = 4.55
"""Requests per second that one replica is meant for: 95 % of the front door's target."""


@dataclass(frozen=True)
class Script:
    """A load, and the service that it meets."""

    name: str
    title: str
    load: Callable[[float], float]
    """Replicas that the load is worth, by seconds."""
    pod_start: float
    least: int
    most: int
    front_door: bool = False
    window: str | None = "60s"
    """Scale-down window; None: the policy's own."""

    def scaling(self) -> policy.Scaling:
        given: dict[str, Any] = {"min": self.least, "max": self.most, "capacity": CAPACITY}
        if self.front_door:
            given["frontDoor"] = {"query": f'sum(rate({ARRIVED}{{service="{self.name}"}}[1m]))'}
        if self.window:
            given["scaleDownWindow"] = self.window
        return policy.Scaling.model_validate(given)

    def scaled_object(self, prometheus: str) -> Manifest:
        """As a stack makes it."""
        scaling = self.scaling()
        return {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": policy.spec(
                NAMESPACE,
                self.name,
                scaling,
                scaling.in_flight(SLOTS),
                pod_start=self.pod_start,
                prometheus_url=prometheus,
            ),
        }


def stairs(*steps: tuple[float, float]) -> Callable[[float], float]:
    """A load that changes at the second that each step names."""
    return lambda now: [level for start, level in steps if now >= start or start == 0][-1]


def slope(*points: tuple[float, float]) -> Callable[[float], float]:
    """A load that goes evenly from point to point."""
    seconds, levels = zip(*points, strict=True)
    return lambda now: float(np.interp(now, seconds, levels))


SCRIPTS = (
    Script("step", "a step, and back", stairs((0, 2), (60, 5), (210, 2)), 20, 1, 8),
    Script("ramp", "a ramp", slope((0, 1), (30, 1), (210, 6), (260, 6), (300, 2)), 20, 1, 8),
    Script("bursts", "two bursts", stairs((0, 1), (45, 4), (90, 1), (210, 4), (255, 1)), 20, 1, 6),
    Script(
        "wave", "a wave, with a front door", lambda now: 3 - 2 * math.cos(now * math.tau / 240), 20, 1, 6,
        front_door=True,
    ),
    Script(
        "slow", "three times the load, pods start in 90 s, with a front door", stairs((0, 2), (60, 6)), 90, 2, 10,
        front_door=True, window=None,
    ),
)  # fmt: skip


# Recording ----------------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """The requests of one service, moved on by `step`."""

    script: Script
    dice: np.random.Generator
    ready: int = 0
    running: int = 0
    waiting: int = 0
    arrived: int = 0
    kv: float = 0.0

    def step(self, now: float) -> None:
        """`STEP` seconds, `now` seconds after the script's begin."""
        came = int(self.dice.poisson(max(0.0, self.script.load(max(0.0, now))) * WORTH * STEP))
        self.arrived += came
        each = self.running / max(1, self.ready)
        answered = int(self.dice.binomial(self.running, min(1.0, STEP / (ALONE + SHARED * each))))
        there = min(self.running + self.waiting - answered + came, self.ready * (SLOTS + QUEUE))
        self.running = min(there, self.ready * SLOTS)
        self.waiting = there - self.running
        self.kv = self.running * KV_SHARE * self.dice.uniform(0.9, 1.1)

    def metrics(self) -> str:
        values = {RUNNING: self.running, WAITING: self.waiting, KV_USAGE: round(self.kv, 4), ARRIVED: self.arrived}
        return "".join(f"{name} {value}\n" for name, value in values.items())


class Asked(ThreadingHTTPServer):
    """Stands before Prometheus and notes when KEDA asks what. KEDA's own polls and the HPA's turns look the same."""

    daemon_threads = True

    def __init__(self, prometheus: str) -> None:
        self.prometheus = prometheus
        self.last: dict[str, float] = {}
        """Time of the last question, by query."""
        super().__init__(("127.0.0.1", 0), Question)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Quiet(BaseHTTPRequestHandler):
    """Answers with a body, and logs nothing."""

    def answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Question(Quiet):
    """A question of KEDA's."""

    server: Asked  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        (query,) = parse_qs(urlsplit(self.path).query)["query"]
        self.server.last[query] = time.time()
        with opener().open(f"{self.server.prometheus}{self.path}", timeout=5) as answer:
            self.answer("application/json", answer.read())


class Exporter(ThreadingHTTPServer):
    """Serves the metrics of a service at an address of its own, where Prometheus finds a pod."""

    daemon_threads = True

    def __init__(self, address: str, load: Load) -> None:
        self.load = load
        super().__init__((address, PORT), Answer)


class Answer(Quiet):
    """A scrape."""

    server: Exporter  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.answer("text/plain; version=0.0.4; charset=utf-8", self.server.load.metrics().encode())


@dataclass
class Run:
    """One script on the platform, and what was seen of it. Times are seconds since the epoch."""

    script: Script
    number: int
    load: Load
    manifest: Manifest
    asked: dict[str, float]
    """When KEDA last asked Prometheus, by query."""
    turns: list[tuple[float, dict[str, Any]]] = field(default_factory=list[tuple[float, dict[str, Any]]])
    """States of the HPA by the time at which it asked. It writes one whenever a turn saw or did something new."""
    ready: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])

    @property
    def ip(self) -> str:
        return pod_ip(FIRST_POD + self.number)

    def turned(self, hpa: Manifest) -> None:
        """A state of the HPA; until it has decided for the first time, there is none."""
        status = hpa.get("status", {})
        signals = [item["external"] for item in status.get("currentMetrics") or [] if item.get("external")]
        turn = {
            "current": status.get("currentReplicas", 0),
            "desired": status.get("desiredReplicas", 0),
            "perReplica": {
                item["metric"]["name"]: round(quantity(item["current"]["averageValue"]), 3) for item in signals
            },
        }
        if turn["desired"] and signals and (not self.turns or self.turns[-1][1] != turn):
            self.turns.append((self.asked[self.manifest["spec"]["triggers"][0]["metadata"]["query"]], turn))

    def counted(self, deployment: Manifest) -> None:
        """Ready replicas, which answer requests from now on."""
        self.load.ready = deployment.get("status", {}).get("readyReplicas") or 0
        if not self.ready or self.ready[-1][1] != self.load.ready:
            self.ready.append((time.time(), self.load.ready))

    def objects(self) -> Iterator[Manifest]:
        """What scales, what is scraped, and the policy."""
        name, here = self.script.name, {"namespace": NAMESPACE}
        gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        container = {"name": "server", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        yield {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, **here},
            "spec": {
                "replicas": self.script.least,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}, "annotations": {START: f"{self.script.pod_start:g}s"}},
                    "spec": {"nodeSelector": {"eks-llm.dev/pool": "a100"}, "tolerations": [gpu],
                             "containers": [container]},
                },
            },
        }  # fmt: skip
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-exporter", "labels": {"exporter": name}, **here},
            "spec": {
                "schedulerName": "none",  # it is this process
                "containers": [
                    {"name": "exporter", "image": "any", "ports": [{"name": "metrics", "containerPort": PORT}]}
                ],
            },
        }
        relabeling = {"targetLabel": "service", "replacement": name}
        endpoint = {"port": "metrics", "interval": SCRAPE_INTERVAL, "relabelings": [relabeling]}
        yield {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PodMonitor",
            "metadata": {"name": name, **here},
            "spec": {"selector": {"matchLabels": {"exporter": name}}, "podMetricsEndpoints": [endpoint]},
        }
        yield self.manifest


def record() -> None:
    """Runs all scripts at once and writes their records."""
    with ExitStack() as ending:
        home = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        plane = ControlPlane(home, allot(chosen_base()))
        prometheus = Prometheus(plane)
        for part in (plane, Nodes(plane), prometheus, Keda(plane)):
            ending.callback(part.stop)
            part.start(print)
        api = Api(plane.kubeconfig)
        for index in range(1 + sum(script.most for script in SCRIPTS) // 8):
            add(api, gpu_node("a100", "p4d.24xlarge", "us-west-2b", index))
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        asked = Asked(prometheus.url)
        threading.Thread(target=asked.serve_forever, daemon=True).start()
        ending.callback(asked.shutdown)
        runs = [
            Run(
                script, number, Load(script, np.random.default_rng(number)), script.scaled_object(asked.url), asked.last
            )
            for number, script in enumerate(SCRIPTS)
        ]
        for run in runs:
            exporter = Exporter(loopback(run.ip), run.load)
            threading.Thread(target=exporter.serve_forever, daemon=True).start()
            ending.callback(exporter.shutdown)
            for manifest in run.objects():
                api.apply(manifest)
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{run.script.name}-exporter"}}
            pod["metadata"]["namespace"] = NAMESPACE
            status = {"phase": "Running", "podIP": run.ip, "podIPs": [{"ip": run.ip}]}
            api.patch({**pod, "status": status}, subresource="status")
        threading.Thread(target=watch, args=(Api(plane.kubeconfig), runs), daemon=True).start()
        begin = settled(api, runs)
        print(f"all services are steady; {SECONDS:g} s of load", flush=True)
        follow(api, runs, begin, begin + SECONDS)
        versions = {
            "kubernetes": api.raw("/version")["gitVersion"],
            **{name: TOOLS[tool].version for name, tool in (("keda", "keda-operator"), ("prometheus", "prometheus"))},
        }
        FOLDER.mkdir(parents=True, exist_ok=True)
        for run in runs:
            written = report(run, begin, scrapes(prometheus.url, run.script.name, begin), versions)
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in written.items())
            (FOLDER / f"{run.script.name}.json").write_text(f"{{\n{lines}\n}}\n")


def watch(api: Api, runs: list[Run]) -> None:
    """Tells each run of its HPA's states as they come, for as long as the platform is there."""
    found = {f"keda-hpa-{run.script.name}": run for run in runs}
    with suppress(Exception):  # the platform has ended
        for _, hpa in api.watch("autoscaling/v2", "HorizontalPodAutoscaler", timeout=3600, namespace=NAMESPACE):
            found[hpa["metadata"]["name"]].turned(hpa)


def settled(api: Api, runs: list[Run]) -> float:
    """Lets the loads run at their first level until every service has the replicas for it; the time then."""
    deadline = time.time() + 240
    while time.time() < deadline:
        follow(api, runs, math.inf, time.time() + 30)
        if all(run.turns and run.turns[-1][1]["desired"] == run.load.ready for run in runs):
            return float(math.ceil(time.time()))  # KEDA asks for full seconds, so these are full ones in the record too
    sys.exit("the services were not steady within 240 s")


def follow(api: Api, runs: list[Run], begin: float, end: float) -> None:
    """Moves the loads on and counts the replicas until `end`. Scripts begin at `begin`; inf: not yet."""
    stepped = time.time()
    while stepped < end:
        while stepped < min(time.time(), end):
            for run in runs:
                run.load.step(stepped - begin)
            stepped += STEP
        deployments = {item["metadata"]["name"]: item for item in api.list("apps/v1", "Deployment", NAMESPACE)}
        for run in runs:
            run.counted(deployments[run.script.name])
        time.sleep(max(0.0, stepped - time.time()))


def scrapes(url: str, service: str, begin: float) -> dict[str, list[float]]:
    """All samples that Prometheus has of a service: seconds from `begin`, and values by metric."""
    found: dict[str, list[float]] = {}
    for name in (RUNNING, WAITING, KV_USAGE, ARRIVED):
        query = urlencode({"query": f'{name}{{service="{service}"}}[1h]'})
        with opener().open(f"{url}/api/v1/query?{query}", timeout=10) as response:
            (series,) = json.loads(response.read())["data"]["result"]
        found["at"] = [round(at - begin, 3) for at, _ in series["values"]]
        found[name] = [float(value) for _, value in series["values"]]
    return found


def report(run: Run, begin: float, scraped: dict[str, list[float]], versions: dict[str, str]) -> dict[str, Any]:
    """A record; times are seconds from the script's begin."""
    script = run.script
    del run.manifest["metadata"]["namespace"]
    for trigger in run.manifest["spec"]["triggers"]:
        trigger["metadata"].pop("serverAddress", None)
    return {
        "name": script.name,
        "title": script.title,
        "date": time.strftime("%Y-%m-%d", time.gmtime(begin)),
        "machine": {"cpus": os.cpu_count(), "load": [round(value, 1) for value in os.getloadavg()]},
        "versions": versions,
        "podStart": script.pod_start,
        "manifest": run.manifest,
        "worth": [[second, round(script.load(second), 3)] for second in range(0, round(SECONDS), 5)],
        "ready": [[round(at - begin, 1), count] for at, count in run.ready],
        "scrapes": scraped,
        "turns": [{"at": round(at - begin, 3), **turn} for at, turn in run.turns],
    }


# Comparison ---------------------------------------------------------------------------------------------------------


def records() -> list[dict[str, Any]]:
    """The committed records, in the order of the scripts."""
    return [json.loads((FOLDER / f"{script.name}.json").read_text()) for script in SCRIPTS]


def replay(record: dict[str, Any], times: list[float]) -> list[int]:
    """Desired replicas by the simulator's arithmetic at each of `times`, from the recorded scrapes and policy.

    It starts with the replicas of the record and then follows itself.
    """
    scaler = autoscaler(record["manifest"], datetime.datetime.fromisoformat(record["date"]))
    scraped, desired, next_scrape = record["scrapes"], record["turns"][0]["current"], 0
    store, found = Store(1, float(SCRAPE_INTERVAL.removesuffix("s"))), []
    for now in times:
        while next_scrape < len(scraped["at"]) and scraped["at"][next_scrape] <= now:
            pod = {name: np.array([scraped[name][next_scrape]]) for name in (RUNNING, WAITING, KV_USAGE)}
            store.scrape(scraped["at"][next_scrape], np.array([True]), pod, {ARRIVED: scraped[ARRIVED][next_scrape]})
            next_scrape += 1
        ready = [count for at, count in record["ready"] if at <= now][-1]
        desired = scaler.sync(now, store, desired, ready)
        found.append(desired)
    return found


def apart(recorded: list[int], simulated: list[int]) -> list[int]:
    """Turns whose value the other series has neither then nor a turn before or after."""
    pairs = ((recorded, simulated), (simulated, recorded))
    return sorted(
        {
            turn
            for one, other in pairs
            for turn, value in enumerate(one)
            if value not in other[max(0, turn - 1) : turn + 2]
        }
    )


# Drawing ------------------------------------------------------------------------------------------------------------

STRIP, TITLE, TOP = 104, 44, 44
"""Heights, pixels: of a run's strip, of the title above it, and of the legend."""


def svg(found: list[dict[str, Any]]) -> str:
    """All runs, one below the other: the load, ready replicas, and desired ones as recorded and as simulated."""
    height = TOP + len(found) * (STRIP + TITLE) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" '
        f'font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<rect x="{LEFT}" y="19" width="22" height="10" fill="{LIGHT_BLUE}"/>',
        f'<line x1="{LEFT + 90}" x2="{LEFT + 112}" y1="24" y2="24" stroke="{GREY}"/>',
        f'<line x1="{LEFT + 250}" x2="{LEFT + 272}" y1="24" y2="24" stroke="{ORANGE}" stroke-width="4"/>',
        f'<line x1="{LEFT + 390}" x2="{LEFT + 412}" y1="24" y2="24" stroke="{BLUE}" stroke-width="1.5"/>',
    ]
    for x, text in ((28, "ready"), (118, "load, in replicas"), (278, "desired, real"), (418, "desired, simulated")):
        parts.append(f'<text x="{LEFT + x}" y="28" fill="{FAINT}">{text}</text>')
    for number, record in enumerate(found):
        parts += _strip(record, TOP + number * (STRIP + TITLE) + TITLE)
    bottom = Panel(height - 40, 0, 1, SECONDS)
    for minute in range(int(SECONDS // 60) + 1):
        x, anchor = bottom.x(minute * 60), "middle" if minute * 60 < SECONDS else "end"
        parts.append(f'<text x="{x:.1f}" y="{height - 20}" text-anchor="{anchor}" fill="{FAINT}">{minute} min</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _strip(record: dict[str, Any], top: float) -> Iterator[str]:
    times = [turn["at"] for turn in record["turns"]]
    recorded, simulated = [turn["desired"] for turn in record["turns"]], replay(record, times)
    panel = Panel(top, STRIP, max(recorded) + 1, SECONDS)
    yield f'<text x="{LEFT}" y="{top - 10}" font-weight="600">{escape(record["title"])}</text>'
    for level in range(0, max(recorded) + 2, 2):
        y = panel.y(level)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{FAINT}">{level}</text>'
    ready = _stairs(panel, *zip(*record["ready"], strict=True))
    yield f'<polygon points="{LEFT},{panel.bottom} {ready} {WIDTH - RIGHT},{panel.bottom}" fill="{LIGHT_BLUE}"/>'
    load = " ".join(f"{panel.x(second):.1f},{panel.y(level):.1f}" for second, level in record["worth"])
    yield f'<polyline points="{load}" fill="none" stroke="{GREY}"/>'
    for values, colour, width in ((recorded, ORANGE, 4), (simulated, BLUE, 1.5)):
        line = _stairs(panel, times, values)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _stairs(panel: Panel, times: Sequence[float], values: Sequence[int]) -> str:
    """Each value holds until the next; what was before 0 is left out."""
    edges = [min(max(0.0, time), SECONDS) for time in [*times, SECONDS]]
    points = zip(edges, edges[1:], values, strict=False)
    return " ".join(
        f"{panel.x(begin):.1f},{panel.y(value):.1f} {panel.x(end):.1f},{panel.y(value):.1f}"
        for begin, end, value in points
        if begin < end
    )


def table(found: list[dict[str, Any]]) -> str:
    """A row for each run, in Markdown."""
    rows = [
        "| run | pods start in | replicas | turns of the HPA | same value | a turn earlier or later | else |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for record in found:
        recorded = [turn["desired"] for turn in record["turns"]]
        simulated = replay(record, [turn["at"] for turn in record["turns"]])
        same = sum(one == other for one, other in zip(recorded, simulated, strict=True))
        far = len(apart(recorded, simulated))
        rows.append(
            f"| {record['title']} | {record['podStart']:g} s | {min(recorded)} to {max(recorded)} | {len(recorded)} "
            f"| {same} | {len(recorded) - same - far} | {far} |"
        )
    return "\n".join(rows)


def draw() -> None:
    """The picture and the table from the committed records."""
    found = records()
    PICTURE.write_text(svg(found), encoding="utf-8")
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), {"closed-loop": table(found)}), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["record", "draw"])
    {"record": record, "draw": draw}[parser.parse_args().command]()


if __name__ == "__main__":
    main()
