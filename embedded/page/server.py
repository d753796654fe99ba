"""The page's server: its files, and what they draw as JSON. Loopback only, GET only, nothing from elsewhere."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..platform import Platform
from ..process import PlatformError
from ..telemetry import Telemetry, connect
from .snapshot import snapshot

HOST = "127.0.0.1"
DEFAULT_PORT = 17400
"""Just below the platform's own block."""
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/chart.js": ("chart.js", "text/javascript"),
}
SAMPLE_SECONDS = 2.0
MINUTES = (5, 15, 60)
"""Spans that the page offers."""
HEADERS = {
    # The page's own files and answers, nothing else; `data:` is its empty icon.
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; script-src 'self'; "
    "style-src 'self'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}

Answer = Callable[[str | None, int], dict[str, Any]]
"""The document for a service (None: the first) and a span in minutes."""


class Live:
    """Answers about a platform, which may start and stop meanwhile. Samples the replicas from a thread of its own."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._samples: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
        self._telemetry: Telemetry | None = None
        self._plane: int | None = None
        self._lock = threading.Lock()

    def sample(self) -> None:
        """For ever."""
        while True:
            try:
                now = time.time()
                for service in self._connect().services():
                    samples = self._samples[service.id]
                    samples.append((now, service.desired, service.ready))
                    while samples[0][0] < now - 60 * max(MINUTES):
                        samples.pop(0)
            except Exception:  # the page itself says what is wrong
                pass
            time.sleep(SAMPLE_SECONDS)

    def answer(self, wanted: str | None, minutes: int) -> dict[str, Any]:
        now = time.time()
        try:
            document = snapshot(self._connect(), self._samples, wanted, minutes, now)
        except PlatformError as error:
            return {"now": now, "down": str(error)}
        except Exception as error:  # any of the client's: what it could not do matters, not how it says so
            return {"now": now, "down": f"the API server does not answer ({type(error).__name__})"}
        idle = [name for name, pid in self._platform.status().items() if pid is None]
        if idle:
            document["problems"].append(f"not running: {', '.join(idle)}")
        return document

    def _connect(self) -> Telemetry:
        """The platform's sources, found anew when its API server is another one. Raises `PlatformError`."""
        plane = self._platform.status()["kube-apiserver"]
        with self._lock:
            if self._telemetry is None or plane is None or plane != self._plane:
                self._telemetry, self._plane = None, plane
                self._samples.clear()
                self._telemetry = connect(self._platform)
            return self._telemetry


class Server(ThreadingHTTPServer):
    """The page at a port of the loopback interface; 0: a free one."""

    daemon_threads = True

    def __init__(self, port: int, answer: Answer) -> None:
        self.answer = answer
        super().__init__((HOST, port), Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    """A browser's requests."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        # Any other name would be a page of somebody else whose name leads here (DNS rebinding).
        if (self.headers.get("Host") or "").rpartition(":")[0] not in (HOST, "localhost"):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"this page is for this machine only\n")
            return
        url = urlsplit(self.path)
        if url.path == "/data.json":
            query = parse_qs(url.query)
            minutes = query.get("minutes", [""])[0]
            if minutes not in map(str, MINUTES):
                self._send(HTTPStatus.BAD_REQUEST, "text/plain", f"minutes: one of {MINUTES}\n".encode())
                return
            document = self.server.answer(query.get("service", [None])[0], int(minutes))
            self._send(HTTPStatus.OK, "application/json", json.dumps(document).encode())
        elif url.path in FILES:
            name, kind = FILES[url.path]
            self._send(HTTPStatus.OK, f"{kind}; charset=utf-8", Path(__file__).with_name(name).read_bytes())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
        """Not on the terminal, where it would say nothing that the page does not show."""


def serve(platform: Platform, port: int, say: Callable[[str], None]) -> None:
    """Serves the page until it is interrupted. Raises `PlatformError` if the port is taken."""
    live = Live(platform)
    try:
        server = Server(port, live.answer)
    except OSError as error:
        raise PlatformError(f"port {port}: {error.strerror}; choose another with --port") from None
    threading.Thread(target=live.sample, daemon=True).start()
    say(f"{server.url} shows the platform; Ctrl-C ends it")
    with server:
        server.serve_forever()
