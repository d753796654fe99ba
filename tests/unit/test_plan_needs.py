"""Fit, capacity, quotas and cost in a plan of a program that never asked for them, in every format."""

import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from eks_llm.core.problems import InvalidArgs, Problem
from eks_llm.plan import html, render, report, sections
from eks_llm.plan.diff import Comparison, figures
from eks_llm.plan.needs import ServiceFit
from eks_llm.plan.program import PlanError, find_project, run
from eks_llm.plan.recorder import Recording
from eks_llm.sizing.own_prices import OwnPrices
from tests.unit.test_cli import PROJECTS, eks_llm

SERVED = PROJECTS / "served"


@pytest.fixture(scope="module")
def recording() -> Recording:
    return run(find_project(SERVED), "dev")


@pytest.fixture(scope="module")
def served(recording: Recording) -> report.Report:
    return report.build(recording, "served", "dev")


def as_text(plan: report.Report, width: int = 110, **options: Any) -> str:
    out = io.StringIO()
    render.text(plan, Console(file=out, width=width, highlight=False, **options))
    return out.getvalue()


def stack(tmp_path: Path, model: str) -> Path:
    for file in SERVED.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "Pulumi.dev.yaml").write_text(f"config: {{served:model: {model}}}\n")
    return tmp_path


# What is said -------------------------------------------------------------------------------------------------------


def test_text_answers_fit_capacity_quotas_and_cost(served: report.Report) -> None:
    text = as_text(served)
    for part in (
        # Llama-3-8B has 14.96 GiB of weights, a quarter on each of 4 GPUs; an A100-40 shows 39.49 GiB.
        "weights 3.7 · reserve",
        "of 39.5 GiB per A100-SXM4-40GB",
        "largest maxModelLen 8,192",
        "8 GPUs held (1 × p4d.24xlarge) · 4 asked for at min (1 node) · 8 asked for at max (1 node)",
        # A p4d has 96 vCPUs, and costs 21.957642 USD an hour in us-west-2: 730 hours are 16,029.
        "L-417A185B  ",
        "96 vCPUs · Running On-Demand P instances · us-west-2",
        "--desired-value 96 --region us-west-2",
        "a100: 1 x p4d.24xlarge    16,029    16,029    16,029  21.9576 an hour, on-demand",
        "USD per 1M output tokens at",
        "prices are of 2026-07-20",
    ):
        assert part in text, part


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_answers_fit_the_terminal(served: report.Report, width: int) -> None:
    lines = as_text(served, width).splitlines()
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]


def test_markdown_has_a_table_for_each_answer(served: report.Report) -> None:
    text = render.markdown(served)
    for head in ("| fit | |", "| capacity | |", "| quotas | |", "| USD per month | min | expected | max | |"):
        assert head in text
    assert "| **total** | **16,033** |" in text
    assert "`aws service-quotas request-service-quota-increase --service-code ec2" in text


def test_json_has_numbers(served: report.Report) -> None:
    needs = json.loads(render.as_json(served))["needs"]
    assert needs["quotas"][0]["value"] == 96
    assert needs["capacity"][0]["gpus"] == {"min": 4, "max": 8}
    assert needs["fit"][0]["weights"] == pytest.approx(14.96 / 4, rel=0.01)
    assert needs["total"]["maximum"] == pytest.approx(sum(line["maximum"] for line in needs["bill"]))


def test_own_prices_are_used(recording: Recording) -> None:
    prices = OwnPrices.model_validate(
        {"date": "2026-11-28", "regions": {"us-west-2": {"onDemand": {"p4d.24xlarge": 10}}}}
    )
    needs = report.build(recording, "served", "dev", prices).needs
    assert needs
    assert needs.bill[0].maximum == pytest.approx(7300)
    assert needs.prices_of == "2026-11-28"


def unpriced() -> report.Report:
    """A stack in a region without prices."""
    recording = run(find_project(SERVED), "dev")
    for item in recording.resources:
        if item.type == "eks-llm:index:GpuNodePool":
            item.inputs["zone"] = "eu-central-1a"
    return report.build(recording, "served", "dev")


def test_a_price_that_is_not_known_shows_in_every_format() -> None:
    plan = unpriced()
    assert plan.needs
    text = as_text(plan, 140)
    assert "a100: 1 x p4d.24xlarge         –         –         –  price not known" in text
    assert "≥ 0       ≥ 0       ≥ 0  incomplete: a price is not known" in text
    assert "price not known, at " in text
    assert json.loads(render.as_json(plan))["needs"]["total"]["incomplete"] is True
    assert "| a100: 1 x p4d.24xlarge | – | – | – | price not known |" in render.markdown(plan)
    assert "<dd>≥ 0</dd>" in html.page(plan)
    figure = next(iter(figures(plan.needs, plan.needs)))
    shown = dict(sections.figures(Comparison("main", "0", [], [], [figure])))
    assert shown["USD per month, min"] == "≥ 0 → ≥ 0, incomplete: a price is not known"


def test_a_misfit_names_one_shortage_and_no_price(tmp_path: Path) -> None:
    # Weights and reserve take 0.2 GiB more than vLLM may use; with one request of maximum length 0.8 are missing.
    plan = report.build(run(find_project(stack(tmp_path, "llama-3-70b-instruct")), "dev"), "served", "dev")
    text = as_text(plan, 140)
    assert "no KV cache, 0.2 over budget" in text
    assert "no output to price: does not fit" in text
    assert "no KV cache, 0.2 over budget" in html.page(plan)


def test_without_a_quota_there_is_no_section(served: report.Report) -> None:
    assert served.needs
    bare = replace(served, needs=replace(served.needs, quotas=[]))
    assert "quotas" not in as_text(bare)
    assert "| quotas |" not in render.markdown(bare)
    assert "<h2>Quotas</h2>" not in html.page(bare)


def test_what_the_program_has_said_itself_is_not_said_again(recording: Recording) -> None:
    before = report.build(recording, "served", "dev").warnings
    said = [f"platform.{warning}" for warning in before]
    again = Recording(**{**vars(recording), "warnings": said})
    assert report.build(again, "served", "dev").warnings == said
    assert len(before) == len(set(before)) > 0


def test_a_program_without_services_is_told_what_it_costs_and_no_more() -> None:
    plan = report.build(run(find_project(PROJECTS / "network"), "dev"), "network", "dev")
    assert plan.needs
    assert plan.needs.total.minimum == pytest.approx(730 * 0.045)  # one NAT gateway
    assert "fit" not in as_text(plan).splitlines()
    assert "<h2>Fit</h2>" not in html.page(plan)


def test_a_program_without_components_has_no_answers() -> None:
    plan = report.build(Recording(), "empty", "dev")
    assert plan.needs is None
    assert "cost" not in as_text(plan)
    assert "Cost" not in html.page(plan)


@pytest.mark.parametrize("format_", ["text", "markdown", "html", "json"])
def test_a_stack_that_cannot_run_is_shown_and_fails(tmp_path: Path, format_: str) -> None:
    done = eks_llm("plan", "dev", "--format", format_, cwd=stack(tmp_path, "llama-3-70b-instruct"), COLUMNS="100")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == (
        "error services.chat: llama-3-70b-instruct does not fit on 4 x NVIDIA A100-SXM4-40GB (GiB per GPU):"
    )
    # 131.42 GiB on four GPUs.
    assert "        weights        -32.9 GiB  131.4 bfloat16 on 4" in lines
    assert done.stdout


@pytest.fixture
def refusing(tmp_path: Path) -> Path:
    """A program that refuses its stack file."""
    root = stack(tmp_path, "llama-3-8b-instruct")
    (root / "__main__.py").write_text(
        "from eks_llm.core.problems import InvalidArgs, Problem\n"
        "raise InvalidArgs('Pulumi.dev.yaml', [Problem('a', 'too large:\\n  1 GiB\\n  2 GiB'), Problem('b', '<x')])\n"
    )
    return root


def test_a_refusal_of_the_program_keeps_its_columns(refusing: Path) -> None:
    done = eks_llm("plan", "dev", "--format", "markdown", cwd=refusing)
    assert done.stderr.splitlines() == [
        "error Pulumi.dev.yaml: a: too large:", "        1 GiB", "        2 GiB", "error Pulumi.dev.yaml: b: <x",
    ]  # fmt: skip
    assert "> ❌ Pulumi.dev.yaml: a: too large:\n> ```\n>   1 GiB\n>   2 GiB\n> ```\n" in done.stdout


def test_a_refusal_of_the_program_in_json_and_html(refusing: Path) -> None:
    done = eks_llm("plan", "dev", "--format", "json", cwd=refusing)
    assert done.returncode == 1
    problems = ["Pulumi.dev.yaml: a: too large:\n  1 GiB\n  2 GiB", "Pulumi.dev.yaml: b: <x"]
    assert json.loads(done.stdout) == {"schema": 1, "errors": problems}
    done = eks_llm("plan", "dev", "--format", "html", cwd=refusing)
    assert done.returncode == 1
    assert done.stdout.startswith("<!doctype html>")
    assert '<pre class="error">Pulumi.dev.yaml: b: &lt;x</pre>' in done.stdout
    assert "<p>cannot be built</p>" in done.stdout


def test_problems_are_texts_of_their_own() -> None:
    error = InvalidArgs("x", [Problem("a", "one\n  two"), Problem("b", "three")])
    assert PlanError(*error.messages).problems == ("x: a: one\n  two", "x: b: three")


# Bars and pages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "reserve", "budget", "bar"),
    [
        (10.0, 5.0, 36.0, "#####+++..........  "),  # a quarter, an eighth, and a tenth that vLLM may not use
        (50.0, 5.0, 36.0, "#" * 20),
        (0.0, 0.0, 40.0, "." * 20),
    ],
)
def test_a_bar_shows_shares_of_the_gpu(weights: float, reserve: float, budget: float, bar: str) -> None:
    item = ServiceFit("s", "A100", 1, "fits", "", 40.0, budget, weights, reserve, budget - weights - reserve,
                      8192, 1.0, 2048, 4.0, 8192)  # fmt: skip
    assert sections.bar(item, "#+.", 20) == bar


def test_a_terminal_without_unicode_gets_plain_bars(served: report.Report) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    render.text(served, Console(file=out, width=110))
    out.seek(0)
    assert "[##++" in out.read()


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_for_nothing(served: report.Report) -> None:
    page = html.page(served)
    parser = _Page()
    parser.feed(page)
    assert parser.open == []
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in parser.tags}
    assert not [attrs for _, attrs in parser.tags if {"src", "href", "onclick"} & attrs.keys()]
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page


def test_the_bars_of_the_page_are_shares(served: report.Report) -> None:
    parser = _Page()
    parser.feed(html.page(served))
    widths = {attrs["title"]: attrs["style"] for tag, attrs in parser.tags if tag == "i" and attrs.get("title")}
    assert served.needs
    fit = served.needs.fit[0]
    share = float(str(widths[f"weights {fit.weights:.1f} GiB"]).removeprefix("width:").removesuffix("%"))
    assert share == pytest.approx(100 * 14.96 / 4 / 39.49, rel=0.01)


def test_the_page_shows_text_as_text(recording: Recording) -> None:
    odd = Recording(**{**vars(recording), "warnings": ["<script>alert(1)</script>"]})
    page = html.page(report.build(odd, "<b>", "dev"))
    assert "<script>" not in page
    assert "<h1>&lt;b&gt;/dev</h1>" in page
