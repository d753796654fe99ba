"""Dashboards: what Grafana's schema leaves open, and what makes them of use to whoever reads them."""

import dataclasses
import json
import re
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from eks_llm.observe.alerts import of_platform, of_service
from eks_llm.observe.dashboards import panels, sidecar
from eks_llm.observe.dashboards.grafana import dashboard
from eks_llm.observe.dashboards.service import service, uid
from eks_llm.observe.watched import EXAMPLE
from eks_llm.operators.monitoring import DASHBOARDS, dashboards, monitoring_values
from eks_llm.plan.recorder import record
from eks_llm.serving.service import InferenceService
from tests.queries import anywhere, boards, filled, names_in, of_board, queries, recordings, rules
from tests.unit.serving import on_cluster, service_args

LLAMA = dataclasses.replace(EXAMPLE, name="llama", ttft_p99=0.82, tpot_p99=0.042, in_flight=48, kv_cache_target=0.85)
RECORDS = {
    **DASHBOARDS,
    "service": service(LLAMA),
    "service without targets": service(dataclasses.replace(LLAMA, ttft_p99=None, tpot_p99=None)),
}
BOARDS: dict[str, dict[str, Any]] = {name: dashboard(record) for name, record in RECORDS.items()}
every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())


def shown(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something; rows are headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


# Grafana's schema ---------------------------------------------------------------------------------------------------


@every_board
def test_grafanas_own_types_read_it_back_unchanged(board: dict[str, Any]) -> None:
    assert json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder)) == board


@every_board
def test_every_panel_has_a_number_and_a_place_of_its_own(board: dict[str, Any]) -> None:
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert 0 not in numbers
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} covers another panel"
        assert at["x"] + at["w"] <= panels.WIDTH
        taken |= cells


@every_board
def test_every_series_has_a_letter_and_a_data_source(board: dict[str, Any]) -> None:
    for panel in shown(board):
        letters = [target["refId"] for target in panel["targets"]]
        assert letters, panel["title"]
        assert len(set(letters)) == len(letters)
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert target["legendFormat"]
    assert [variable["name"] for variable in board["templating"]["list"]][:2] == ["datasource", "runbooks"]


def test_uids_are_grafanas_length_and_do_not_change() -> None:
    """Grafana: at most 40 characters. Links and bookmarks keep working only while they stay."""
    uids = [board["uid"] for name, board in BOARDS.items() if name != "service without targets"]
    assert len(set(uids)) == len(uids)
    assert all(re.fullmatch(r"[a-z0-9-]{1,40}", text) for text in uids)
    assert {BOARDS[name]["uid"] for name in DASHBOARDS} == {
        "llm-overview", "llm-autoscaling", "llm-gpus", "llm-nodes", "llm-cold-start",
    }  # fmt: skip
    # printf inference/llama | sha256sum
    assert uid("inference", "llama") == "llm-4b44d275832b416f"


def test_a_dashboard_is_read_only_because_the_next_up_would_undo_an_edit() -> None:
    assert not any(board["editable"] for board in BOARDS.values())


# For whoever reads them ---------------------------------------------------------------------------------------------


@every_board
def test_every_panel_says_what_to_look_for_and_has_a_unit(board: dict[str, Any]) -> None:
    titles = [panel["title"] for panel in shown(board)]
    for panel in shown(board):
        assert panel["description"], panel["title"]
        if panel["type"] != "table":
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    assert len(set(titles)) >= len(titles) - 2  # a figure may repeat as a graph below


def panel(board: dict[str, Any], title: str, kind: str = "timeseries") -> dict[str, Any]:
    (found,) = [item for item in board["panels"] if item["title"] == title and item["type"] == kind]
    return found


def red_line(item: dict[str, Any]) -> Any:
    return item["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]


def test_thresholds_are_the_services_own() -> None:
    board = BOARDS["service"]
    assert red_line(panel(board, "Time to first token")) == 0.82
    assert red_line(panel(board, "Time per output token, by request")) == 0.042
    assert red_line(panel(board, "Requests per replica")) == 48
    assert red_line(panel(board, "KV cache in use, by pod")) == 0.85
    assert red_line(panel(board, "Requests that miss a target")) == 0.01  # of a 99th percentile


def test_a_service_without_targets_shows_no_line_for_them() -> None:
    board = BOARDS["service without targets"]
    assert "thresholds" not in panel(board, "Time to first token")["fieldConfig"]["defaults"]
    assert "Requests that miss a target" not in [item["title"] for item in board["panels"]]


def test_a_services_dashboard_gets_its_settings() -> None:
    args = service_args(
        slo={"ttft_p99": "820ms"}, scaling={"min": 1, "max": 2, "in_flight_per_replica": 7, "kv_cache_target": 0.6}
    )
    config = record(lambda: InferenceService("llama", args, on_cluster())).one("ConfigMap", "llama-dashboard").inputs
    (board,) = (json.loads(text) for text in config["data"].values())
    assert board["uid"] == uid("inference", "llama")
    assert red_line(panel(board, "Time to first token")) == 0.82
    assert red_line(panel(board, "Requests per replica")) == 7
    assert red_line(panel(board, "KV cache in use, by pod")) == 0.6
    assert config["metadata"]["labels"].items() >= sidecar.LABELS.items()


def test_every_query_of_a_service_is_of_this_service_alone() -> None:
    other = json.dumps(dashboard(service(dataclasses.replace(LLAMA, name="qwen"))))
    for query in of_board(BOARDS["service"]):
        assert "llama" in query.expr, query.where
    assert "llama" not in other


def test_panels_link_to_runbooks_of_alerts_that_exist() -> None:
    found = recordings()
    alerts = {rule["alert"] for recording in found.values() for rule in rules(recording) if "alert" in rule}
    linked = set(re.findall(r"\$\{runbooks\}/(\w+)\.md", json.dumps(BOARDS)))
    assert linked
    assert linked <= alerts


OWN_LIMITS = {"KV cache in use, by pod"}
"""Panels whose red line is a setting of scaling, and not the threshold of the alert that they explain."""


def test_a_red_line_is_where_the_alert_is() -> None:
    """The panel draws the very object that the alert compares with."""
    alerts = {alert.name: alert.threshold for alert in [*of_service(LLAMA), *of_platform({})] if alert.threshold}
    compared: set[str] = set()
    for board in RECORDS.values():
        for item in (item for row in board.rows.values() for item in row):
            drawn = {panels.Graph: "limit", panels.Figure: "worse"}.get(type(item))
            limit = getattr(item, drawn) if drawn else None
            limits = limit if isinstance(limit, tuple) else (limit,)
            explained = {name: alerts[name] for name in getattr(item, "alerts", ()) if name in alerts}
            if limit is None or not explained or item.title in OWN_LIMITS:
                continue
            assert any(threshold in limits or threshold.value in limits for threshold in explained.values()), item
            compared |= explained.keys()
    assert compared >= {"LLMRequestsWaiting", "LLMSLOBurnFast", "LLMKVCacheNearlyFull", "LLMFirstTokenSlow"}


def test_runbooks_are_where_the_setting_says() -> None:
    board = json.loads(dashboards("https://wiki.example.com/runbooks/")["gpus"]["data"]["llm-gpus.json"])
    (runbooks,) = [item for item in board["templating"]["list"] if item["name"] == "runbooks"]
    assert runbooks["query"] == "https://wiki.example.com/runbooks"


# Where they are -----------------------------------------------------------------------------------------------------


def test_grafanas_sidecar_finds_the_dashboards() -> None:
    """The chart's sidecar looks for the label, and puts files into the folder that the annotation names."""
    values: Any = monitoring_values(_settings())["grafana"]["sidecar"]["dashboards"]
    for config_map in dashboards("https://wiki.example.com").values():
        assert config_map["metadata"]["labels"] == {"grafana_dashboard": "1"}
        assert values["folderAnnotation"] in config_map["metadata"]["annotations"]
        (key,) = config_map["data"]
        assert key.endswith(".json")
        assert len(config_map["data"][key]) < 1 << 20  # what a ConfigMap may hold


def _settings() -> Any:
    from eks_llm.operators.monitoring import MonitoringSettings

    return MonitoringSettings()


# No query escapes ---------------------------------------------------------------------------------------------------


def test_every_query_of_every_stack_is_collected() -> None:
    """tests/queries.py knows three places of queries. Whatever else stands under such a key would go unchecked."""
    for name, recording in recordings().items():
        collected = {query.expr for query in queries(recording)}
        assert len(collected) > 20, name
        assert list(boards(recording)), name
        for item in recording.resources:
            for text in anywhere(item.inputs):
                inner = re.fullmatch(r"label_values\((.+), \w+\)", text)
                assert (inner[1] if inner else text) in collected, f"{name}: {item.name}: {text}"


def test_the_check_above_finds_what_it_looks_for() -> None:
    hidden = {"data": {"a.json": json.dumps({"panels": [{"deep": [{"expr": "up"}]}]})}, "spec": {"query": "down"}}
    assert sorted(anywhere(hidden)) == ["down", "up"]


def test_helpers() -> None:
    assert filled('a{namespace=~"$namespace",b="$service"}', "x", "y") == 'a{namespace=~"x",b="y"}'
    assert names_in(["sum(vllm:a_total)", "b"], ["vllm:a_total", "vllm:a", "b"]) == {"vllm:a_total", "b"}
