"""Grafana's JSON of a dashboard, built with the types of Grafana's Foundation SDK."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import common, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from ..rules import RUNBOOKS
from ..thresholds import Threshold
from .panels import Board, Figure, Graph, Limit, Panel, Table

TAG = "eks-llm"
"""Tag of every dashboard; the links at the top list what carries it."""
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
DEFAULT_DATASOURCE = "prometheus"
"""Uid that kube-prometheus-stack gives its Prometheus."""
GRAPH_HEIGHT, FIGURE_HEIGHT = 8, 4
GREEN, ORANGE, RED = "green", "orange", "red"

T = TypeVar("T")


def dashboard(board: Board, runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """A dashboard: rows of panels below each other, panels in lines of 24 columns.

    Every dashboard has a chooser of the data source, and links to the others. `runbooks`: the web address below which
    the runbooks of alerts are.
    """
    made = (
        builders.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .readonly()
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink("Dashboards")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .keep_time(True)
            .include_vars(True)
        )
        .annotation(
            builders.AnnotationQuery()
            .name("Annotations & Alerts")
            .datasource(models.DataSourceRef(type_val="grafana", uid="-- Grafana --"))
            .enable(True)
            .hide(True)
            .built_in(1)
            .type("dashboard")
            .icon_color("rgba(0, 211, 255, 1)")
        )
        .with_variable(
            builders.DatasourceVariable("datasource")
            .label("Data source")
            .type("prometheus")
            .current(models.VariableOption(text="Prometheus", value=DEFAULT_DATASOURCE))
        )
    )
    made = made.with_variable(builders.ConstantVariable("runbooks").value(runbooks.rstrip("/")))
    for chooser in _choosers(board.services_of) if board.services_of else ():
        made = made.with_variable(chooser)
    number = 0
    for heading, panels in board.rows.items():
        number += 1
        made = made.with_row(builders.Row(heading).id(number))
        for panel in panels:
            number += 1
            made = made.with_panel(_panel(panel).id(number))
    return json.loads(json.dumps(made.build(), cls=JSONEncoder))


def _panel(panel: Panel) -> timeseries.Panel | stat.Panel | table.Panel:
    match panel:
        case Graph():
            return _graph(panel)
        case Figure():
            return _figure(panel)
        case Table():
            return _table(panel)
        case _:
            raise TypeError(f"no panel that Grafana has: {panel!r}")


def _graph(of: Graph) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(of.title)
        .description(of.look)
        .links(_runbooks(of.alerts))
        .unit(of.unit)
        .min(0)
        .span(of.width)
        .height(GRAPH_HEIGHT)
        .datasource(DATASOURCE)
        .targets([_query(ref, expr, legend) for ref, legend, expr in _lettered(of.series)])
        .fill_opacity(30 if of.stacked else 8)
        .show_points(shapes.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    )
    if of.most is not None:
        panel = panel.max(of.most)
    if of.stacked:
        panel = panel.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A"))
    if of.limit is not None:
        panel = panel.thresholds(_steps((None, GREEN), (of.limit, RED))).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
        )
    return panel


def _figure(of: Figure) -> stat.Panel:
    if of.worse is None:
        steps = _steps((None, GREEN))
    elif _number(of.worse[0]) <= _number(of.worse[1]):
        steps = _steps((None, GREEN), (of.worse[0], ORANGE), (of.worse[1], RED))
    else:
        steps = _steps((None, RED), (of.worse[1], ORANGE), (of.worse[0], GREEN))
    panel = (
        stat.Panel()
        .title(of.title)
        .description(of.look)
        .links(_runbooks(of.alerts))
        .unit(of.unit)
        .span(of.width)
        .height(FIGURE_HEIGHT)
        .datasource(DATASOURCE)
        .targets([_query("A", of.query, of.title)])
        .thresholds(steps)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(shapes.BigValueColorMode.VALUE)
        .graph_mode(shapes.BigValueGraphMode.AREA)
    )
    return panel if of.decimals is None else panel.decimals(of.decimals)


def _table(of: Table) -> table.Panel:
    panel = (
        table.Panel()
        .title(of.title)
        .description(of.look)
        .links(_runbooks(of.alerts))
        .span(of.width)
        .height(GRAPH_HEIGHT)
        .datasource(DATASOURCE)
    )
    names: dict[str, str] = {}
    for ref, heading, (unit, expr) in _lettered(of.columns):
        panel = panel.with_target(_query(ref, expr, heading).instant().format(PromQueryFormat.TABLE))
        panel = panel.override_by_name(heading, [models.DynamicConfigValue(id_val="unit", value=unit)])
        names[f"Value #{ref}"] = heading
    if len(names) == 1:
        names["Value"] = next(iter(names.values()))
    organize = {
        "renameByName": names,
        "includeByName": {**dict.fromkeys(of.by, True), **dict.fromkeys(names, True)},
        "indexByName": {name: index for index, name in enumerate([*of.by, *names])},
    }
    return panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={})).with_transformation(
        models.DataTransformerConfig(id_val="organize", options=organize)
    )


def _query(ref: str, expr: str, legend: str) -> Dataquery:
    return Dataquery().ref_id(ref).expr(expr).legend_format(legend).datasource(DATASOURCE).range()


def _lettered(items: Mapping[str, T]) -> Iterable[tuple[str, str, T]]:
    return ((chr(ord("A") + index), name, value) for index, (name, value) in enumerate(items.items()))


def _choosers(services_of: str) -> list[builders.QueryVariable]:
    """Choosers of namespaces and services, both all at first, among the series of a metric."""
    return [
        _chooser("namespace", f"label_values({services_of}, namespace)"),
        _chooser("service", f'label_values({services_of}{{namespace=~"$namespace"}}, service)'),
    ]


def _chooser(name: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(name.capitalize())
        .query({"qryType": 1, "query": query, "refId": f"variable-{name}"})
        .datasource(DATASOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(models.VariableOption(text="All", value="$__all"))
    )


def _steps(*steps: tuple[Limit | None, str]) -> builders.ThresholdsConfig:
    return (
        builders.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps(
            [models.Threshold(value=None if limit is None else _number(limit), color=color) for limit, color in steps]
        )
    )


def _number(limit: Limit) -> float:
    return limit.value if isinstance(limit, Threshold) else limit


def _runbooks(alerts: Iterable[str]) -> list[Any]:
    return [
        builders.DashboardLink(f"Runbook of {alert}")
        .type(models.DashboardLinkType.LINK)
        .url(f"${{runbooks}}/{alert}.md")
        .target_blank(True)
        for alert in alerts
    ]
