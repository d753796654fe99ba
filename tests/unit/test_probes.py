"""When a container counts as started and ready."""

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from embedded import probes
from embedded.probes import Probes

PERIOD = 60
NEVER: Any = None


def container(**more: Any) -> dict[str, Any]:
    check = {"httpGet": {"port": 1}, "periodSeconds": PERIOD, "failureThreshold": 2}
    return {"startupProbe": {**check, **more}, "readinessProbe": {**check, **more}}


def eventually(condition: Callable[[], bool]) -> None:
    """Within half a period, however busy the machine is."""
    end = time.monotonic() + PERIOD / 2
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@contextmanager
def watching(probed: dict[str, Any]) -> Iterator[Probes]:
    """Probes that have ended, threads and all, with the body."""
    before, watched = set(threading.enumerate()), Probes(probed, NEVER)
    watched.start()
    try:
        yield watched
    finally:
        watched.stop()
        eventually(lambda: set(threading.enumerate()) <= before)


def test_a_container_is_ready_soon_after_it_serves_and_looks_between_count_as_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def check(probe: object, reach: object, dry_run: bool = False) -> None:
        if not dry_run:
            asked.append(1)
            if len(asked) < 20:  # many more than the failureThreshold
                raise http.client.RemoteDisconnected("Remote end closed connection without response")

    monkeypatch.setattr(probes, "check", check)
    monkeypatch.setattr(probes, "EAGER_SECONDS", 0.001)
    with watching(container()) as watched:
        eventually(lambda: watched.ready)
        assert watched.started
        assert not watched.failed


def test_a_container_that_does_not_serve_for_as_long_as_it_may_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(probe: object, reach: object, dry_run: bool = False) -> None:
        if not dry_run:
            raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(probes, "check", check)
    with watching(container(periodSeconds=0.01)) as watched:
        eventually(lambda: bool(watched.failed))
    assert watched.failed.startswith("startupProbe: [Errno 111] Connection refused (")
    assert not watched.ready
