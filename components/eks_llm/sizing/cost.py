"""What a stack costs: USD per month at its minimum, its maximum and as expected, and per million output tokens."""

import datetime
from dataclasses import dataclass

from ..catalog.eks import CONTROL_PLANE_USD, KUBERNETES
from ..catalog.instances import PRICES_DATE, InstanceType
from ..catalog.prices import DATE, PRICES, RegionPrices
from .capacity import Capacity, PoolBudget
from .memory import Fit
from .own_prices import FILE
from .performance import METHOD, latency
from .stack import Pool, Service, Stack
from .validity import Finding

HOURS = 730
"""Hours in a month, as AWS counts them."""
STALE_DAYS = 90


@dataclass(frozen=True)
class Line:
    """One position of the bill, USD per month."""

    what: str
    minimum: float
    expected: float
    maximum: float
    note: str = ""


@dataclass(frozen=True)
class ServiceCost:
    """A service's share of its pool."""

    service: str
    minimum: float
    expected: float
    maximum: float
    """USD per month for the GPUs of its replicas."""
    per_million_tokens: float | None
    """USD per million output tokens of a busy replica; None: the price is not known."""
    tokens_per_second: float
    assumption: str
    """Where the rate comes from."""


@dataclass(frozen=True)
class Cost:
    """The bill."""

    lines: tuple[Line, ...]
    services: tuple[ServiceCost, ...]
    findings: tuple[Finding, ...]
    date: datetime.date
    """Of the oldest price of an instance."""

    @property
    def minimum(self) -> float:
        return sum(line.minimum for line in self.lines)

    @property
    def expected(self) -> float:
        return sum(line.expected for line in self.lines)

    @property
    def maximum(self) -> float:
        return sum(line.maximum for line in self.lines)


def hourly(instance: InstanceType, region: str, capacity: str = "onDemand") -> tuple[float | None, str]:
    """USD per hour of an instance and what kind of price that is; None: not known.

    Spot is the middle of the range seen. A reservation costs what on-demand does, used or not.
    """
    if capacity == "spot" and instance.spot_usd:
        low, high = instance.spot_usd
        return (low + high) / 2, f"spot, seen from {low:g} to {high:g} an hour"
    if capacity == "capacityBlock" and instance.capacity_block_usd:
        return instance.capacity_block_usd, f"Capacity Block price of {instance.capacity_block_date}, paid in advance"
    price = instance.on_demand_usd.get(region)
    kind = "on-demand" if capacity in ("onDemand", "reservation") else f"on-demand; no {capacity} price known"
    if f"onDemandUsd.{region}" in instance.unverified:
        kind += ", taken from us-east-1"
    return price, kind


def cost(stack: Stack, capacity: Capacity, fits: dict[str, Fit], today: datetime.date) -> Cost:
    """The bill of `stack`. `fits` has the memory of each service by name, for the token rate."""
    dated = _date(stack)
    findings = _age(dated, today)
    lines: list[Line] = []
    rates: dict[str, float | None] = {}
    for budget in capacity.pools:
        price, note = _pool_price(stack, budget.pool)
        rates[budget.pool.name] = price
        if price is None:
            findings.append(
                Finding(
                    f"gpuPools.{budget.pool.name}.instanceType",
                    f"no price of {budget.pool.instance_type} in {stack.region} is known, so the bill lacks it",
                )
            )
        else:
            lines.append(_pool_line(budget, price, note))
    prices = PRICES.get(stack.region)
    if prices:
        lines += _platform(stack, prices, capacity, findings)
    else:
        findings.append(
            Finding("aws:region", f"no prices of NAT, endpoints, volumes and system nodes in {stack.region}")
        )
    if stack.kubernetes_version:
        lines.append(_control_plane(stack, today, findings))
    services = tuple(
        _service(service, fits[service.name], rates.get(service.pool), _pool(stack, service))
        for service in stack.services
        if service.name in fits
    )
    return Cost(tuple(lines), services, tuple(findings), dated)


def _pool(stack: Stack, service: Service) -> Pool:
    return next(pool for pool in stack.pools if pool.name == service.pool)


def _pool_price(stack: Stack, pool: Pool) -> tuple[float | None, str]:
    own = stack.own_price(pool.instance_type, pool.capacity)
    if own is not None and stack.prices:
        return own, f"{FILE} of {stack.prices.date}"
    return hourly(pool.instance, stack.region, pool.capacity)


def _pool_line(budget: PoolBudget, price: float, note: str) -> Line:
    pool = budget.pool
    low = min(pool.max_nodes, max(pool.min_nodes, budget.nodes_for_min))
    high = min(pool.max_nodes, max(pool.min_nodes, budget.nodes_for_max))
    month = price * HOURS
    if pool.capacity in ("reservation", "capacityBlock"):
        low = high = pool.max_nodes  # paid for whether nodes run or not
    expected = high if low == high else budget.nodes_expected
    what = (
        f"{pool.name}: {low} to {high} x {pool.instance_type}"
        if low != high
        else f"{pool.name}: {low} x {pool.instance_type}"
    )
    return Line(what, low * month, expected * month, high * month, f"{price:g} an hour, {note}")


def _platform(stack: Stack, prices: RegionPrices, capacity: Capacity, findings: list[Finding]) -> list[Line]:
    lines: list[Line] = []
    low, high = stack.system_nodes
    node = stack.own_price(stack.system_node_type) or prices.nodes.get(stack.system_node_type)
    if high and node is None:
        findings.append(
            Finding("cluster.systemNodes", f"no price of {stack.system_node_type} is known, so the bill lacks it")
        )
    elif high and node:
        what = f"system nodes: {low} to {high} x {stack.system_node_type}"
        lines.append(Line(what, low * node * HOURS, low * node * HOURS, high * node * HOURS, f"{node:g} an hour"))
    if stack.nat_gateways:
        fixed, traffic = stack.nat_gateways * prices.nat_hour * HOURS, stack.nat_gb_month * prices.nat_gb
        note = f"{stack.nat_gateways}, with {stack.nat_gb_month:g} GB a month"
        lines.append(Line("NAT gateways", fixed, fixed + traffic, fixed + traffic, note))
    if stack.endpoint_interfaces:
        month = stack.endpoint_interfaces * prices.endpoint_hour * HOURS
        lines.append(Line("interface endpoints", month, month, month, f"{stack.endpoint_interfaces}, traffic excluded"))
    low_gib = high_gib = 0.0
    for budget in capacity.pools:
        each = _volume(budget.pool, prices)
        low_gib += max(budget.pool.min_nodes, budget.nodes_for_min) * each
        high_gib += budget.pool.max_nodes * each
    fixed = stack.volumes_gib * prices.gp3_gb_month
    lines.append(Line("EBS volumes", fixed + low_gib, fixed + (low_gib + high_gib) / 2, fixed + high_gib, "gp3"))
    return lines


def _volume(pool: Pool, prices: RegionPrices) -> float:
    """A node's root volume, USD per month."""
    return (
        pool.root_volume_gib * prices.gp3_gb_month
        + max(0, pool.root_volume_mbps - 125) * prices.gp3_mbps_month
        + max(0, pool.root_volume_iops - 3000) * prices.gp3_iops_month
    )


def _control_plane(stack: Stack, today: datetime.date, findings: list[Finding]) -> Line:
    version = KUBERNETES.get(stack.kubernetes_version)
    standard, extended = CONTROL_PLANE_USD["standard"], CONTROL_PLANE_USD["extended"]
    if version and today >= version.standard_until:
        findings.append(
            Finding(
                "cluster.version",
                f"{stack.kubernetes_version} is in extended support since {version.standard_until}: the control plane "
                f"costs {(extended - standard) * HOURS:,.0f} USD a month more",
            )
        )
        month = extended * HOURS
        return Line("EKS control plane", month, month, month, "extended support")
    month = standard * HOURS
    return Line("EKS control plane", month, month, month, "standard support")


def _service(service: Service, fit: Fit, price: float | None, pool: Pool) -> ServiceCost:
    rate, assumption = token_rate(service, fit)
    replica = (price or 0.0) * service.gpus / pool.instance.gpus
    return ServiceCost(
        service=service.name,
        minimum=service.min_replicas * replica * HOURS,
        expected=service.expected * replica * HOURS,
        maximum=service.max_replicas * replica * HOURS,
        per_million_tokens=replica / (rate * 3600) * 1e6 if price and rate else None,
        tokens_per_second=rate,
        assumption=assumption,
    )


def token_rate(service: Service, fit: Fit) -> tuple[float, str]:
    """Output tokens per second of a full replica, and where the figure comes from."""
    if service.tokens_per_second:
        return service.tokens_per_second, "measured"
    batch = min(service.in_flight or service.engine.max_num_seqs, int(fit.concurrency(service.typical)))
    if batch < 1:
        return 0.0, "does not fit"
    output = max(1, service.typical // 4)
    prompt = max(1, service.typical - output)
    seen = latency(service.shape, fit, batch, prompt=prompt, longest_prompt=prompt, output=output)
    return seen.tokens_per_second, f"{METHOD}, {batch} requests of {prompt:,} tokens in and {output:,} out"


def _date(stack: Stack) -> datetime.date:
    """Of the owner's prices where they cover every pool, else of the catalogue's."""
    if stack.prices and all(stack.own_price(pool.instance_type, pool.capacity) is not None for pool in stack.pools):
        return stack.prices.date
    return min(DATE, datetime.date.fromisoformat(PRICES_DATE))


def _age(dated: datetime.date, today: datetime.date) -> list[Finding]:
    days = (today - dated).days
    if days <= STALE_DAYS:
        return []
    return [Finding("cost", f"prices are of {dated}, {days} days old; renew them: eks-llm prices refresh")]
