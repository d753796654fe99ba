"""Shows a report: for a terminal, for a pull request (Markdown), for a program (JSON)."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

from .report import Facts, Node, Report, Totals

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
        claim = f"; services claim {_span(sums.gpus_claimed)} with {replicas}" if sums.replicas["max"] else ""
        yield "GPUs", f"{_span(sums.gpus)}{claim}"


# Formats ------------------------------------------------------------------------------------------------------------


def text(report: Report, console: Any) -> None:
    """Prints the report on a rich console: labels on the left, the rest wrapped beside them."""
    from rich.text import Text

    layout = list(rows(report))
    sums = list(totals(report.totals))
    width = max([len(row.label) + 2 * row.depth for row in layout] + [len(label) for label, _ in sums]) + 2

    room = max(console.width - width, 20)

    def line(label: str, style: str, body: str, name: str = "", body_style: str = "") -> None:
        folded = Text("\n".join(_fold(f"{name}  {body}".strip(), room)), body_style)
        folded.stylize("bold", 0, len(name))
        for part in folded.wrap(console, room, overflow="fold"):
            part.rstrip()
            console.print(Text.assemble((label.ljust(width), style), part))
            label = ""

    console.print(Text.assemble((f"{report.project}/{report.stack}", "bold"), ("  plan without credentials", "dim")))
    console.print()
    for row in layout:
        style = "bold cyan" if row.component else "cyan"
        line("  " * row.depth + row.label, style, row.text, row.name, "" if row.label else "dim")
    console.print()
    for label, sum_ in sums:
        line(label, "bold", sum_)
    if report.exports:
        line("exports", "bold", " · ".join(report.exports))
    for warning in report.warnings:
        line("warning", "bold yellow", warning, body_style="yellow")


def _fold(line: str, width: int) -> list[str]:
    """Lines that break between the facts of `line`, not within them."""
    folded: list[str] = []
    for part in line.split(" · "):
        if folded and len(folded[-1]) + len(part) + 3 <= width:
            folded[-1] += f" · {part}"
        else:
            folded.append(part)
    return folded


def markdown(report: Report) -> str:
    """The report for a pull request: totals and warnings on top, the components in a table below."""
    out = StringIO()
    print(f"### Plan of `{report.project}/{report.stack}`\n", file=out)
    for warning in report.warnings:
        print(f"> ⚠️ {_escape(warning)}\n", file=out)
    for label, line in totals(report.totals):
        print(f"- **{label}** {_escape(line)}", file=out)
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


def as_json(report: Report) -> str:
    """The whole report, every resource with its facts."""
    return json.dumps(report.as_dict(), indent=2, ensure_ascii=False) + "\n"


def _escape(line: str) -> str:
    return re.sub(r"([\\|*_`])", r"\\\1", line).replace("<", "&lt;").replace("\n", "<br>")
