"""Pictures of dashboards: numbers as Grafana writes them, panels in their places, and what found no data."""

from typing import Any

import pytest

from docs.build_dashboards import graph as draw
from docs.build_dashboards import page, piled, step_of, written
from eks_llm.observe.dashboards.grafana import dashboard
from eks_llm.observe.dashboards.panels import Board, Figure, Graph, Table


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00042, "s", "420 µs"),
        (0.82, "s", "820 ms"),
        (95.0, "s", "1.58 min"),
        (0.9958, "percentunit", "99.58%"),
        (73.0, "percent", "73%"),
        (1536.0, "bytes", "1.5 KiB"),
        (2.5e9, "Bps", "2.5 GB/s"),
        (12345.0, "short", "12.3 K"),
        (2.744, "currencyUSD", "$2.74"),
        (71.0, "celsius", "71 °C"),
        (float("nan"), "s", "–"),
    ],
)
def test_units(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


@pytest.mark.parametrize(
    ("size", "unit", "step"),
    [(0.25, "percentunit", 0.25), (13.0, "short", 20), (95.0, "s", 120), (0.0021, "s", 0.0025)],
)
def test_axes_have_round_numbers(size: float, unit: str, step: float) -> None:
    assert step_of(size, unit) == pytest.approx(step)


def test_stacked_lines_stand_on_each_other() -> None:
    assert piled([("a", [(0, 1), (1, 2)]), ("b", [(1, 3)])]) == [("a", [(0, 1), (1, 2)]), ("b", [(1, 5)])]


def test_a_line_at_zero_is_drawn() -> None:
    made = dashboard(Board("uid", "T", "D", {"G": [Graph("Zero", "short", {"line": "up"}, look="Look.")]}))
    assert "polyline" in draw(made["panels"][1], [("line", [(0, 0.0), (9, 0.0)])], 0, 9, (400, 200))


class Answers:
    """In place of Prometheus: one series for each query but `nothing`."""

    def range(self, expr: str, legend: str, begin: float, end: float) -> list[Any]:
        return [] if expr == "nothing" else [(legend, [(begin, 1.0), (end, 4.0)])]

    def now(self, expr: str, at: float) -> list[Any]:
        return [] if expr == "nothing" else [({"service": "llama"}, 0.25)]


def test_a_page_shows_every_panel_and_names_the_queries_without_data() -> None:
    made = Board(
        "uid",
        "Title",
        "About it.",
        {
            "Group": [
                Figure("Large", "short", "up", look="Look.", width=8),
                Graph("Lines", "s", {"line": "up", "none": "nothing"}, look="Look.", limit=3),
                Graph("Empty", "s", {"none": "nothing"}, look="Look."),
                Table("Rows", {"Share": ("percentunit", "up")}, by=("service",), look="Look."),
            ]
        },
    )
    answers: Any = Answers()
    text, height, empty = page(dashboard(made), answers, 0, 600)
    for part in ("Title", "About it.", "Group", "Large", "Lines", "Rows", ">4<", "llama", "25%", 'class="limit"'):
        assert part in text, part
    assert text.count("No data") == 1
    assert empty == ["Lines: nothing", "Empty: nothing"]
    assert height > 500
