"""A host of releases on the loopback interface, and archives and images to put there."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Host:
    """Serves bytes by path, in ranges where they are asked for; as a proxy too, of any host."""

    port: int
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    answers: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict[str, tuple[int, dict[str, str]]])
    """Status and headers of a path that has no file."""
    cuts: list[int] = field(default_factory=list[int])
    """After how many bytes the next connections break off."""
    token: str = ""
    """What an Authorization header must say, below /v2/."""
    seen: list[tuple[str, Mapping[str, str]]] = field(default_factory=list[tuple[str, Mapping[str, str]]])
    """Request targets with their headers, in order."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def targets(self) -> list[str]:
        return [target for target, _ in self.seen]


@contextmanager
def serving() -> Iterator[Host]:
    """A host for as long as the body runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            host.seen.append((self.path, dict(self.headers)))
            path = urlsplit(self.path).path
            if host.token and path.startswith("/v2/") and self.headers.get("Authorization") != f"Bearer {host.token}":
                challenge = f'Bearer realm="{host.url}/token",service="test",scope="repository:x:pull"'
                self._head(401, {"WWW-Authenticate": challenge, "Content-Length": "0"})
            elif path in host.answers:
                status, headers = host.answers[path]
                self._head(status, {"Content-Length": "0", **headers})
            elif path not in host.files:
                self._head(404, {"Content-Length": "0"})
            else:
                self._file(host.files[path])

        def _file(self, content: bytes) -> None:
            wanted = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-")
            begin = int(wanted)
            if begin > len(content):
                self._head(416, {"Content-Length": "0"})
                return
            headers = {"Content-Length": str(len(content) - begin)}
            if begin:
                headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            self._head(206 if begin else 200, headers)
            if host.cuts:
                content = content[: begin + host.cuts.pop(0)]
                self.close_connection = True
            self.wfile.write(content[begin:])

        def _head(self, status: int, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *args: Any, **_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host = Host(server.server_address[1])
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def archive(*entries: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """A .tar.gz of files by name, and of entries that are no files."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            tar.addfile(info, io.BytesIO(entry[1]))
    return gzip.compress(raw.getvalue(), mtime=0)


def image(host: Host, repository: str, layers: Mapping[str, list[bytes]]) -> str:
    """Puts an image with layers by architecture on a host, and returns the digest of its index in hexadecimal."""

    def put(kind: str, content: bytes) -> dict[str, Any]:
        host.files[f"/v2/{repository}/{kind}/sha256:{sha256(content)}"] = content
        return {"digest": f"sha256:{sha256(content)}", "size": len(content)}

    manifests: list[dict[str, Any]] = []
    for arch, blobs in layers.items():
        of_image = [
            {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **put("blobs", blob)} for blob in blobs
        ]
        manifest = json.dumps({"schemaVersion": 2, "layers": of_image}).encode()
        manifests.append({**put("manifests", manifest), "platform": {"os": "linux", "architecture": arch}})
    index = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    put("manifests", index)
    return sha256(index)
