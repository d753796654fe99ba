"""`./dev load`: starts the client processes, follows them and the platform, and says what came of it."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..api import Api
from ..platform import Platform
from ..process import PlatformError, recorded
from ..services import address
from ..telemetry import Scaling, Service, Telemetry, connect, queries
from . import report
from .client import GRACE, Report, Task
from .report import Seen, Totals, clock
from .shape import Ramp, part, scaled

ROOT = Path(__file__).parents[2]
PER_PROCESS = 60
"""Connections of one client process, well below what it can read: a few per cent of a core on the tiny model."""
LOOK_SECONDS = 2.0
"""Between two looks at the platform."""
LINE_SECONDS = 10.0
"""Between two lines where there is no terminal."""
FALL_SECONDS = 240.0
"""Seconds a replica, beyond the scale-down window, until its fall is given up on: twice the HPA's period and its drain.
"""
DOWN = "the platform is down: `./dev down` has ended it, or an `./dev up` that failed"


@dataclass(frozen=True)
class Plan:
    """What the command line asks for."""

    ramp: Ramp
    rate: float = 0.0
    """Requests a second at the ramp's end; 0: connections without a pause."""
    scale: float = 8.0
    """The reference's tokens are divided by this."""
    seed: int = 1

    def __str__(self) -> str:
        tokens_in, tokens_out = scaled(self.scale)
        ramp = self.ramp
        arriving = f", {self.rate:g} requests/s at most (Poisson)" if self.rate else ""
        return (
            f"{ramp.first} to {ramp.last} connections in {clock(ramp.rise)}{arriving}; {tokens_in} tokens in, "
            f"{tokens_out} out (1/{self.scale:g} of the reference's 1,024 and 256)"
        )


def tasks(plan: Plan, url: str, service: Service) -> list[Task]:
    """The plan in parts, one per process. Parts of a Poisson process are Poisson processes."""
    ramp = plan.ramp
    count = max(1, -(-ramp.last // PER_PROCESS))
    tokens_in, tokens_out = scaled(plan.scale)
    return [
        Task(
            url=url,
            triton=service.triton,
            model=service.name,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            ramp=replace(ramp, first=part(ramp.first, index, count), last=part(ramp.last, index, count)),
            rate=plan.rate * part(ramp.last, index, count) / ramp.last,
            seed=plan.seed * 1000 + index,
        )
        for index in range(count)
    ]


def run(platform: Platform, wanted: str | None, plan: Plan, console: Console, watch: bool) -> int:
    """Runs a load, prints its summary, and with `watch` waits until the replicas have fallen again.

    Ctrl-C ends the load, and a second one the streams that still run; the platform's end ends it as well. Returns 0 if
    requests were answered, no stream was lost and the platform outlived the load, else 1. Raises `PlatformError`.
    """
    telemetry = connect(platform)
    service = telemetry.service(wanted)
    if not service.ready:
        raise PlatformError(f"{service.id}: no replica is ready yet; `./dev status` shows its pods")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # ends the load, and not this command before its summary
    host, port = address(Api(platform.kubeconfig), service.namespace, service.name, "http")
    with (
        Clients(tasks(plan, f"http://{host}:{port}", service)) as clients,
        Watcher(platform, telemetry, service) as watcher,
    ):
        following = Following(clients, watcher, console, f"{service.id}: {plan}", plan.ramp.duration)
        try:
            following.run()
        except KeyboardInterrupt:
            console.print(f"interrupted: running streams have {GRACE:g} s; Ctrl-C again cuts them")
            watch = False
            clients.end()
            with suppress(KeyboardInterrupt):
                following.run()
        totals = following.totals
        console.print(report.summary(following.elapsed, totals))
        if watcher.down:
            console.print(DOWN)
            return 1
        if watch and (scaling := service.scaling) and watcher.replicas > scaling.least:
            with suppress(KeyboardInterrupt):
                _watch_fall(watcher, scaling, console)
    return 0 if totals.counts["finished"] and not totals.counts["lost"] else 1


class Clients:
    """The client processes. They end with this context, whatever happens."""

    def __init__(self, tasks: list[Task]) -> None:
        self._tasks = tasks
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self.reports: SimpleQueue[tuple[int, Report]] = SimpleQueue()

    def __enter__(self) -> "Clients":
        for index, task in enumerate(self._tasks):
            process = subprocess.Popen(
                [sys.executable, "-m", "embedded.load.client"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then closes their stdin
            )
            self._processes.append(process)
            assert process.stdin
            process.stdin.write(json.dumps(asdict(task)) + "\n")
            process.stdin.flush()
            self._readers.append(threading.Thread(target=self._read, args=(index, process), daemon=True))
            self._readers[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def end(self) -> None:
        """No further requests."""
        for process in self._processes:
            if process.stdin and not process.stdin.closed:
                process.stdin.close()

    @property
    def running(self) -> bool:
        return any(reader.is_alive() for reader in self._readers)

    def _read(self, index: int, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self.reports.put((index, Report(**json.loads(line))))


class Watcher:
    """Looks at the platform from a thread of its own, so that its answers never delay the lines."""

    def __init__(self, platform: Platform, telemetry: Telemetry, service: Service) -> None:
        self._home = platform.home
        self._telemetry, self._service, self._queries = telemetry, service, queries(service)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.seen = Seen(service)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    @property
    def down(self) -> bool:
        """Whether somebody has ended the platform meanwhile."""
        return not recorded(self._home)

    @property
    def replicas(self) -> int:
        """The more of ready and desired, as last seen."""
        return max(self.seen.service.ready, self.seen.service.desired) if self.seen.service else 0

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                service = self._telemetry.service(self._service.id)
                values = {name: self._telemetry.value(self._queries[name]) for name in ("running", "waiting", "kv")}
                self.seen = Seen(service, **values)
            except Exception:  # a part of the platform restarts, or is busy: the next look may do
                self.seen = Seen()


class Following:
    """Shows a load until its processes have ended."""

    def __init__(self, clients: Clients, watcher: Watcher, console: Console, title: str, duration: float) -> None:
        self._clients, self._watcher, self._console = clients, watcher, console
        self._title, self._duration = title, duration
        self._began = time.monotonic()
        self._said = -LINE_SECONDS
        self.totals = Totals()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def run(self) -> None:
        if not self._console.is_terminal:
            self._console.print(self._title, soft_wrap=True)
            self._collect(self._say)
            return
        with Live(console=self._console, auto_refresh=False) as screen:
            self._collect(lambda: screen.update(self._lines(), refresh=True))

    def _collect(self, show: Callable[[], None]) -> None:
        while self._clients.running or not self._clients.reports.empty():
            if self._watcher.down:
                self._clients.end()
            with suppress(Empty):
                self.totals.add(*self._clients.reports.get(timeout=0.5), self.elapsed)
            if service := self._watcher.seen.service:
                self.totals.most_ready = max(self.totals.most_ready, service.ready)
            show()

    def _lines(self) -> Table:
        return report.live(self._title, self.elapsed, self._duration, self.totals, self._watcher.seen)

    def _say(self) -> None:
        if self.elapsed - self._said >= LINE_SECONDS:
            self._said = self.elapsed
            line = report.line(self.elapsed, self._duration, self.totals, self._watcher.seen)
            self._console.print(line, soft_wrap=True)


def _watch_fall(watcher: Watcher, scaling: Scaling, console: Console) -> None:
    """Waits until the replicas are at their minimum, at most as long as the policy can take."""
    begin = time.monotonic()
    limit = scaling.window + FALL_SECONDS * (watcher.replicas - scaling.least)
    console.print(
        f"the load is over; replicas fall when demand has been low for {scaling.window:g} s (Ctrl-C stops watching)"
    )
    last = ""
    while (waited := time.monotonic() - begin) < limit:
        if (text := report.replicas(watcher.seen.service)) != last:
            console.print(f"{clock(waited)}  {text}")
            last = text
        if watcher.down:
            console.print(DOWN)
            return
        if watcher.seen.service and watcher.replicas <= scaling.least:
            return
        time.sleep(0.5)
    console.print(f"replicas have not fallen within {clock(limit)}; `./dev status --web` shows what holds them")
