"""What to change so that a service fits: the smallest changes, best first, each with its cost."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..catalog.instances import GPUS, INSTANCES
from .cost import HOURS, buyable, rate
from .memory import Fit, Verdict, fit
from .own_prices import OwnPrices
from .parallelism import legal_sizes, problem
from .stack import Pool, Service
from .validity import problems

EIGHT_BITS = ("fp8", "int8", "fp8-weight-only")
"""Formats of one size; the first that the GPU takes is proposed, then AWQ (GPTQ is of its size)."""
KINDS = ("tensorParallel", "quantization", "engine.maxModelLen", "engine.maxNumSeqs", "instanceType")
"""Settings to change, in the order of preference: what leaves the answers as they are comes first."""
SMALLEST_USEFUL_LEN = 2048
"""Do not propose to shorten requests below this, tokens."""


@dataclass(frozen=True)
class Suggestion:
    """A change that makes the service fit."""

    changes: tuple[tuple[str, str], ...]
    """Settings and their new values, e.g. `("tensorParallel", "8")`."""
    fit: Fit
    usd_month: float | None
    """GPUs of one replica, USD per month; None: the price is not known."""
    usd_before: float | None

    def __str__(self) -> str:
        what = " and ".join(f"{key}: {value}" for key, value in self.changes)
        return f"{what}: {self.fit.summary}{self._cost()}"

    def _cost(self) -> str:
        if self.usd_month is None:
            return ""
        if self.usd_before is None:
            return f"; {self.usd_month:,.0f} USD a month and replica"
        change = self.usd_month - self.usd_before
        what = "no change" if abs(change) < 1 else f"{change:+,.0f}"
        return f"; {self.usd_month:,.0f} USD a month and replica ({what})"


def suggestions(
    service: Service, pool: Pool, region: str, limit: int = 5, prices: OwnPrices | None = None
) -> list[Suggestion]:
    """Up to `limit` changes that make `service` fit: one setting before two or another pool; then by kind and cost.

    What fits only marginally comes last. Changes that hold fewer requests than a replica is meant to have in flight
    are left out where others hold them.
    """
    before = _usd(pool.instance_type, region, pool.capacity, service.gpus, prices)
    found: list[tuple[tuple[int, int, float], bool, Suggestion]] = []
    candidates = [*_candidates(service, pool), *_elsewhere(service, pool, region, prices)]
    for changes, changed, instance_type in candidates:
        memory = fit(
            service.model,
            service.shape,
            GPUS[INSTANCES[instance_type].gpu],
            changed.engine,
            quantization=changed.quantization,
            tensor_parallel=changed.tensor_parallel,
            pipeline_parallel=changed.pipeline_parallel,
        )
        if memory.verdict is Verdict.DOES_NOT_FIT:
            continue
        capacity = pool.capacity if instance_type == pool.instance_type else "onDemand"
        usd = _usd(instance_type, region, capacity, changed.gpus, prices)
        kind = KINDS.index(changes[0][0])
        size = 2 if len(changes) > 1 or instance_type != pool.instance_type else 1
        rank = (size, kind, float("inf") if usd is None else usd)
        typical = min(service.typical, changed.engine.max_model_len)
        enough = memory.concurrency(typical) >= (service.in_flight or 1)
        found.append((rank, enough, Suggestion(changes, memory, usd, before)))
    found.sort(key=lambda item: item[0])
    ranked = [suggestion for _, enough, suggestion in found if enough] or [suggestion for *_, suggestion in found]
    return sorted(_spread(ranked), key=lambda item: item.fit.verdict is Verdict.MARGINAL)[:limit]


def _candidates(service: Service, pool: Pool) -> Iterator[tuple[tuple[tuple[str, str], ...], Service, str]]:
    """Changes on the same instance type."""
    here = pool.instance_type
    larger = [size for size in legal_sizes(service.shape, pool.instance.gpus) if size > service.tensor_parallel]
    larger = [size for size in larger if not pool.instance.gpus % size]
    for size in larger:
        yield (("tensorParallel", str(size)),), replace(service, tensor_parallel=size), here
    formats = [name for name in EIGHT_BITS if _can(service, pool, name)][:1]
    formats += ["awq"] if _can(service, pool, "awq") else []
    for name in formats:
        yield (("quantization", name),), replace(service, quantization=name), here
    yield from _shorter(service, pool)
    if service.engine.max_num_seqs > 64:
        engine = replace(service.engine, max_num_seqs=64)
        yield (("engine.maxNumSeqs", "64"),), replace(service, engine=engine), here
    sizes = [size for size in legal_sizes(service.shape, pool.instance.gpus) if not pool.instance.gpus % size]
    for name in formats:
        for size in sizes:
            if size != service.tensor_parallel:
                changed = replace(service, quantization=name, tensor_parallel=size)
                yield (("quantization", name), ("tensorParallel", str(size))), changed, here


def _shorter(service: Service, pool: Pool) -> Iterator[tuple[tuple[tuple[str, str], ...], Service, str]]:
    memory = fit(
        service.model,
        service.shape,
        pool.gpu,
        service.engine,
        quantization=service.quantization,
        tensor_parallel=service.tensor_parallel,
        pipeline_parallel=service.pipeline_parallel,
    )
    longest = memory.largest_max_model_len // 1024 * 1024
    if SMALLEST_USEFUL_LEN <= longest < service.engine.max_model_len:
        engine = replace(service.engine, max_model_len=longest)
        yield (("engine.maxModelLen", str(longest)),), replace(service, engine=engine), pool.instance_type


def _elsewhere(
    service: Service, pool: Pool, region: str, prices: OwnPrices | None
) -> Iterator[tuple[tuple[tuple[str, str], ...], Service, str]]:
    """Other instance types with the same settings: more memory per GPU, and links between GPUs as fast."""
    for name, instance in INSTANCES.items():
        gpu = GPUS[instance.gpu]
        roomier = gpu.visible_gib > pool.gpu.visible_gib and gpu.nvlink_gbs >= pool.gpu.nvlink_gbs
        if (
            not roomier
            or not buyable(name, region, prices)
            or problem(service.shape, service.tensor_parallel, instance, service.pipeline_parallel)
        ):
            continue
        if not _errors(service, instance.gpu, service.quantization):
            yield (("instanceType", name),), service, name


def _can(service: Service, pool: Pool, quantization: str) -> bool:
    return quantization != service.quantization and not _errors(service, pool.instance.gpu, quantization)


def _errors(service: Service, gpu: str, quantization: str) -> bool:
    found = problems(service.shape, GPUS[gpu], quantization, service.engine.kv_cache_dtype)
    return any(finding.error for finding in found)


def _usd(instance_type: str, region: str, capacity: str, gpus: int, prices: OwnPrices | None) -> float | None:
    price, _ = rate(instance_type, region, capacity, prices)
    return None if price is None else price * HOURS * gpus / INSTANCES[instance_type].gpus


def _spread(ranked: list[Suggestion]) -> list[Suggestion]:
    """Different kinds of changes before more of a kind, so that ten instance types do not fill the list."""
    first: list[Suggestion] = []
    rest: list[Suggestion] = []
    seen: set[tuple[str, ...]] = set()
    for suggestion in ranked:
        kind = tuple(key for key, _ in suggestion.changes)
        (rest if kind in seen else first).append(suggestion)
        seen.add(kind)
    return first + rest
