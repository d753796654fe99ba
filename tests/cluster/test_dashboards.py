"""Dashboards on the embedded platform under load: every query finds data, or docs/observability.md says why not."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eks_llm.observe.dashboards.grafana import dashboard
from eks_llm.operators.monitoring import DASHBOARDS
from eks_llm.plan.recorder import record
from eks_llm.serving.service import Runtime
from embedded.api import Api
from embedded.kube_state_metrics import KubeStateMetrics
from embedded.process import PlatformError
from embedded.prometheus import Prometheus
from tests.cluster.service import NAME, NAMESPACE, SLO, complete, inference_service, service
from tests.cluster.test_prometheus import series
from tests.queries import Query, boards, filled, of_board

pytestmark = [pytest.mark.cluster, pytest.mark.parametrize("deployed", [Runtime.TRITON], indirect=True)]

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"
CLIENTS = 12
"""More than the engine runs at once, so that requests wait."""


@pytest.fixture(scope="module")
def queries(
    deployed: Runtime, api: Api, prometheus: Prometheus, kube_state_metrics: KubeStateMetrics
) -> Iterator[list[Query]]:
    """The queries of all dashboards, while a service that they show is under load; one replica is enough for that."""
    recording = record(lambda: inference_service(deployed, prometheus.url, slo=SLO))
    objects = {item["kind"]: item for item in service(deployed, prometheus.url)}
    rule = objects["PrometheusRule"]
    api.apply(rule | {"spec": {"groups": [group | {"interval": "5s"} for group in rule["spec"]["groups"]]}})
    identity = {key: objects["ScaledObject"][key] for key in ("apiVersion", "kind")}
    api.patch({**identity, "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": {"maxReplicaCount": 1}})
    over = threading.Event()

    def client() -> None:
        while not over.is_set():
            try:
                complete(api, deployed)
            except OSError:
                over.wait(0.5)

    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in clients:
        thread.start()
    shown = [*(dashboard(board) for board in DASHBOARDS.values()), *boards(recording)]
    yield [query for board in shown for query in of_board(board)]
    over.set()
    for thread in clients:
        thread.join()


def listed(mark: str) -> list[str]:
    """The first column of a table of the page, between two comments; its heading and its rule left out."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- begin: {mark} -->")
    rows = [line for line in rest.partition(f"<!-- end: {mark} -->")[0].splitlines() if line.startswith("|")]
    return [row.split("|")[1].strip(" `") for row in rows[2:]]


def explained(query: Query) -> bool:
    """Whether the page says why this query may find nothing here."""
    return any(start.rstrip("*") in query.expr for start in listed("not here")) or any(
        f"panel {title!r}" in query.where for title in listed("empty is good")
    )


def test_every_query_finds_data_or_is_listed(queries: list[Query], api: Api, prometheus: Prometheus) -> None:
    pending = [query for query in queries if not explained(query)]
    assert len(pending) > 60

    def found() -> bool:
        pending[:] = [query for query in pending if not series(prometheus, filled(query.expr))]
        return not pending

    try:
        api.wait("data for every query", found, timeout=400)
    except PlatformError:
        pytest.fail("\n".join(f"{query.where}: {query.expr}" for query in pending))


def test_what_the_page_calls_missing_is_missing(queries: list[Query], prometheus: Prometheus) -> None:
    for start in listed("not here"):
        assert not series(prometheus, f'{{__name__=~"{start.rstrip("*")}.*"}}'), f"{start} is here after all"
