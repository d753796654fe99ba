"""What scaling policies are worth: `./dev bench scaling`. Writes benchmarks/results/scaling.json, and the
tables and pictures of docs/autoscaling.md.

Every scenario of benchmarks/scaling/ with three policies: the copied one, ours with the pods' own signals, and ours
with a front door. The copied policy is given both the short queue of the scenario, which hides the demand from it, and
the engine's long one. Numbers are of a model, see docs/autoscaling.md; times are CPU seconds.
"""

import argparse
import copy
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.marked import replaced  # noqa: E402
from eks_llm.simulate import plot  # noqa: E402
from eks_llm.simulate.advice import advice, capacity  # noqa: E402
from eks_llm.simulate.replica import Routing  # noqa: E402
from eks_llm.simulate.report import Outcome  # noqa: E402
from eks_llm.simulate.scenario import Arrivals, Scenario, load, load_trace, policy  # noqa: E402
from eks_llm.simulate.simulate import Service, simulate  # noqa: E402
from eks_llm.simulate.traffic import Trace, read_csv  # noqa: E402

FOLDER = ROOT / "benchmarks" / "scaling"
RESULT = ROOT / "benchmarks" / "results" / "scaling.json"
PAGE = ROOT / "docs" / "autoscaling.md"
PICTURES = ROOT / "docs" / "images"
RANGES = {"llm-d": (3, 8), "step": (2, 10), "bursts": (2, 10), "day": (2, 40)}
"""Fewest and most replicas in each scenario."""
TITLES = {
    "llm-d": "llm-d's ramp, 2 to 10 to 1 requests/s",
    "step": "Three times the load at once",
    "bursts": "Bursts of four times the load",
    "day": "A day, 10 to 90 requests/s",
}
QUERY = "sum(rate(envoy_http_downstream_rq_total[1m]))"
ROWS = 10_000_000


def policies(name: str, service: Service) -> dict[str, tuple[Any, bool]]:
    """Each policy, and whether it gets the engine's long queue."""
    least, most = RANGES[name]
    found = capacity(service)
    ours = {
        "min": least,
        "max": most,
        "capacity": {"requestsPerSecond": round(found.requests_per_second, 3), "inFlight": found.in_flight},
    }
    copied = yaml.safe_load((FOLDER / "copied.yaml").read_text())
    copied["spec"] |= {"minReplicaCount": least, "maxReplicaCount": most}
    return {
        "copied": (copied, True),
        "copied, short queue": (copy.deepcopy(copied), False),
        "ours, pods only": (ours, False),
        "ours, front door": ({**ours, "frontDoor": {"query": QUERY}}, False),
    }


def outcome(name: str, document: Any, trace: Trace, service: Service) -> tuple[Outcome, float]:
    scenario = load(FOLDER / "llm-d.yaml")
    manifest, scaler = policy(document, FOLDER, scenario, service)
    begin = time.process_time()
    result = simulate(trace, service, scaler)
    return Outcome(name, result, tuple(advice(manifest, scaler, service))), time.process_time() - begin


def scenario(name: str) -> tuple[list[dict[str, Any]], str]:
    """The results of all policies, and the picture of three."""
    settings = load(FOLDER / f"{name}.yaml")
    service, trace = settings.simulated_service(), load_trace(FOLDER / f"{name}.yaml", settings)
    long = replace(service, max_queued=None)
    seen: list[Outcome] = []
    rows: list[dict[str, Any]] = []
    for title, (document, queue) in policies(name, service).items():
        found, seconds = outcome(title, document, trace, long if queue else service)
        seen.append(found)
        result = found.result
        rows.append(
            {
                "scenario": name,
                "policy": title,
                "requests": trace.requests,
                "attainment": round(result.attainment, 4),
                "meanReplicas": round(result.mean_replicas(), 2),
                "meanReplicasUntilMinimum": round(result.mean_replicas(result.back_at_minimum), 2),
                "mostWanted": int(result.desired.max()),
                "gpuHours": round(result.gpu_hours, 1),
                "costUsd": None if result.cost_usd is None else round(result.cost_usd, 2),
                "worstWaitSeconds": round(result.counts.worst_wait, 1),
                "cpuSeconds": round(seconds, 1),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows, plot.svg([seen[0], seen[2], seen[3]], service, TITLES[name])


def surroundings() -> list[dict[str, Any]]:
    """What queue and routing do to the step, under our policy with a front door."""
    settings = load(FOLDER / "step.yaml")
    service, trace = settings.simulated_service(), load_trace(FOLDER / "step.yaml", settings)
    document, _ = policies("step", service)["ours, front door"]
    cases = {
        "short queue, least request": service,
        "long queue, least request": replace(service, max_queued=None),
        "short queue, random": replace(service, routing=Routing.RANDOM),
        "long queue, random": replace(service, max_queued=None, routing=Routing.RANDOM),
    }
    rows: list[dict[str, Any]] = []
    for name, case in cases.items():
        result = outcome(name, document, trace, case)[0].result
        missed = result.times[(result.times >= 600) & (result.missed > 0.02 * result.arrivals)]
        rows.append(
            {
                "case": name,
                "attainment": round(result.attainment, 4),
                "missesLastSeconds": int(missed[-1] - 600),
                "mostWanted": int(result.desired.max()),
                "meanReplicas": round(result.mean_replicas(), 2),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def random_trace(settings: Scenario, seed: int) -> Trace:
    return settings.traffic.model_copy(update={"arrivals": Arrivals.POISSON}).trace(FOLDER, seed)


def headroom(seeds: int = 6) -> list[dict[str, Any]]:
    """llm-d's ramp over the two shares of a replica's capacity that the thresholds take, at random arrivals."""
    settings = load(FOLDER / "llm-d.yaml")
    service = settings.simulated_service()
    found = capacity(service)
    rows: list[dict[str, Any]] = []
    for rate_share in (0.7, 0.8, 0.9):
        for in_flight_share in (0.6, 0.7, 0.8):
            document = {
                "min": 3,
                "max": 8,
                "inFlightPerReplica": int(found.in_flight * in_flight_share),
                "frontDoor": {"query": QUERY, "requestsPerReplica": found.requests_per_second * rate_share},
            }
            results = [outcome("", document, random_trace(settings, seed), service)[0].result for seed in range(seeds)]
            rows.append(
                {
                    "rateShare": rate_share,
                    "inFlightShare": in_flight_share,
                    "attainment": round(float(np.mean([r.attainment for r in results])), 4),
                    "worstAttainment": round(min(r.attainment for r in results), 4),
                    "meanReplicas": round(float(np.mean([r.mean_replicas() for r in results])), 2),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    return rows


def ten_million_rows() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        np.savetxt(path, np.arange(ROWS) / 50, fmt="%.2f", header="seconds", comments="")
        begin = time.process_time()
        trace = read_csv(path, np.random.default_rng(1))
        return {"rows": ROWS, "requests": trace.requests, "cpuSeconds": round(time.process_time() - begin, 1)}


COLUMNS: dict[str, list[tuple[str, str]]] = {
    "scenarios": [
        ("scenario", "{scenario}"),
        ("policy", "{policy}"),
        ("within SLO", "{attainment:.1%}"),
        ("replicas", "{meanReplicas:.2f}"),
        ("until back at minimum", "{meanReplicasUntilMinimum:.2f}"),
        ("most wanted", "{mostWanted}"),
        ("GPU hours", "{gpuHours:,.1f}"),
        ("USD", "{costUsd:,.0f}"),
    ],
    "surroundings": [
        ("queue and routing", "{case}"),
        ("within SLO", "{attainment:.1%}"),
        ("last misses, after the step", "{missesLastSeconds} s"),
        ("most wanted", "{mostWanted}"),
        ("replicas", "{meanReplicas:.2f}"),
    ],
    "headroom": [
        ("of the rate", "{rateShare}"),
        ("of the requests in flight", "{inFlightShare}"),
        ("within SLO", "{attainment:.1%}"),
        ("worst run", "{worstAttainment:.1%}"),
        ("replicas", "{meanReplicas:.2f}"),
    ],
}


def write_tables(document: dict[str, Any]) -> None:
    tables: dict[str, str] = {}
    for name, columns in COLUMNS.items():
        lines = [[title for title, _ in columns], ["---"] * len(columns)]
        lines += [[show.format(**row) for _, show in columns] for row in document[name]]
        tables[name] = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*RANGES, []], help="scenarios; default: all")
    names = parser.parse_args().names or list(RANGES)
    PICTURES.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in names:
        found, picture = scenario(name)
        rows += found
        (PICTURES / f"scaling-{name}.svg").write_text(picture, encoding="utf-8")
    if names == list(RANGES):
        document = {
            "scenarios": rows,
            "surroundings": surroundings(),
            "headroom": headroom(),
            "csv": ten_million_rows(),
        }
        RESULT.write_text(json.dumps(document, indent=2) + "\n")
        write_tables(document)


if __name__ == "__main__":
    main()
