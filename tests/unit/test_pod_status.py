"""What the pod runner says of a pod, while the API server is away and after that."""

from typing import Any

import pytest
from urllib3.exceptions import MaxRetryError

from embedded.pod_status import Reports, container_status

CONTAINER = {"name": "server", "image": "any"}
POD = {
    "metadata": {"name": "chat-0", "namespace": "chat", "uid": "1"},
    "spec": {"containers": [CONTAINER], "nodeName": "local-0"},
    "status": {"phase": "Pending"},
}
RUNS = {"running": {"startedAt": "2026-11-30T00:00:00Z"}}


class ApiServer:
    """Keeps the pod's status, unless it is away."""

    def __init__(self) -> None:
        self.away = False
        self.pod: dict[str, Any] = POD
        self.writes = 0

    def patch(self, manifest: dict[str, Any], subresource: str) -> None:
        self._asked()
        assert subresource == "status"
        self.pod = {**self.pod, "status": manifest["status"]}
        self.writes += 1

    def create(self, event: dict[str, Any]) -> None:
        self._asked()

    def _asked(self) -> None:
        if self.away:
            raise MaxRetryError(None, "/api/v1", None)  # pyright: ignore[reportArgumentType] neither matters

    def is_ready(self) -> bool:
        return any((item["type"], item["status"]) == ("Ready", "True") for item in self.pod["status"]["conditions"])


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def reports(server: ApiServer) -> Reports:
    return Reports(server, POD, "10.120.0.2")  # pyright: ignore[reportArgumentType] what it needs of one


def test_a_status_arrives_once_the_api_server_is_back(server: ApiServer, reports: Reports, capsys: Any) -> None:
    reports.status(container_status(CONTAINER, started=True, state=RUNS))
    server.away = True
    reports.status(container_status(CONTAINER, started=True, ready=True, state=RUNS))
    reports.event("Started", "a hint only")
    for _ in range(3):
        reports.hold(server.pod)
    assert not server.is_ready()
    server.away = False
    reports.hold(server.pod)
    assert server.is_ready()
    assert capsys.readouterr().out.count("chat/chat-0: its status is to be written") == 1


def test_a_status_that_somebody_else_wrote_does_not_stay(server: ApiServer, reports: Reports) -> None:
    reports.status(container_status(CONTAINER, started=True, ready=True, state=RUNS))
    lost = [{**item, "status": "False"} for item in server.pod["status"]["conditions"]]
    reports.hold({**server.pod, "status": {**server.pod["status"], "conditions": lost}})
    assert server.is_ready()
    assert server.writes == 2


def test_nothing_is_written_without_need(server: ApiServer, reports: Reports) -> None:
    reports.hold(server.pod)  # nothing was said yet
    assert server.writes == 0
    reports.status(container_status(CONTAINER, started=True, ready=True, state=RUNS))
    reports.hold(server.pod)
    assert server.writes == 1
