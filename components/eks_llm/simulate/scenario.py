"""The scenario file: traffic, service and policy as YAML, checked as a whole. docs/autoscaling.md describes it."""

import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from ..catalog.images import IMAGES
from ..catalog.instances import GPUS, INSTANCES
from ..catalog.models import MODELS
from ..core.faults import Fault
from ..core.model import Model
from ..core.problems import Problem, nearest, problems
from ..core.quantities import Duration
from ..core.strict_yaml import YamlError, read
from ..serving.limits import Limits
from ..serving.observability import Slo as SloSettings
from ..serving.scaling import Scaling, spec
from ..serving.targets import targets
from ..sizing.memory import Engine, fit
from ..sizing.replica import Replica, estimated
from . import traffic as shapes
from .keda import Autoscaler, PolicyError, autoscaler
from .replica import Routing, Slo
from .simulate import Service
from .traffic import Trace, TrafficError


class ScenarioError(ValueError):
    """A file that cannot be used, with every problem in it."""

    def __init__(self, path: Path, found: list[Problem]) -> None:
        super().__init__("\n".join(f"{path}: {problem}" for problem in found))


# Traffic ------------------------------------------------------------------------------------------------------------


class Arrivals(Enum):
    """How requests follow each other."""

    POISSON = "poisson"
    EVEN = "even"


class Stage(Model):
    duration: Duration
    rate: float = Field(ge=0)
    """Requests per second."""


class Step(Model):
    before: float = Field(ge=0)
    after: float = Field(ge=0)
    at: Duration
    duration: Duration
    """Of the whole trace."""

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.at > self.duration:
            raise ValueError(f"at {self.at} is after the end of the trace, duration {self.duration}")
        return self

    def rates(self) -> shapes.Rates:
        return shapes.stages([(float(self.at), self.before), (self.duration - self.at, self.after)])


class Ramp(Step):
    over: Duration
    """How long the rise takes, from `at`."""

    @model_validator(mode="after")
    def _rise_within(self) -> Self:
        if self.at + self.over > self.duration:
            raise ValueError(
                f"at {self.at} and over {self.over} go beyond the end of the trace, duration {self.duration}"
            )
        return self

    def rates(self) -> shapes.Rates:
        return shapes.ramp(self.before, self.after, self.at, self.over, self.duration)


class Diurnal(Model):
    low: float = Field(ge=0)
    high: float = Field(ge=0)
    peak_hour: float = Field(default=14, ge=0, lt=24)
    days: float = Field(default=1, gt=0)

    def rates(self) -> shapes.Rates:
        return shapes.diurnal(self.low, self.high, self.peak_hour, self.days)


class Bursts(Model):
    base: float = Field(ge=0)
    burst: float = Field(ge=0)
    every: Duration
    """At least 1 s."""
    length: Duration
    duration: Duration

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.length > self.every:
            raise ValueError(f"length {self.length} is more than every {self.every}: bursts would overlap")
        if self.every < 1:
            raise Fault("every", "{every}: at least 1s", every=self.every)
        return self

    def rates(self) -> shapes.Rates:
        return shapes.bursts(self.base, self.burst, self.every, self.length, self.duration)


class Traffic(Model):
    """One shape, or a CSV file."""

    stages: list[Stage] | None = Field(default=None, min_length=1)
    step: Step | None = None
    ramp: Ramp | None = None
    diurnal: Diurnal | None = None
    bursts: Bursts | None = None
    csv: Path | None = None
    arrivals: Arrivals = Arrivals.POISSON

    @model_validator(mode="after")
    def _one_shape(self) -> "Traffic":
        names = ("stages", "step", "ramp", "diurnal", "bursts", "csv")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(names)}, not {' and '.join(given) or 'none'}")
        return self

    def trace(self, folder: Path, seed: int) -> Trace:
        """Raises `TrafficError`."""
        random = np.random.default_rng(seed)
        if self.csv:
            return shapes.read_csv(folder / self.csv, random)
        return self._rates().trace(None if self.arrivals is Arrivals.EVEN else random)

    def _rates(self) -> shapes.Rates:
        shape = self.step or self.ramp or self.diurnal or self.bursts
        return shape.rates() if shape else shapes.stages([(s.duration, s.rate) for s in self.stages or []])


# Service ------------------------------------------------------------------------------------------------------------


class Estimate(Model):
    """A replica by catalogue and arithmetic, as `eks-llm plan` sizes it."""

    model: str
    instance_type: str
    tensor_parallel: int = Field(default=1, ge=1)
    quantization: str = "none"
    max_model_len: int = Field(default=8192, ge=1)
    max_num_seqs: int = Field(default=256, ge=1)
    max_num_batched_tokens: int = Field(default=2048, ge=1)

    @field_validator("model")
    @classmethod
    def _known_model(cls, value: str) -> str:
        if value not in MODELS:
            raise ValueError(f"unknown model{nearest(value, list(MODELS))}")
        return value

    @field_validator("instance_type")
    @classmethod
    def _known_type(cls, value: str) -> str:
        if value not in INSTANCES:
            raise ValueError(f"unknown GPU instance type{nearest(value, list(INSTANCES))}")
        return value

    def replica(self, prompt: float, output: float) -> Replica:
        shape, instance = MODELS[self.model], INSTANCES[self.instance_type]
        engine = Engine(
            vllm=IMAGES["triton"].vllm or "",
            max_model_len=self.max_model_len,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
        )
        found = fit(
            self.model,
            shape,
            GPUS[instance.gpu],
            engine,
            quantization=self.quantization,
            tensor_parallel=self.tensor_parallel,
        )
        if found.margin < 0:
            raise ValueError(f"{self.model} on {self.tensor_parallel} GPUs of {self.instance_type} {found.summary}")
        return estimated(shape, found, prompt, output)


class Measurement(Model):
    """A replica by its own figures."""

    prefill: Duration
    """Of one prompt, alone."""
    step: Duration
    """Time per token of a single request."""
    step_per_request: Duration
    """What each further request adds to it."""
    max_running: int = Field(ge=1)
    kv_tokens: int = Field(ge=1)
    """`GPU KV cache size` in the engine's log."""

    def replica(self, prompt: float, output: float) -> Replica:
        more = float(self.step_per_request)
        return Replica(prompt, output, float(self.prefill), self.step - more, more, self.max_running, self.kv_tokens)


class ReplicaSettings(Model):
    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    estimated: Estimate | None = None
    measured: Measurement | None = None
    requests_per_second: float | None = Field(default=None, gt=0)
    """Measured throughput of a full replica; the times per token are scaled to it."""

    @model_validator(mode="after")
    def _one_source(self) -> "ReplicaSettings":
        if (self.estimated is None) == (self.measured is None):
            raise ValueError("give either estimated or measured")
        return self

    def replica(self) -> Replica:
        source = next(source for source in (self.estimated, self.measured) if source)
        found = source.replica(self.prompt_tokens, self.output_tokens)
        return found.at(self.requests_per_second) if self.requests_per_second else found


class ServiceModel(Model):
    replica: ReplicaSettings
    pod_start: Duration
    gpus: int | None = Field(default=None, ge=1)
    """Of a replica. Default: `tensorParallel` of the estimate, else 1."""
    gpu_hour_usd: float | None = Field(default=None, gt=0)
    """Default: the on-demand price of the estimate's instance type in us-west-2, by GPU."""
    max_queued: int | None = Field(default=None, ge=0)
    request_timeout: Duration = Duration(300)
    routing: Routing = Routing.LEAST_REQUEST


class Scenario(Model):
    """What is simulated. `scaling` is the policy unless a file of its own is given."""

    traffic: Traffic
    service: ServiceModel
    slo: SloSettings = SloSettings()
    scaling: Scaling | None = None
    start: datetime.datetime = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
    """What second 0 is on the clock, for floors on a schedule. Default: a Monday, midnight UTC."""
    seed: int = 1

    @field_validator("start")
    @classmethod
    def _with_zone(cls, value: datetime.datetime) -> datetime.datetime:
        return value if value.tzinfo else value.replace(tzinfo=datetime.UTC)

    def simulated_service(self) -> Service:
        """Raises `ValueError` where the model does not fit."""
        given, estimate = self.service, self.service.replica.estimated
        price = given.gpu_hour_usd
        if price is None and estimate:
            instance = INSTANCES[estimate.instance_type]
            hour = instance.on_demand_usd.get("us-west-2")
            price = hour / instance.gpus if hour else None
        return Service(
            replica=given.replica.replica(),
            slo=Slo(
                None if self.slo.ttft_p99 is None else float(self.slo.ttft_p99),
                None if self.slo.tpot_p99 is None else float(self.slo.tpot_p99),
            ),
            pod_start=float(given.pod_start),
            gpus=given.gpus or (estimate.tensor_parallel if estimate else 1),
            gpu_hour_usd=price,
            max_queued=given.max_queued,
            timeout=float(given.request_timeout),
            routing=given.routing,
        )


# Files --------------------------------------------------------------------------------------------------------------


def load(path: Path) -> Scenario:
    """Raises `ScenarioError` with every problem of the file."""
    try:
        return Scenario.model_validate(_yaml(path))
    except ValidationError as error:
        raise ScenarioError(path, list(problems(error, Scenario))) from None


def policy(document: Any, where: Path, scenario: Scenario, service: Service) -> tuple[dict[str, Any], Autoscaler]:
    """A policy as a ScaledObject and its autoscaler: `document` is a ScaledObject, or a `scaling` section.

    Raises `ScenarioError`.
    """
    try:
        if not isinstance(document, dict):
            raise PolicyError("neither a ScaledObject nor a scaling section")
        if "kind" in document:
            manifest: dict[str, Any] = document
        else:
            scaling = Scaling.model_validate(document.get("scaling", document))
            manifest = scaled(scaling, service, scenario.slo)
        return manifest, autoscaler(manifest, scenario.start)
    except ValidationError as error:
        raise ScenarioError(where, list(problems(error, Scaling))) from None
    except PolicyError as error:
        raise ScenarioError(where, [Problem("", line) for line in str(error).splitlines()]) from None


def scaled(scaling: Scaling, service: Service, slo: SloSettings | None = None) -> dict[str, Any]:
    """The ScaledObject that the serving component would make for this service."""
    found = targets(scaling, Limits(), slo or SloSettings(), service.replica.max_running, service.replica)
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "spec": spec(
            "inference",
            "service",
            scaling,
            found.in_flight,
            pod_start=service.pod_start,
            prometheus_url="http://prometheus",
        ),
    }


def load_policy(path: Path, scenario: Scenario, service: Service) -> tuple[dict[str, Any], Autoscaler]:
    """Raises `ScenarioError`."""
    return policy(_yaml(path), path, scenario, service)


def load_trace(path: Path, scenario: Scenario) -> Trace:
    """The trace of a scenario read from `path`. Raises `ScenarioError`."""
    try:
        return scenario.traffic.trace(path.parent, scenario.seed)
    except TrafficError as error:
        raise ScenarioError(path, [Problem("traffic", str(error))]) from None


def _yaml(path: Path) -> Any:
    try:
        return read(path.read_text(encoding="utf-8"), times=False)
    except OSError as error:
        raise ScenarioError(path, [Problem("", error.strerror or str(error))]) from None
    except (YamlError, UnicodeDecodeError) as error:
        raise ScenarioError(path, [Problem("", str(error))]) from None
