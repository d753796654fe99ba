"""A stand-in for Prometheus's query API that answers what a test says."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse


@dataclass
class Metrics:
    """Values by a part of the query; the first that fits is the answer. None: an empty result, as of a lost scrape."""

    url: str = ""
    values: dict[str, float | None] = field(default_factory=dict[str, float | None])
    times: list[float] = field(default_factory=list[float])
    """When each query came, seconds since the epoch."""

    def answer(self, query: str) -> list[dict[str, Any]]:
        self.times.append(time.time())
        value = next((value for part, value in self.values.items() if part in query), None)
        return [] if value is None else [{"metric": {}, "value": [time.time(), str(value)]}]


@contextmanager
def metrics_server() -> Iterator[Metrics]:
    metrics = Metrics()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlparse(self.path)
            result: dict[str, Any] = {"resultType": "matrix", "result": []}  # it remembers nothing
            if not url.path.endswith("/query_range"):
                result = {"resultType": "vector", "result": metrics.answer(parse_qs(url.query)["query"][0])}
            body = json.dumps({"status": "success", "data": result}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    metrics.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield metrics
    server.shutdown()
    server.server_close()
