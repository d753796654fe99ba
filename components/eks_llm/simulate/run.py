"""A scenario from its file to its results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.problems import Problem
from ..sizing.replica import Capacity
from .advice import advice, capacity
from .keda import Autoscaler
from .report import Outcome
from .scenario import ScenarioError, load, load_policy, load_trace, policy
from .simulate import Service, simulate
from .traffic import Trace


@dataclass(frozen=True)
class Run:
    """What was simulated, and what came out."""

    service: Service
    trace: Trace
    capacity: Capacity
    outcomes: list[Outcome]


def run(path: Path, policies: list[Path]) -> Run:
    """Simulates the scenario in `path` with each policy, or with its own. Raises `ValueError` with every problem."""
    scenario = load(path)
    try:
        service = scenario.simulated_service()
    except ValueError as error:
        raise ScenarioError(path, [Problem("service.replica", str(error))]) from None
    chosen: list[tuple[str, dict[str, Any], Autoscaler]] = [
        (file.stem, *load_policy(file, scenario, service)) for file in policies
    ]
    if not chosen:
        if scenario.scaling is None:
            raise ScenarioError(path, [Problem("scaling", "missing, and no --policy is given")])
        chosen = [("scaling", *policy(scenario.scaling.model_dump(exclude_unset=True), path, scenario, service))]
    trace = load_trace(path, scenario)
    outcomes = [
        Outcome(name, simulate(trace, service, scaler, scenario.seed), tuple(advice(manifest, scaler, service)))
        for name, manifest, scaler in chosen
    ]
    return Run(service, trace, capacity(service), outcomes)
