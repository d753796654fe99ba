"""Where to run a model for a given load: placements ranked by cost, with fit and estimated latency."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from ..catalog.instances import GPUS, INSTANCES
from ..catalog.models import ModelShape
from .cost import HOURS, buyable, rate
from .memory import Engine, Fit, Verdict, fit
from .own_prices import OwnPrices
from .parallelism import legal_sizes
from .performance import Latency, latency
from .validity import problems

FORMATS = ("none", "awq", "int8", "fp8")
MOST_STREAMS = 256
"""Streams of one replica at most: the engine's `max_num_seqs` that is proposed."""
MOST_NODES = 450
"""Nodes of a managed node group at most. Source: EKS service quotas."""
MOST_NAME = 30
"""Characters of a proposed service's name; a stack file takes 40."""


@dataclass(frozen=True)
class Workload:
    """What is to be served."""

    streams: int
    """Requests under way at once."""
    prompt_tokens: int
    """Mean."""
    longest_prompt: int
    output_tokens: int
    """Mean."""
    longest_output: int
    ttft_p99: float | None = None
    """Time to the first token that 99 % must meet, seconds; None: any."""
    tpot_p99: float | None = None
    """Time per further token, likewise."""

    @property
    def typical_tokens(self) -> int:
        """Of a mean request."""
        return self.prompt_tokens + self.output_tokens

    @property
    def max_model_len(self) -> int:
        """Longest request, rounded up to a multiple of 1,024."""
        return ceil((self.longest_prompt + self.longest_output) / 1024) * 1024


@dataclass(frozen=True)
class Placement:
    """A way to serve the workload."""

    instance_type: str
    quantization: str
    tensor_parallel: int
    replicas: int
    nodes: int
    streams_per_replica: int
    fit: Fit
    latency: Latency
    usd_month: float
    """All nodes, on demand."""
    usd_month_gpus: float
    """Only the GPUs that the replicas use; the rest of the nodes is free for other services."""

    @property
    def usd_per_million_tokens(self) -> float:
        rate = self.latency.tokens_per_second * self.replicas
        return self.usd_month_gpus / (rate * 3600 * HOURS) * 1e6

    def stack_file(self, model: str, region: str, workload: Workload, config_json: str = "") -> str:
        """The part of a stack file that asks for it, indented to stand below `platform:`.

        ZONE and BUCKET are left to the user. `config_json` is the file of a model that is not in the catalogue.
        """
        service = re.sub(r"[^a-z0-9]+", "-", model.removesuffix("-instruct").lower()).strip("-")
        service = service if service[:1].isalpha() else f"m-{service}"
        folder = model if self.quantization == "none" else f"{model}-{self.quantization}"
        engine = self.fit.engine
        targets = {"ttftP99": workload.ttft_p99, "tpotP99": workload.tpot_p99}
        slo = ", ".join(f"{key}: {value * 1000:g}ms" for key, value in targets.items() if value)
        lines = [
            "gpuPools:",
            "  gpu:",
            f"    instanceType: {self.instance_type}",
            f"    zone: ZONE  # one of network.zones in {region} that offers {self.instance_type}",
            f"    nodes: {{min: {self.nodes}, max: {self.nodes}}}",
            "services:",
            f"  {service[:MOST_NAME]}:",
            f"    model: {model}",
            f"    modelShape: {{configJson: {config_json}}}" if config_json else "",
            f"    quantization: {self.quantization}",
            f"    weights: s3://BUCKET/{folder}/  # weights.bucket, where you put the model's files",
            "    pool: gpu",
            "    runtime: openai",
            f"    tensorParallel: {self.tensor_parallel}",
            f"    engine: {{maxModelLen: {engine.max_model_len}, maxNumSeqs: {engine.max_num_seqs}, "
            f"maxNumBatchedTokens: {engine.max_num_batched_tokens}}}",
            f"    scaling: {{min: {self.replicas}, max: {self.replicas}, "
            f"inFlightPerReplica: {self.streams_per_replica}}}",
            f"    expected: {{tokensPerRequest: {workload.typical_tokens}}}",
            f"    slo: {{{slo}}}" if slo else "",
        ]
        return "".join(f"    {line}\n" for line in lines if line)


def cheapest_per_type(found: list[Placement]) -> list[Placement]:
    """The first placement of each instance type; `found` is ranked."""
    first: dict[str, Placement] = {}
    for placement in found:
        first.setdefault(placement.instance_type, placement)
    return list(first.values())


def advise(
    model: str,
    shape: ModelShape,
    workload: Workload,
    *,
    region: str,
    vllm: str,
    utilization: float = 0.92,
    spare_replicas: int = 0,
    prices: OwnPrices | None = None,
) -> list[Placement]:
    """Placements of `shape` that fit and meet the workload's targets by estimate, cheapest first.

    `spare_replicas` are added to what the load needs; `prices` replace the catalogue's.

    Raises `ValueError` for values below one, or a request longer
    than the model takes. An empty list: nothing in the catalogue with a price in `region` does it.
    """
    for name in ("streams", "prompt_tokens", "longest_prompt", "output_tokens", "longest_output"):
        if getattr(workload, name) < 1:
            raise ValueError(f"{name}: {getattr(workload, name)} is not at least 1")
    longest = workload.longest_prompt + workload.longest_output
    if longest > shape.max_position:
        raise ValueError(f"requests of {longest:,} tokens: {model} takes {shape.max_position:,} at most")
    engine = Engine(vllm, min(workload.max_model_len, shape.max_position), MOST_STREAMS, 2048, utilization)
    tried = (
        _placement(model, shape, workload, engine, candidate, region=region, spare=spare_replicas, prices=prices)
        for candidate in _candidates(shape, region, prices)
    )
    found = [placement for placement in tried if placement]
    return sorted(found, key=lambda placement: (placement.usd_month, placement.usd_month_gpus))


def _candidates(shape: ModelShape, region: str, prices: OwnPrices | None) -> Iterator[tuple[str, str, int]]:
    for name, instance in INSTANCES.items():
        if not buyable(name, region, prices):
            continue
        for quantization in FORMATS:
            if any(finding.error for finding in problems(shape, GPUS[instance.gpu], quantization)):
                continue
            for size in legal_sizes(shape, instance.gpus):
                if not instance.gpus % size:
                    yield name, quantization, size


def _placement(
    model: str,
    shape: ModelShape,
    workload: Workload,
    engine: Engine,
    candidate: tuple[str, str, int],
    *,
    region: str,
    spare: int,
    prices: OwnPrices | None,
) -> Placement | None:
    instance_type, quantization, size = candidate
    instance = INSTANCES[instance_type]
    memory = fit(model, shape, GPUS[instance.gpu], engine, quantization=quantization, tensor_parallel=size)
    if memory.verdict is not Verdict.FITS:
        return None
    room = min(workload.streams, MOST_STREAMS, int(memory.concurrency(workload.typical_tokens)))
    streams = _most_streams(shape, memory, workload, room)
    if not streams:
        return None
    replicas = ceil(workload.streams / streams) + spare
    nodes = ceil(replicas / (instance.gpus // size))
    if nodes > MOST_NODES:
        return None
    price = rate(instance_type, region, prices=prices)[0] or 0.0
    return Placement(
        instance_type=instance_type,
        quantization=quantization,
        tensor_parallel=size,
        replicas=replicas,
        nodes=nodes,
        streams_per_replica=streams,
        fit=memory,
        latency=_latency(shape, memory, workload, ceil(workload.streams / replicas)),
        usd_month=nodes * price * HOURS,
        usd_month_gpus=replicas * size / instance.gpus * price * HOURS,
    )


def _latency(shape: ModelShape, memory: Fit, workload: Workload, streams: int) -> Latency:
    return latency(
        shape,
        memory,
        streams,
        prompt=workload.prompt_tokens,
        longest_prompt=workload.longest_prompt,
        output=workload.output_tokens,
    )


def _most_streams(shape: ModelShape, memory: Fit, workload: Workload, room: int) -> int:
    """The most streams of one replica that keep both targets, `room` at most; latency grows with each."""
    low, high = 0, room
    while low < high:
        middle = (low + high + 1) // 2
        seen = _latency(shape, memory, workload, middle)
        slow = (workload.ttft_p99 and seen.ttft_p99 > workload.ttft_p99) or (
            workload.tpot_p99 and seen.tpot_p99 > workload.tpot_p99
        )
        low, high = (low, middle - 1) if slow else (middle, high)
    return low
