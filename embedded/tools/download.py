"""Files from the network, held to a pinned SHA-256 before anyone else sees them.

The caller's proxies (HTTPS_PROXY, NO_PROXY) and certificates (SSL_CERT_FILE, SSL_CERT_DIR) apply, as urllib reads both.
"""

import hashlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, build_opener

TIMEOUT = 10.0
"""Seconds for a connection, and for the next piece of a file."""
LIMIT = 20 * 60.0
"""Seconds for one file."""
MAX_BYTES = 2 * 10**9
"""More than any of the files; a server that sends without end is cut off."""
ATTEMPTS = 3
"""Broken connections in a row that bring nothing new, until a file is given up."""
PIECE = 1 << 20


class DownloadError(Exception):
    """A file that cannot be had. The message says why."""


class RefusedError(DownloadError):
    """A file that is not the one that was pinned."""


class UnreachableError(DownloadError):
    """A host that no connection leads to."""


class _CutError(Exception):
    """The connection ended before the file did."""


@dataclass
class Transfer:
    """How far a download is, for whoever shows it."""

    done: int = 0
    """Bytes that are there."""
    total: int = 0
    """Bytes of the whole, as far as the server has said."""


@dataclass
class Network:
    """The connections of one run. A host that cannot be reached is tried once, and not once for each tool."""

    timeout: float = TIMEOUT
    _first: dict[str, threading.Lock] = field(default_factory=dict[str, threading.Lock])
    _hosts: dict[str, str] = field(default_factory=dict[str, str])
    """What is wrong with a host, by its name; empty for one that has answered."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def open(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[HTTPResponse]:
        """The answer to a GET. Raises `DownloadError`, or `HTTPError` where the host answers with an error."""
        request = Request(url)
        for name, value in (headers or {}).items():
            # A redirect leads to a store of files, which a registry's token is not for.
            add = request.add_unredirected_header if name == "Authorization" else request.add_header
            add(name, value)
        with self._connect(request) as response:
            yield response

    def _connect(self, request: Request) -> HTTPResponse:
        host = urlsplit(request.full_url).netloc
        with self._lock:
            first = self._first.setdefault(host, threading.Lock())
        if host in self._hosts:
            return self._ask(host, request)
        with first:  # the others wait for what the first connection brings
            return self._ask(host, request)

    def _ask(self, host: str, request: Request) -> HTTPResponse:
        if problem := self._hosts.get(host):
            raise UnreachableError(f"{host} cannot be reached ({problem})")
        try:
            # Not `urlopen`, which knows the proxies of its first call for ever.
            response: Any = build_opener().open(request, timeout=self.timeout)
        except HTTPError:
            self._hosts[host] = ""
            raise
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            problem = str(getattr(reason, "strerror", None) or reason)
            self._hosts.setdefault(host, problem)
            raise UnreachableError(f"{host} cannot be reached ({problem})") from None
        self._hosts[host] = ""
        return response


def fetch(
    network: Network,
    url: str,
    file: Path,
    checksum: str,
    *,
    transfer: Transfer | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Downloads a file that has this SHA-256, or goes on where an earlier download stopped.

    Raises `DownloadError`; nothing is left then but, after a broken connection, what had come so far.
    """
    part = file.with_name(f"{file.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    download = _Download(network, url, part, transfer or Transfer(), headers or {}, time.monotonic() + LIMIT)
    begun = part.exists()  # by an earlier run, and perhaps of a file that has changed since
    while True:
        download.complete()
        found = sha256(part)
        if found == checksum:
            part.replace(file)
            return
        part.unlink()
        download.transfer.done = 0
        if not begun:
            raise RefusedError(f"{url} has the SHA-256 {found}, and not {checksum} as pinned")
        begun = False


@dataclass
class _Download:
    """A file that comes in one or several connections."""

    network: Network
    url: str
    part: Path
    transfer: Transfer
    headers: Mapping[str, str]
    deadline: float

    def complete(self) -> None:
        """Fetches what is missing, over as many connections as it takes while they bring something."""
        failures = 0
        while True:
            before = _size(self.part)
            try:
                self._go_on()
                return
            except HTTPError as error:
                error.close()
                if error.code == 416 and before:  # the part is longer than the file: it belongs to another one
                    self.part.unlink()
                    continue
                raise DownloadError(f"{self.url} answers {error.code} {error.reason}") from None
            except _CutError:
                failures = 0 if _size(self.part) > before else failures + 1
            if failures == ATTEMPTS:
                raise DownloadError(f"{self.url}: the connection broke off {failures} times")

    def _go_on(self) -> None:
        """One connection's worth. Raises `_CutError` if it ended before the file did."""
        have = _size(self.part)
        wanted = {**self.headers, "Range": f"bytes={have}-"} if have else self.headers
        with self.network.open(self.url, wanted) as response:
            goes_on = response.status == 206 and _begins(response) == have
            have = have if goes_on else 0
            length = response.headers.get("Content-Length")
            whole = have + int(length) if length else None
            self.transfer.done, self.transfer.total = have, whole or 0
            with self.part.open("ab" if goes_on else "wb") as target:
                while piece := _piece(response):
                    target.write(piece)
                    self.transfer.done += len(piece)
                    if self.transfer.done > MAX_BYTES:
                        raise DownloadError(f"{self.url} is larger than {MAX_BYTES / 1e9:g} GB")
                    if time.monotonic() > self.deadline:
                        raise DownloadError(f"{self.url} took too long; another run goes on where this one stopped")
        if whole is not None and _size(self.part) != whole:
            raise _CutError


def _piece(response: HTTPResponse) -> bytes:
    try:
        return response.read1(PIECE)
    except (OSError, HTTPException):
        raise _CutError from None


def _begins(response: HTTPResponse) -> int:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else -1


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def sha256(file: Path) -> str:
    """Of a file, in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
