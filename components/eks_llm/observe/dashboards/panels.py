"""Panels and boards with the defaults that all dashboards share, on the types of Grafana's Foundation SDK.

Every panel says in its description what to look for. Queries use plain windows such as `[5m]`, not Grafana's
`$__rate_interval`, so that a dashboard shows the very numbers that rules alert on.
"""

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

TAG = "eks-llm"
"""Tag of every dashboard; the links at the top list what carries it."""
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
DEFAULT_DATASOURCE = "prometheus"
"""Uid that kube-prometheus-stack gives its Prometheus."""
CHOSEN = 'namespace=~"$namespace",service=~"$service"'
"""Label matchers of the services chosen at the top of a dashboard."""
WIDTH = 24
"""Columns of Grafana's grid."""
MISSES_ALLOWED = 0.01
"""Share of requests that may miss a latency target, which is a 99th percentile: serving/slo.py."""
GRAPH_HEIGHT, FIGURE_HEIGHT = 8, 4
GREEN, ORANGE, RED = "green", "orange", "red"

Panel = timeseries.Panel | stat.Panel | table.Panel
T = TypeVar("T")
Series = Mapping[str, str]
"""Queries by their legend, which may hold labels such as `{{pod}}`."""


def graph(
    title: str,
    unit: str,
    series: Series,
    *,
    look: str,
    width: int = 8,
    most: float | None = None,
    limit: float | None = None,
    stacked: bool = False,
    alerts: Iterable[str] = (),
) -> timeseries.Panel:
    """Lines over time. `most`: end of the axis; `limit`: a red line, such as a latency target or a threshold."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(look)
        .links(_runbooks(alerts))
        .unit(unit)
        .min(0)
        .span(width)
        .height(GRAPH_HEIGHT)
        .datasource(DATASOURCE)
        .targets([_query(ref, expr, legend) for ref, legend, expr in _lettered(series)])
        .fill_opacity(30 if stacked else 8)
        .show_points(shapes.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    )
    if most is not None:
        panel = panel.max(most)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A"))
    if limit is not None:
        panel = panel.thresholds(_steps((None, GREEN), (limit, RED))).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
        )
    return panel


def figure(
    title: str,
    unit: str,
    query: str,
    *,
    look: str,
    width: int = 4,
    worse: tuple[float, float] | None = None,
    decimals: int | None = None,
    alerts: Iterable[str] = (),
) -> stat.Panel:
    """The latest value, large. `worse`: where it becomes orange and red; falling if the second is lower."""
    if worse is None:
        steps = _steps((None, GREEN))
    elif worse[0] <= worse[1]:
        steps = _steps((None, GREEN), (worse[0], ORANGE), (worse[1], RED))
    else:
        steps = _steps((None, RED), (worse[1], ORANGE), (worse[0], GREEN))
    panel = (
        stat.Panel()
        .title(title)
        .description(look)
        .links(_runbooks(alerts))
        .unit(unit)
        .span(width)
        .height(FIGURE_HEIGHT)
        .datasource(DATASOURCE)
        .targets([_query("A", query, title)])
        .thresholds(steps)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(shapes.BigValueColorMode.VALUE)
        .graph_mode(shapes.BigValueGraphMode.AREA)
    )
    return panel if decimals is None else panel.decimals(decimals)


def listing(
    title: str,
    columns: Mapping[str, tuple[str, str]],
    *,
    by: Iterable[str],
    look: str,
    width: int = WIDTH,
    alerts: Iterable[str] = (),
) -> table.Panel:
    """A row for each combination of the labels `by`; `columns`: unit and query by heading."""
    panel = (
        table.Panel()
        .title(title)
        .description(look)
        .links(_runbooks(alerts))
        .span(width)
        .height(GRAPH_HEIGHT)
        .datasource(DATASOURCE)
    )
    names: dict[str, str] = {}
    for ref, heading, (unit, expr) in _lettered(columns):
        panel = panel.with_target(_query(ref, expr, heading).instant().format(PromQueryFormat.TABLE))
        panel = panel.override_by_name(heading, [models.DynamicConfigValue(id_val="unit", value=unit)])
        names[f"Value #{ref}"] = heading
    if len(names) == 1:
        names["Value"] = next(iter(names.values()))
    organize = {
        "renameByName": names,
        "includeByName": {**dict.fromkeys(by, True), **dict.fromkeys(names, True)},
        "indexByName": {name: index for index, name in enumerate([*by, *names])},
    }
    return panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={})).with_transformation(
        models.DataTransformerConfig(id_val="organize", options=organize)
    )


def variables(services_of: str) -> list[Any]:
    """Choosers of namespaces and services, both all at first, among the series of the metric `services_of`."""
    return [
        _chooser("namespace", f"label_values({services_of}, namespace)"),
        _chooser("service", f'label_values({services_of}{{namespace=~"$namespace"}}, service)'),
    ]


def board(  # noqa: PLR0917 what every dashboard has, in its order
    uid: str,
    title: str,
    description: str,
    groups: Mapping[str, Iterable[Panel]],
    choosers: Iterable[Any] = (),
    runbooks: str = RUNBOOKS,
) -> dict[str, Any]:
    """A dashboard as Grafana's JSON: groups of panels below each other, panels in lines of 24 columns.

    Every dashboard has a chooser of the data source, and links to the others. `runbooks`: the web address below which
    the runbooks of alerts are.
    """
    made = (
        builders.Dashboard(title)
        .uid(uid)
        .description(description)
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
    for chooser in choosers:
        made = made.with_variable(chooser)
    number = 0
    for heading, panels in groups.items():
        number += 1
        made = made.with_row(builders.Row(heading).id(number))
        for panel in panels:
            number += 1
            made = made.with_panel(panel.id(number))
    return json.loads(json.dumps(made.build(), cls=JSONEncoder))


def _query(ref: str, expr: str, legend: str) -> Dataquery:
    return Dataquery().ref_id(ref).expr(expr).legend_format(legend).datasource(DATASOURCE).range()


def _lettered(items: Mapping[str, T]) -> Iterable[tuple[str, str, T]]:
    return ((chr(ord("A") + index), name, value) for index, (name, value) in enumerate(items.items()))


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


def _steps(*steps: tuple[float | None, str]) -> builders.ThresholdsConfig:
    return (
        builders.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=color) for value, color in steps])
    )


def _runbooks(alerts: Iterable[str]) -> list[Any]:
    return [
        builders.DashboardLink(f"Runbook of {alert}")
        .type(models.DashboardLinkType.LINK)
        .url(f"${{runbooks}}/{alert}.md")
        .target_blank(True)
        for alert in alerts
    ]
