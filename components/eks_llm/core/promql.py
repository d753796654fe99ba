"""PromQL in settings: whether Prometheus can read a query, and whether it gives the one element that KEDA takes."""

import promql_parser as promql
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
)

SWITCHED_OFF = {
    *("double_exponential_smoothing", "histogram_quantiles", "info", "integral", "mad_over_time"),
    *("end", "range", "start", "step", "limitk", "limit_ratio", "sort_by_label", "sort_by_label_desc"),
    *("ts_of_first_over_time", "ts_of_last_over_time", "ts_of_max_over_time", "ts_of_min_over_time"),
}
"""Functions and aggregations that Prometheus knows only with a feature flag, which nothing here sets. The parser takes
them. Source: prometheus, promql/parser/functions.go and lex.go; tests/rules holds the list to promtool's verdict."""
SEVERAL = ("topk", "bottomk", "count_values", "limitk", "limit_ratio")
"""Aggregations whose answer has more elements than one even without a grouping."""


def one_element_problem(query: str) -> str | None:
    """Why KEDA cannot scale by the query; None if its answer is one element without labels, or none.

    KEDA reads a list of elements, takes the value of the only one, and fails where there are more; a scalar is no list.
    Source: kedacore/keda, pkg/scalers/prometheus_scaler.go.
    """
    try:
        tree = promql.parse(query)
    except ValueError as error:
        return f"not a query that Prometheus can read ({error})"
    for name in _functions(tree):
        if name in SWITCHED_OFF:
            return f"{name}() is an experiment of Prometheus, which is off; write the query without it"
    if _scalar(tree):
        return "a scalar, which KEDA cannot read; write vector(…) around it, or begin with sum(…)"
    return _several(tree)


def _functions(tree: Expr) -> list[str]:
    """Names of all functions and aggregations."""
    found: list[str] = []

    def see(node: Expr) -> bool:
        if isinstance(node, Call):
            found.append(node.func.name)
        elif isinstance(node, AggregateExpr):
            found.append(str(node.op))
        return True

    promql.walk(tree, pre_visit=see)
    return found


def _scalar(tree: Expr) -> bool:
    if isinstance(tree, ParenExpr | UnaryExpr):
        return _scalar(tree.expr)
    if isinstance(tree, BinaryExpr):
        return _scalar(tree.lhs) and _scalar(tree.rhs)
    return isinstance(tree, NumberLiteral | StringLiteral) or (
        isinstance(tree, Call) and tree.func.name in ("scalar", "time", "pi")
    )


def _several(tree: Expr) -> str | None:
    """Why the answer may have several elements, or labels."""
    if isinstance(tree, ParenExpr | UnaryExpr | SubqueryExpr):
        return _several(tree.expr)
    if isinstance(tree, BinaryExpr):
        sides = [side for side in (tree.lhs, tree.rhs) if not _scalar(side)]
        return next(filter(None, map(_several, sides)), None)
    text = tree.prettify().strip()
    if isinstance(tree, AggregateExpr) and str(tree.op) not in SEVERAL:
        if tree.modifier is None or str(tree.modifier) == "by ()":
            return None
        return f"KEDA takes one element, and `{text}` gives one per group; leave the grouping out"
    if isinstance(tree, Call):
        inner = [part for part in tree.args if not _scalar(part)]
        if tree.func.name == "vector" or (inner and tree.func.name not in LABELS and not any(map(_several, inner))):
            return None
    return f"KEDA takes one element, and `{text}` may give several; begin with sum(…)"


LABELS = ("absent", "absent_over_time", "label_replace", "label_join")
"""Functions that give their answer labels."""
