"""`eks-llm simulate`: scenario files good and bad, output, pictures."""

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from eks_llm.commands.simulate import simulate

SCENARIOS = Path(__file__).parents[2] / "benchmarks" / "scaling"
MEASURED = {"prefill": "50ms", "step": "20ms", "stepPerRequest": "0.5ms", "maxRunning": 32, "kvTokens": 1000000}
SCENARIO: dict[str, Any] = {
    "traffic": {"step": {"before": 1, "after": 6, "at": "2m", "duration": "10m"}},
    "service": {
        "podStart": "60s",
        "gpuHourUsd": 4,
        "replica": {"promptTokens": 1000, "outputTokens": 200, "measured": MEASURED},
    },
    "slo": {"ttftP99": "2s"},
    "scaling": {"min": 1, "max": 4},
}


def write(folder: Path, name: str, document: Any) -> str:
    path = folder / name
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(path)


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(simulate)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def changed(path: str, value: Any) -> dict[str, Any]:
    """The scenario with one key changed, or taken away."""
    document = json.loads(json.dumps(SCENARIO))
    at = document
    *parents, last = path.split(".")
    for key in parents:
        at = at.setdefault(key, {})
    if value is None:
        at.pop(last)
    else:
        at[last] = value
    return document


def test_text_tells_attainment_cost_and_what_the_capacity_suggests(tmp_path: Path) -> None:
    result = run(write(tmp_path, "s.yaml", SCENARIO))
    assert result.exit_code == 0, result.output
    for part in ("SLO attainment", "worst wait in a queue", "GPU hours", "USD", "inFlightPerReplica"):
        assert part in result.stdout


def test_json_adds_up(tmp_path: Path) -> None:
    result = run(write(tmp_path, "s.yaml", SCENARIO), "--json")
    document = json.loads(result.stdout)
    [policy] = document["policies"]
    assert policy["attainment"] == pytest.approx(policy["good"] / policy["arrived"], abs=1e-4)
    assert policy["gpuHours"] == pytest.approx(policy["meanReplicas"] * 600 / 3600, rel=0.01)
    assert policy["costUsd"] == pytest.approx(policy["gpuHours"] * 4, abs=0.02)
    lengths = {len(series) for series in policy["series"].values()}
    assert len(lengths) == 1


def test_two_policies_are_compared_on_the_same_traffic(tmp_path: Path) -> None:
    small = write(tmp_path, "small.yaml", {"scaling": {"min": 1, "max": 1}})
    result = run(write(tmp_path, "s.yaml", SCENARIO), "--compare", small, str(SCENARIOS / "copied.yaml"), "--json")
    one, copied = json.loads(result.stdout)["policies"]
    assert (one["name"], copied["name"]) == ("small", "copied")
    assert one["arrived"] == copied["arrived"]
    assert max(one["series"]["desired"]) == 1
    assert copied["advice"]


def test_the_plot_is_one_svg_without_references(tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    assert run(write(tmp_path, "s.yaml", SCENARIO), "--plot", str(plot)).exit_code == 0
    text = plot.read_text()
    ElementTree.fromstring(text)
    assert "href" not in text
    assert "within SLO" in text
    assert "NaN" not in text.replace("nan", "NaN")


def test_without_numpy_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("eks_llm.simulate.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    result = run(write(tmp_path, "s.yaml", SCENARIO))
    assert result.exit_code == 1
    assert "pip install 'eks-llm[simulate]'" in result.stderr


@pytest.mark.parametrize("name", ["llm-d", "step", "bursts"])
def test_recorded_scenarios_are_valid(name: str) -> None:
    from eks_llm.simulate.scenario import load, load_policy

    scenario = load(SCENARIOS / f"{name}.yaml")
    for policy in ("copied", "front-door", "pods-only"):
        load_policy(SCENARIOS / f"{policy}.yaml", scenario, scenario.simulated_service())


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (changed("traffic.ramp", {"before": 1}), "traffic.ramp.after: required"),
        (changed("traffic", {}), "give one of stages, step, ramp, diurnal, bursts, csv, not none"),
        (changed("traffic.diurnal", {"low": 1, "high": 2}), "not step and diurnal"),
        (changed("traffic.step.after", -1), "traffic.step.after: -1"),
        (changed("traffic.step.at", "9h"), "at 32400s is after the end of the trace, duration"),
        (
            changed("traffic", {"ramp": {"before": 1, "after": 2, "at": "5m", "over": "10m", "duration": "10m"}}),
            "at 300s and over 600s go beyond the end of the trace, duration 600s",
        ),
        (
            changed("traffic", {"bursts": {"base": 1, "burst": 2, "every": "1m", "length": "5m", "duration": "1h"}}),
            "length 300s is more than every 60s: bursts would overlap",
        ),
        (
            changed("traffic", {"bursts": {"base": 1, "burst": 2, "every": "0s", "length": "0s", "duration": "1h"}}),
            "traffic.bursts.every: 0ms: at least 1s",
        ),
        (changed("traffic", {"csv": "none.csv"}), "none.csv: No such file"),
        (changed("service.podStart", "2"), "service.podStart: '2': write a number with a unit"),
        (changed("service.replica.measured", None), "give either estimated or measured"),
        (changed("service.replica.requestsPerSecond", 50), "more than prefill alone allows"),
        (
            changed("service.replica", {"promptTokens": 9, "outputTokens": 9, "estimated": {
                "model": "qwen3-32b", "instanceType": "p4d.24xlarge"}}),
            "qwen3-32b on 1 GPUs of p4d.24xlarge does not fit",
        ),
        (
            changed("service.replica", {"promptTokens": 9, "outputTokens": 9, "estimated": {
                "model": "qwen3-32", "instanceType": "p4d.24xlarge"}}),
            "did you mean 'qwen3-32b'?",
        ),
        (changed("scaling", None), "scaling: missing, and no --policy is given"),
        (changed("scaling.min", 0), "scaling.min: 0: at least 1 without frontDoor"),
        (changed("slos", {}), "slos: unknown key; did you mean 'slo'?"),
        ("traffic: [", "s.yaml: "),
    ],
)  # fmt: skip
def test_bad_scenarios_are_refused_by_key(tmp_path: Path, document: Any, message: str) -> None:
    result = run(write(tmp_path, "s.yaml", document))
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([1], "neither a ScaledObject nor a scaling section"),
        ({"kind": "Deployment"}, "kind: 'Deployment' is not ScaledObject"),
        ({"kind": "ScaledObject", "spec": {"triggers": []}}, "spec.triggers: none"),
        ({"scaling": {"min": 5, "max": 2}}, "max: 2: less than min 5"),
    ],
)
def test_bad_policies_are_refused_by_key(tmp_path: Path, document: Any, message: str) -> None:
    scenario = write(tmp_path, "s.yaml", SCENARIO)
    result = run(scenario, "--policy", write(tmp_path, "p.yaml", document))
    assert result.exit_code == 1
    assert message in result.stderr
