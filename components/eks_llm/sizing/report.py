"""The whole answer for a stack: `size` checks validity, parallelism, memory, capacity, quotas and cost."""

import datetime
from dataclasses import dataclass

from .capacity import Capacity, capacity
from .cost import Cost, cost
from .memory import Fit, Verdict, fit
from .needs import Needs
from .own_prices import OwnPrices
from .parallelism import problem
from .policy import Policy
from .stack import Pool, Service, Stack
from .suggest import suggestions
from .validity import Finding, problems

SAFE_UTILIZATION = 0.95
"""Share of a GPU's visible memory that vLLM's budget may take; the rest is for CUDA contexts."""


@dataclass(frozen=True)
class Report:
    """What a stack needs and costs, and what is wrong with it."""

    stack: Stack
    fits: dict[str, Fit]
    """Memory of each service that can be calculated, by name."""
    capacity: Capacity
    cost: Cost
    findings: tuple[Finding, ...]
    policies: tuple[Policy, ...] = ()
    """How the services scale, where the caller knows."""
    needs: Needs | None = None
    """The sum of the components' answers, where the stack was made of them."""

    @property
    def errors(self) -> list[Finding]:
        """What keeps the stack from running."""
        return [finding for finding in self.findings if finding.error]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.error]


def size(stack: Stack, now: datetime.datetime) -> Report:
    """Sizes `stack` as of `now` (with a time zone). Never raises for what a stack file can say: see `findings`."""
    pools = {pool.name: pool for pool in stack.pools}
    fits: dict[str, Fit] = {}
    findings: list[Finding] = []
    for service in stack.services:
        memory, found = service_fit(service, pools[service.pool], stack.region, stack.prices)
        findings += found
        if memory:
            fits[service.name] = memory
    asked = capacity(stack, now)
    bill = cost(stack, asked, fits, now.date())
    return Report(stack, fits, asked, bill, (*findings, *asked.findings, *bill.findings))


def service_fit(
    service: Service, pool: Pool, region: str, prices: OwnPrices | None = None
) -> tuple[Fit | None, list[Finding]]:
    """The memory of one service on its pool, and what is wrong with it; None where nothing can be calculated."""
    path = f"services.{service.name}"
    found = problems(service.shape, pool.gpu, service.quantization, service.engine.kv_cache_dtype, path)
    illegal = problem(service.shape, service.tensor_parallel, pool.instance, service.pipeline_parallel)
    if illegal:
        found.append(Finding(f"{path}.tensorParallel", illegal, error=True))
    if service.engine.max_model_len > service.shape.max_position:
        found.append(
            Finding(
                f"{path}.engine.maxModelLen",
                f"{service.engine.max_model_len:,} is more than the {service.shape.max_position:,} tokens that "
                f"{service.model} takes",
                error=True,
            )
        )
    if service.engine.gpu_memory_utilization > SAFE_UTILIZATION:
        found.append(
            Finding(
                f"{path}.engine.gpuMemoryUtilization",
                f"{service.engine.gpu_memory_utilization:g} leaves little beside vLLM's budget, of which CUDA contexts "
                f"take some: vLLM refuses to start when less than its budget is free; use {SAFE_UTILIZATION:g} or less",
            )
        )
    if any(finding.error for finding in found):
        return None, found
    try:
        memory = fit(
            service.model,
            service.shape,
            pool.gpu,
            service.engine,
            quantization=service.quantization,
            tensor_parallel=service.tensor_parallel,
            pipeline_parallel=service.pipeline_parallel,
        )
    except ValueError as error:
        return None, [*found, Finding(path, f"memory not checked: {error}")]
    if memory.verdict is Verdict.DOES_NOT_FIT:
        accepted = "accepted by acceptMemory: " if service.accept_memory else ""
        reason = f"{accepted}{refusal(memory, service, pool, region, prices)}"
        found.append(Finding(path, reason, error=not service.accept_memory))
    elif memory.verdict is Verdict.MARGINAL:
        found.append(Finding(path, memory.summary))
    return memory, found


def refusal(memory: Fit, service: Service, pool: Pool, region: str, prices: OwnPrices | None = None) -> str:
    """Why a service does not fit, one term a line, and what would make it fit, best first."""
    lines = [
        f"{service.model} does not fit on {service.gpus} x {pool.gpu.name} (GiB per GPU):",
        *(f"  {row}" for row in memory.arithmetic()),
    ]
    found = suggestions(service, pool, region, prices=prices)
    lines.append("what would fit:" if found else _nothing_fits(memory))
    return "\n".join([*lines, *(f"  - {suggestion}" for suggestion in found)])


def _nothing_fits(memory: Fit) -> str:
    """Why no other GPU would help: a setting that no memory can satisfy, else the model."""
    engine, visible = memory.engine, memory.gpu.visible_gib
    if memory.weights > memory.budget and memory.weights < SAFE_UTILIZATION * visible:
        used = engine.gpu_memory_utilization
        return f"gpuMemoryUtilization {used:g} leaves too little of {visible:g} GiB; the default is 0.92"
    if memory.activation > SAFE_UTILIZATION * visible:
        return f"no GPU has room for that many; lower maxNumSeqs ({engine.max_num_seqs:,}) or maxNumBatchedTokens"
    return "no GPU of the catalogue holds it at this parallelism and format"
