"""The report as one HTML page: no script, no request to anywhere, for wide and narrow screens, light and dark."""

import re
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files

from .diff import Comparison
from .needs import Money, Needs, PoolCapacity, ServiceFit
from .render import rows, totals
from .report import Report
from .sections import COST, amounts, bill, changes, figures, group_row, kv_cache, sections, token_price

Part = tuple[str, float, str]
"""Class, share of the whole in per cent, and tip of a piece of a bar."""


def page(report: Report) -> str:
    """The whole document."""
    title = escape(f"{report.project}/{report.stack}")
    style = (files("eks_llm.plan") / "page.css").read_text(encoding="utf-8")
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title} plan</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{title}</h1><p>plan without credentials</p></header>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _body(report: Report) -> Iterator[str]:
    yield from (f'<pre class="error">{escape(error)}</pre>' for error in report.errors)
    yield from _cards(report)
    if report.against:
        yield from _changes(report.against)
    if report.needs:
        for answer in sections(report.needs):
            drawn = DRAWN.get(answer.title)
            yield _section(answer.title.capitalize(), *(drawn(report.needs) if drawn else _listed(answer.rows)))
    if report.warnings:
        listed = "".join(f"<li>{_text(warning)}</li>" for warning in report.warnings)
        yield _section("Warnings", f'<ul class="warnings">{listed}</ul>')
    yield _section("Components", *_components(report))


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{title}</h2>\n" + "\n".join(parts) + "\n</section>"


def _text(text: str) -> str:
    """Escaped, with a calculation below the first line kept in its columns."""
    first, *rest = text.split("\n")
    return escape(first) + (f"<pre>{escape(chr(10).join(rest))}</pre>" if rest else "")


def _bar(parts: Iterable[Part], label: str) -> str:
    pieces = "".join(
        f'<i class="{name}" style="width:{max(0.0, share):.2f}%" title="{escape(tip)}"></i>'
        for name, share, tip in parts
    )
    return f'<div class="bar" role="img" aria-label="{escape(label)}">{pieces}</div>'


# Parts --------------------------------------------------------------------------------------------------------------


def _cards(report: Report) -> Iterator[str]:
    cards = [(label, *_headed(text)) for label, text in totals(report.totals)]
    if report.needs:
        total = report.needs.total
        least, expected, most = amounts(total)
        cards.insert(0, ("USD per month, expected", expected, f"{least} to {most}"))
    shown = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd><dd>{escape(more)}</dd></div>"
        for label, value, more in cards
    )
    yield f'<dl class="cards">{shown}</dl>'


def _headed(text: str) -> tuple[str, str]:
    """The number that a line of the totals begins with, and the rest."""
    match = re.match(r"([\d–]+)[:;]? (.*)|(.*)", text)
    return (match[1] or match[3], match[2] or "") if match else (text, "")


def _changes(against: Comparison) -> Iterator[str]:
    sums = "".join(f"<tr><th>{escape(what)}</th><td>{escape(value)}</td></tr>" for what, value in figures(against))
    marks = {"+": "added", "~": "changed", "±": "replaced", "-": "removed", "!": "note"}
    listed = ""
    for mark, title, lines in changes(against):
        details = "".join(f"<span>{escape(line)}</span>" for line in lines)
        listed += f'<li class="{marks[mark]}"><b>{escape(title)}</b>{details}</li>'
    yield _section(
        f"Against {escape(against.ref)} <small>{against.commit[:9]}</small>",
        f'<table class="figures">{sums}</table>',
        f'<ul class="changes">{listed}</ul>',
    )


MEMORY = {"weights": "weights", "reserve": "CUDA, activation, graphs", "cache": "KV cache", "": "not used"}
GPUS = {"weights": "asked for at min", "reserve": "at max", "": "free"}
USD = {"weights": "at min", "reserve": "as expected", "cache": "at max"}


def _legend(names: dict[str, str]) -> str:
    keys = "".join(f'<span><i class="{name}"></i>{text}</span>' for name, text in names.items())
    return f'<p class="legend">{keys}</p>'


def _fit(item: ServiceFit) -> str:
    def part(name: str, value: float) -> Part:
        return name, 100 * value / item.visible, f"{name} {value:.1f} GiB"

    parts = [part("weights", item.weights), part("reserve", item.reserve), part("cache", item.kv_cache)]
    numbers = f"weights {item.weights:.1f} · reserve {item.reserve:.1f} · {kv_cache(item)}"
    state = {"fits": "good", "marginal": "close"}.get(item.verdict, "bad")
    return (
        f'<article><h3>{escape(item.service)} <span class="state {state}">{escape(item.verdict)}</span></h3>'
        f"{_bar(parts, f'{item.service}: {numbers} of {item.visible:.1f} GiB')}"
        f"<p>{numbers} of {item.visible:.1f} GiB per {escape(item.gpu)}, {item.gpus} per replica</p>"
        f"<p>{escape(item.summary)}</p>"
        f"<p>{item.typical_concurrency:.1f} requests of {item.typical_tokens:,} at once; largest maxModelLen "
        f"{item.largest_max_model_len:,}</p></article>"
    )


def _capacity(item: PoolCapacity) -> str:
    whole = max(item.gpus_held, item.gpus["max"], 1)
    least, most = item.gpus["min"], item.gpus["max"]
    parts = [
        ("weights", 100 * least / whole, f"{least} GPUs at min"),
        ("reserve", 100 * (most - least) / whole, f"{most} GPUs at max"),
    ]
    said = (
        f"{item.gpus_held} GPUs held ({item.nodes['max']} × {item.instance_type}), {least} asked for at min "
        f"({item.nodes_needed['min']} nodes), {most} at max ({item.nodes_needed['max']} nodes)"
    )
    return f"<article><h3>{escape(item.pool)}</h3>{_bar(parts, said)}<p>{escape(said)}</p></article>"


def _cost(needs: Needs) -> Iterator[str]:
    most = max(needs.total.maximum or 0, 1)

    def row(item: Money, kind: str = "") -> str:
        least, expected, greatest = (value or 0 for value in (item.minimum, item.expected, item.maximum))
        shown = amounts(item)
        figures = "".join(f"<td>{value}</td>" for value in shown)
        parts = [
            ("weights", 100 * least / most, f"min {shown[0]}"),
            ("reserve", 100 * (expected - least) / most, f"expected {shown[1]}"),
            ("cache", 100 * (greatest - expected) / most, f"max {shown[2]}"),
        ]
        note = f"<small>{escape(item.note)}</small>" if item.note else ""
        return (
            f'<tr class="{kind}"><th>{escape(item.what)}{note}</th>{figures}'
            f"<td>{_bar(parts, f'{item.what}: {shown[0]} to {shown[2]}')}</td></tr>"
        )

    of_services = "".join(row(item, "part") for item in needs.services)
    lines = "".join(row(item, "total" if item is needs.total else "") for item in bill(needs))
    yield (
        f"{_legend(USD)}"
        '<table class="cost"><thead><tr><th>USD per month</th><td>min</td><td>expected</td><td>max</td><td></td></tr>'
        f"</thead><tbody>{lines}</tbody><tbody>"
        f'<tr><th colspan="5">of which, by service</th></tr>{of_services}</tbody></table>'
    )
    listed = "".join(f"<dt>{escape(item.service)}</dt><dd>{escape(token_price(item))}</dd>" for item in needs.tokens)
    yield f'<dl class="pairs">{listed}</dl><p><small>Prices of {needs.prices_of}.</small></p>'


def _quotas(needs: Needs) -> Iterator[str]:
    for quota in needs.quotas:
        yield (
            f"<article><h3>{quota.code} <small>{escape(quota.name)}, {quota.region}</small></h3>"
            f"<p><b>{quota.value:,} {quota.unit}</b></p><pre>{escape(quota.command)}</pre></article>"
        )


def _listed(rows: list[tuple[str, list[str]]]) -> Iterator[str]:
    for name, lines in rows:
        yield f"<dl><dt>{escape(name)}</dt>{''.join(f'<dd>{escape(line)}</dd>' for line in lines)}</dl>"


def _fits(needs: Needs) -> Iterator[str]:
    yield _legend(MEMORY)
    yield from map(_fit, needs.fit)


def _capacities(needs: Needs) -> Iterator[str]:
    if needs.capacity:
        yield _legend(GPUS)
    yield from map(_capacity, needs.capacity)
    yield from _listed([group_row(item) for item in needs.groups])


DRAWN = {"fit": _fits, "capacity": _capacities, COST: _cost, "quotas": _quotas}
"""Sections that the page draws; the others are lists, as in every format."""


def _components(report: Report) -> Iterator[str]:
    cells: list[str] = []
    for row in rows(report):
        text = escape(row.text)
        if row.component:
            cells.append(
                f"<dt>{escape(row.label)} <b>{escape(row.name)}</b></dt>" + (f"<dd>{text}</dd>" if text else "")
            )
        else:
            label = f"<span>{escape(row.label)}</span> " if row.label else ""
            name = f"<b>{escape(row.name)}</b> " if row.name else ""
            cells.append(f'<dd class="{"" if row.label else "rest"}">{label}{name}{text}</dd>')
    yield f'<dl class="components">{"".join(cells)}</dl>'
