"""The process that owns the engine: starts it, watches it, serves its metrics, and ends the pod when it is lost.

    python engine_process.py <pid of tritonserver> <version of the model>

Started by the first front end. Front ends connect to its Unix socket and speak lines of JSON:
    front end: {"hello": index, "version": …}  engine process: {"ready": addresses, "group": …} or {"failed": reason}
    front end: {"serving": true}, {"bye": true} engine process: {"dead": reason}
A connection that ends without a bye means that the front end died. When all have said bye, the engine is stopped.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from engine_config import ConfigError, EngineConfig, load
from pod_state import PodState, RunDirectory, other_version, pod_gauges
from takedown import alive, take_down

logger = logging.getLogger("eks_llm.engine_process")
WATCH_SECONDS = 0.25


class EngineProcess:
    """One per pod."""

    def __init__(self, config: EngineConfig, server_pid: int, version: str, directory: RunDirectory) -> None:
        self.config, self.server_pid, self.version, self.directory = config, server_pid, version, directory
        self.addresses: list[dict[str, str]] = []
        self.failure: str | None = None
        self.started, self.stopping = threading.Event(), threading.Event()
        self.serving: set[int] = set()
        self.left: set[int] = set()
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self.state = PodState(directory, config.frontends)

    def run(self) -> int:
        """Until the last front end leaves (0) or something dies (1)."""
        self._listen()
        _serve_http(self)
        try:
            manager = self._start_engine()
        except Exception as error:
            self.fail(f"the engine did not start: {error}")
            self.started.set()
            time.sleep(2)  # the front ends raise this reason, and Triton ends by itself
            return 1
        self.started.set()
        while not self.stopping.wait(WATCH_SECONDS):
            if reason := self._trouble(manager):
                self.fail(reason)
        if self.failure:
            for process in manager.processes:
                process.kill()  # a hung engine does not answer SIGTERM
            take_down(self.server_pid)
            return 1
        manager.shutdown(timeout=15)
        return 0

    def fail(self, reason: str) -> None:
        """Tells every front end, and ends the watch."""
        with self._lock:
            if self.failure or self.stopping.is_set():
                return
            self.failure = reason
            connections = list(self._connections.values())
        logger.error("%s", reason)
        for connection in connections:
            with contextlib.suppress(OSError):
                _write(connection, {"dead": reason})
        self.stopping.set()

    def _start_engine(self) -> Any:
        import vllm_internals

        vllm_internals.probe()
        vllm_internals.check_devices(self.config)
        settings = vllm_internals.vllm_config(self.config, rank=-1)
        with vllm_internals.launch_engine(settings, self.config.frontends) as (manager, addresses):
            self.addresses = addresses
        return manager

    def _trouble(self, manager: Any) -> str | None:
        finished = manager.finished_procs()
        if finished:
            return f"the engine died: {', '.join(f'{name} ended with {code}' for name, code in finished.items())}"
        if not alive(self.server_pid):
            return "tritonserver is gone"
        totals, now = self.state.totals(), time.monotonic()
        if totals.step_age > self.config.stall_seconds:
            return (
                f"the engine hangs: no step for {totals.step_age:.0f} s (limit {self.config.stall_seconds:g} s) "
                f"while {totals.in_flight} requests wait"
            )
        if now - totals.oldest_heartbeat > self.config.stall_seconds:
            return f"a front end hangs: its event loop has not run for {now - totals.oldest_heartbeat:.0f} s"
        return None

    # Front ends ------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.directory.control_socket))
        listener.listen()

        def accept() -> None:
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        lines = connection.makefile("r", encoding="utf-8")
        index: int | None = None
        try:
            for line in lines:
                message = json.loads(line)
                if "hello" in message:
                    if message["version"] != self.version:
                        _write(connection, {"failed": other_version(self.version, message["version"])})
                        return
                    index = int(message["hello"])
                    with self._lock:
                        self._connections[index] = connection
                    self.started.wait()
                    ready = {"ready": self.addresses[index], "group": os.getpgid(0)} if self.addresses else {}
                    answer = {"failed": self.failure} if self.failure else ready
                    _write(connection, answer)
                elif "serving" in message and index is not None:
                    self.serving.add(index)
                elif "bye" in message and index is not None:
                    self.left.add(index)
        except (OSError, ValueError):
            pass
        if index is None:
            return
        with self._lock:
            self._connections.pop(index, None)
        if index not in self.left:
            self.fail(f"front end {index} died")
        elif len(self.left) == self.config.frontends:
            self.stopping.set()


def _write(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


class PodCollector:
    """The metrics of all front ends together.

    prometheus_client adds counters and histograms up. For a gauge it takes the value that was written last, but front
    ends handle the engine's steps at their own pace, so the last one written may be of an earlier step (seen: one
    request "running" on an idle pod until the next one). The gauges of the engine's state come from the latest step.
    """

    def __init__(self, process: EngineProcess) -> None:
        from prometheus_client.metrics_core import GaugeMetricFamily
        from prometheus_client.multiprocess import MultiProcessCollector

        self._gauge = GaugeMetricFamily
        self._model = process.config.served_model_name
        self._state = process.state
        self._files = MultiProcessCollector(None, str(process.directory.metrics))

    def collect(self) -> Iterator[Any]:
        totals = self._state.totals()
        reasons = {"capacity": totals.waiting, "deferred": totals.deferred}
        values: dict[str, Callable[[dict[str, str]], float]] = {
            "vllm:num_requests_running": lambda _: totals.running,
            "vllm:num_requests_waiting": lambda _: totals.waiting + totals.deferred,
            "vllm:num_requests_waiting_by_reason": lambda labels: reasons[labels["reason"]],
            "vllm:kv_cache_usage_perc": lambda _: totals.kv_usage,
        }
        for family in self._files.collect():
            if value := values.get(family.name):
                family.samples = [sample._replace(value=value(sample.labels)) for sample in family.samples]
            yield family
        for name, (text, value) in pod_gauges(totals).items():
            family = self._gauge(name, text, labels=["model_name"])
            family.add_metric([self._model], value)
            yield family


def _serve_http(process: EngineProcess) -> None:
    """/metrics of all front ends together; /health/live and /health/ready for probes."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(PodCollector(process))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, kind = 200, b"", "text/plain"
            if self.path == "/metrics":
                body, kind = generate_latest(registry), CONTENT_TYPE_LATEST
            elif self.path == "/health/live":
                status = 503 if process.failure else 200
            elif self.path == "/health/ready":
                serving = len(process.serving) == process.config.frontends and not process.stopping.is_set()
                moving = process.state.totals().step_age <= process.config.stale_seconds
                status = 200 if serving and moving and not process.directory.drain_marker.exists() else 503
            else:
                status = 404
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("", process.config.metrics_port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the front ends say when to stop; a signal to the group must not
    directory = RunDirectory.of_environment()
    try:
        process = EngineProcess(load(), int(sys.argv[1]), sys.argv[2], directory)
    except (ConfigError, OSError) as error:
        logger.error("%s", error)
        return 1
    code = process.run()
    logger.info("engine process ends with %d", code)
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
