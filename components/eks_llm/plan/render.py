"""Shows a report: for a terminal, for a pull request (Markdown), for a program (JSON)."""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from io import StringIO
from typing import Any

from .diff import Comparison
from .needs import Needs
from .report import SCHEMA, Facts, Node, Report, Totals
from .sections import COST, MARKS, SHADES, amounts, bill, changes, figures, sections, token_price

# Rows: the one layout that text and Markdown share ------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of the tree: what it is, its name, what to know of it. Without a label: what else is there."""

    depth: int
    label: str
    name: str
    text: str
    component: bool = False


def rows(report: Report) -> Iterator[Row]:
    """Components in the order of the program, then what stands outside of them."""
    for node in report.tree:
        if not node.custom:
            yield from _component(node, 0)
    loose = [node for node in report.tree if node.custom]
    if loose:
        yield Row(0, "stack", "", "outside of components", component=True)
        yield from _resources(loose, 0)


def _component(node: Node, depth: int) -> Iterator[Row]:
    yield Row(depth, node.kind, node.name, phrase(node.facts), component=True)
    yield from _resources([child for child in node.children if child.custom], depth)
    for child in node.children:
        if not child.custom:
            yield from _component(child, depth + 1)


def _resources(nodes: list[Node], depth: int) -> Iterator[Row]:
    """A row for each resource that readers ask about, one for all add-ons, and one that counts the others."""
    of_kind = Counter(node.kind for node in nodes)
    pictured = [node for node in nodes if "images" in node.facts]
    addons = [node for node in nodes if "addon" in node.facts]
    said = {node.urn for node in nodes if node.kind in ("Vpc", "Cluster", "NodeGroup", "Release")}
    said |= {node.urn for node in nodes if {"images", "addon", "triggers", "alerts"} & node.facts.keys()}
    below: list[tuple[str, str, str]] = []
    if of_kind["NodeGroup"] > 1 or of_kind["Cluster"]:
        below += [("nodes", node.name, phrase(node.facts)) for node in nodes if node.kind == "NodeGroup"]
    if addons:
        below.append(("add-ons", "", " · ".join(_words(a.facts["addon"], a.facts.get("version")) for a in addons)))
    if of_kind["Release"] > 1:
        below += [("chart", "", phrase(node.facts)) for node in nodes if node.kind == "Release"]
    for node in pictured:
        below.append(("image", node.name if len(pictured) > 1 else "", " · ".join(map(_image, node.facts["images"]))))
    for label, fact in (("scales on", "triggers"), ("alerts", "alerts")):
        below += [(label, "", " · ".join(node.facts[fact])) for node in nodes if fact in node.facts]
    others = Counter(_kind(node) for node in nodes if node.urn not in said)
    if others:
        below.append(("", "", " · ".join(f"{kind}×{n}" if n > 1 else kind for kind, n in others.items())))
    yield from (Row(depth + 1, label, name, text) for label, name, text in below)


def _kind(node: Node) -> str:
    return f"provider {node.kind}" if node.type.startswith("pulumi:providers:") else node.kind


# Words --------------------------------------------------------------------------------------------------------------


def phrase(facts: Facts) -> str:
    """Facts in a reader's words, the most important first."""
    nodes, gpus, replicas = facts.get("nodes"), facts.get("gpus"), facts.get("replicas")
    parts = [
        f"Kubernetes {facts['kubernetes']}" if "kubernetes" in facts else "",
        f"{facts['endpoint']} endpoint" if facts.get("endpoint") == "private" else "",
        f"endpoint {facts['endpoint']}" if facts.get("endpoint", "private") != "private" else "",
        facts.get("cidr", ""),
        _words(facts["chart"], facts.get("version")) if "chart" in facts else "",
        f"namespace {facts['namespace']}" if "namespace" in facts else "",
        _words(f"{_span(nodes)} ×", " or ".join(facts.get("instanceTypes", ["node"]))) if nodes else "",
        _words(f"{_span(gpus)} GPUs", f"({facts['gpuModel']})") if gpus and nodes else "",
        _words(_count(replicas, "replica"), f"× {_count(facts.get('gpusPerReplica'), 'GPU')}" if gpus else "")
        if replicas
        else "",
        f"pool {facts['pool']}" if "pool" in facts else "",
        facts.get("capacity", ""),
        zones(facts.get("zones", [])),
        f"AMI {facts['amiRelease']}" if "amiRelease" in facts else "",
        f"s3://{facts['bucket']}" if "bucket" in facts else "",
    ]
    return " · ".join(part for part in parts if part)


def zones(names: list[str]) -> str:
    """`us-west-2a, b, c`."""
    if not names:
        return ""
    first, region = names[0], names[0][:-1]
    return ", ".join([first, *(name.removeprefix(region) for name in names[1:])])


def _words(*words: str | None) -> str:
    return " ".join(word for word in words if word)


def _span(span: dict[str, int]) -> str:
    return str(span["min"]) if span["min"] == span["max"] else f"{span['min']}–{span['max']}"


def _count(number: Any, noun: str) -> str:
    text = _span(number) if isinstance(number, dict) else str(number)
    return f"{text} {noun}" if text == "1" else f"{text} {noun}s"


def _image(image: str) -> str:
    return re.sub(r"(@sha256:[0-9a-f]{12})[0-9a-f]+", r"\1…", image)


def totals(sums: Totals) -> Iterator[tuple[str, str]]:
    """Label and text of each line of the totals; nothing that is zero."""
    providers = " · ".join(f"{count} {name}" for name, count in sums.by_provider.items())
    yield "resources", f"{sums.resources} in {_count(sums.components, 'component')}: {providers}"
    if sums.nodes["max"]:
        kinds = " · ".join(f"{_span(span)} × {type_}" for type_, span in sums.instances.items())
        yield "nodes", f"{_span(sums.nodes)}: {kinds}"
    if sums.gpus["max"] or sums.gpus_claimed["max"]:
        replicas = _count(sums.replicas, "replica")
        claim = f"services claim {_span(sums.gpus_claimed)} with {replicas}" if sums.replicas["max"] else ""
        made = _span(sums.gpus) if sums.gpus["max"] or not claim else ""  # none where the nodes exist already
        yield "GPUs", "; ".join(filter(None, (made, claim)))


# Formats ------------------------------------------------------------------------------------------------------------


def text(report: Report, console: Any) -> None:
    """Prints the report on a rich console: labels on the left, the rest wrapped beside them."""
    layout, sums = list(rows(report)), list(totals(report.totals))
    shades = SHADES if console.encoding.startswith("utf") else "#+."
    answers = list(sections(report.needs, shades)) if report.needs else []
    labels = ["  " * row.depth + row.label for row in layout] + [label for label, _ in sums]
    labels += [f"  {name}" for answer in answers for name, _ in answer.rows]
    out = _Lines(console, max(len(label) for label in labels if len(label) <= LONGEST_LABEL) + 2)

    out.title(f"{report.project}/{report.stack}", "plan without credentials")
    for row in layout:
        style = "bold cyan" if row.component else "cyan"
        out.line("  " * row.depth + row.label, style, row.text, row.name, "" if row.label else "dim")
    for answer in answers:
        if answer.title == COST and report.needs:
            _cost(report.needs, out)
            continue
        out.title(answer.title)
        for name, lines in answer.rows:
            for index, body in enumerate(lines):
                out.line("" if index else f"  {name}", "cyan", body)
    if report.against:
        _changes(report.against, out)
    out.title("totals")
    for label, sum_ in [*sums, *([("exports", " · ".join(report.exports))] if report.exports else [])]:
        out.line(label, "bold", sum_)
    for warning in report.warnings:
        out.line("warning", "bold yellow", warning, body_style="yellow")


LONGEST_LABEL = 24
"""Characters of a label that has its text beside it; a longer one, such as a role's, stands above it."""


class _Lines:
    """Writes labelled lines that wrap beside their labels."""

    def __init__(self, console: Any, indent: int) -> None:
        from rich.text import Text  # imported here: the other formats need none of it

        self._text, self._console, self._indent = Text, console, indent
        self.width: int = console.width

    def title(self, title: str, note: str = "") -> None:
        self._console.print(self._text.assemble("\n", (title, "bold"), (f"  {note}" if note else "", "dim")))

    def line(self, label: str, style: str, body: str, name: str = "", body_style: str = "") -> None:
        if len(label) >= self._indent:
            self._console.print(self._text(label[: self.width], style))
            label = ""
        room = max(self.width - self._indent, 20)
        folded = self._text("\n".join(_fold(f"{name}  {body}".strip(), room)), body_style)
        folded.stylize("bold", 0, len(name))
        for part in folded.wrap(self._console, room, overflow="fold"):
            part.rstrip()
            self._console.print(self._text.assemble((label.ljust(self._indent), style), part))
            label = ""

    def plain(self, line: str) -> None:
        self._console.print(self._text(line))


def _fold(line: str, width: int) -> list[str]:
    """Lines that break between the facts of `line`, not within them."""
    folded: list[str] = []
    for part in line.split(" · "):
        if folded and len(folded[-1]) + len(part) + 3 <= width:
            folded[-1] += f" · {part}"
        else:
            folded.append(part)
    return folded


def _cost(needs: Needs, out: _Lines) -> None:
    out.title("cost", "USD per month")
    for row in _money(needs, out.width):
        out.plain(row)
    for item in needs.tokens:
        out.line(f"  {item.service}", "cyan", token_price(item))


def _changes(against: Comparison, out: _Lines) -> None:
    out.title(f"against {against.ref}", against.commit[:9])
    for what, figure in figures(against):
        out.line("", "", figure, what)
    for mark, title, lines in changes(against):
        first, *more = lines or [""]
        out.line(f"  {mark}", MARKS[mark], first, title)
        for body in more:
            out.line("", "", body)


def _money(needs: Needs, width: int) -> Iterator[str]:
    """The bill and the shares of the services in columns, the notes where there is room for them."""
    positions = [*((item.what, item) for item in bill(needs)), *((f"  {item.what}", item) for item in needs.services)]
    names = min(max(len(name) for name, _ in positions), width - 32)
    yield f"  {'':{names}}{'min':>10}{'expected':>10}{'max':>10}"
    for name, item in positions:
        if item is (needs.services or [None])[0]:
            yield "  of which"
        first, *more = [name[start : start + names] for start in range(0, len(name), names)]
        figures = "".join(f" {value:>9}" for value in amounts(item))
        note = f"  {item.note}" if len(item.note) + names + 34 <= width else ""
        yield f"  {first:{names}}{figures}{note}".rstrip()
        yield from (f"  {part}" for part in more)
        if item.note and not note:
            yield from textwrap.wrap(item.note, width, initial_indent="    ", subsequent_indent="    ")


def markdown(report: Report) -> str:
    """The report for a pull request: totals and warnings on top, the components in a table below."""
    out = StringIO()
    print(f"### Plan of `{report.project}/{report.stack}`\n", file=out)
    for warning in report.warnings:
        print(f"> ⚠️ {_quoted(warning)}\n", file=out)
    for error in report.errors:
        print(f"> ❌ {_quoted(error)}\n", file=out)
    for label, line in totals(report.totals):
        print(f"- **{label}** {_escape(line)}", file=out)
    if report.against:
        _markdown_changes(report.against, out)
    if report.needs:
        _markdown_answers(report.needs, out)
    print("\n| component | plan |\n|---|---|", file=out)
    cells: list[tuple[str, list[str]]] = []
    for row in rows(report):
        line = _words(f"`{row.name}`" if row.name and not row.component else "", _escape(row.text))
        if row.component:
            title = "&emsp;" * row.depth + _words(f"**{_escape(row.label)}**", _escape(row.name))
            cells.append((title, [line] if line else []))
        elif row.label:
            cells[-1][1].append(f"{row.label}: {line}")
        else:
            cells[-1][1].append(f"<sub>{line}</sub>")
    for title, lines in cells:
        print(f"| {title} | {'<br>'.join(lines)} |", file=out)
    return out.getvalue()


def _markdown_answers(needs: Needs, out: StringIO) -> None:
    for answer in sections(needs):
        if answer.title == COST:
            _markdown_cost(needs, out)
            continue
        print(f"\n| {answer.title} | |\n|---|---|", file=out)
        for name, lines in answer.rows:
            print(f"| {_escape(name)} | {'<br>'.join(_cell(line) for line in lines)} |", file=out)


def _markdown_cost(needs: Needs, out: StringIO) -> None:
    print("\n| USD per month | min | expected | max | |\n|---|--:|--:|--:|---|", file=out)
    strong = {needs.total.what: "**"}
    for item in bill(needs):
        mark = strong.get(item.what, "")
        cells = [f"{mark}{_escape(text)}{mark}" for text in (item.what, *amounts(item))]
        print(f"| {' | '.join(cells)} | {_escape(item.note)} |", file=out)
    for share, price in zip(needs.services, needs.tokens, strict=True):
        print(
            f"| of which {_escape(share.what)} | {' | '.join(amounts(share))} | {_escape(token_price(price))} |",
            file=out,
        )


def _markdown_changes(against: Comparison, out: StringIO) -> None:
    print(f"\n| against `{against.ref}` ({against.commit[:9]}) | |\n|---|---|", file=out)
    for what, figure in figures(against):
        print(f"| **{_escape(what)}** | {_escape(figure)} |", file=out)
    for mark, title, lines in changes(against):
        print(f"| `{mark}` {_escape(title)} | {'<br>'.join(map(_escape, lines))} |", file=out)


def _cell(line: str) -> str:
    """A line of a table; commands and bars as code."""
    code = re.match(r"\[[ █▓░]+\]|aws .*", line)
    return f"`{code[0]}`{_escape(line[code.end() :])}" if code else _escape(line)


def _quoted(message: str) -> str:
    """A message in a quotation; what follows its first line is a calculation, whose columns count."""
    first, *rest = message.splitlines()
    return "\n> ".join([_escape(first), *(["```", *rest, "```"] if rest else [])])


def refusal_markdown(title: str, problems: Iterable[str]) -> str:
    """What a pull request says of a stack that cannot be built."""
    return f"### Plan of `{title}`\n\n" + "".join(f"> ❌ {_quoted(problem)}\n\n" for problem in problems)


def refusal_html(title: str, problems: Iterable[str]) -> str:
    """The page of a stack that cannot be built."""
    style = (files("eks_llm.plan") / "page.css").read_text(encoding="utf-8")
    listed = "\n".join(f'<pre class="error">{escape(problem)}</pre>' for problem in problems)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} plan</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(title)}</h1><p>cannot be built</p></header>\n{listed}\n</main>\n</body>\n</html>\n"
    )


def refusal_json(problems: Iterable[str]) -> str:
    """What a program reads of a stack that cannot be built."""
    return _json({"schema": SCHEMA, "errors": list(problems)})


def as_json(report: Report) -> str:
    """The whole report, every resource with its facts."""
    return _json(report.as_dict())


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _escape(line: str) -> str:
    return re.sub(r"([\\|*_`])", r"\\\1", line).replace("<", "&lt;").replace("\n", "<br>")
