"""What a stack costs: USD per month at its minimum, its maximum and as expected, and per million output tokens."""

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from ..catalog.instances import INSTANCES, PRICES_DATE, InstanceType
from ..catalog.nodes import NODES
from ..catalog.prices import DATE, PRICES, RegionPrices
from .capacity import Capacity, PoolBudget, offered
from .memory import Fit
from .own_prices import FILE, OwnPrices
from .performance import latency, method
from .stack import HOURS, USD, Charge, NodeGroup, Pool, Service, Stack
from .validity import Finding

STALE_DAYS = 90
NOT_KNOWN = "price not known"


@dataclass(frozen=True)
class Line:
    """One position of the bill, USD per month; None: the price is not known."""

    what: str
    minimum: float | None
    expected: float | None
    maximum: float | None
    note: str = ""


@dataclass(frozen=True)
class ServiceCost:
    """A service's share of its pool."""

    service: str
    minimum: float | None
    expected: float | None
    maximum: float | None
    """USD per month for the GPUs of its replicas; None: the price is not known."""
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
    def incomplete(self) -> bool:
        """Whether a price is missing, so that the sums are lower bounds."""
        return any(line.minimum is None for line in self.lines)

    @property
    def minimum(self) -> float:
        return sum(line.minimum or 0 for line in self.lines)

    @property
    def expected(self) -> float:
        return sum(line.expected or 0 for line in self.lines)

    @property
    def maximum(self) -> float:
        return sum(line.maximum or 0 for line in self.lines)


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


def rate(
    instance_type: str, region: str, capacity: str = "onDemand", prices: OwnPrices | None = None
) -> tuple[float | None, str]:
    """As `hourly`, but a price of one's own comes before the catalogue's."""
    own = prices.hourly(instance_type, region, capacity) if prices else None
    if own is not None and prices:
        return own, f"{FILE} of {prices.date}"
    return hourly(INSTANCES[instance_type], region, capacity)


def buyable(instance_type: str, region: str, prices: OwnPrices | None = None) -> bool:
    """Whether the type can be proposed: sold on demand, with a price, in a region that may offer it."""
    own = prices.hourly(instance_type, region) if prices else None
    instance = INSTANCES[instance_type]
    if own is not None:
        return instance.sold_on_demand
    return instance.sold_on_demand and region in instance.on_demand_usd and offered(instance, region)


def cost(stack: Stack, capacity: Capacity, fits: dict[str, Fit], today: datetime.date) -> Cost:
    """The bill of `stack`. `fits` has the memory of each service by name, for the token rate."""
    dates = list(_dates(stack))
    findings = [*_age(stack, today), *_misspelt(stack)]
    lines: list[Line] = []
    rates: dict[str, float | None] = {}
    for budget in capacity.pools:
        if not budget.pool.made:
            lines.append(_not_ours(budget.pool))
            continue
        price, note = rate(budget.pool.instance_type, stack.region, budget.pool.capacity, stack.prices)
        rates[budget.pool.name] = price
        if price is None:
            findings.append(
                Finding(
                    f"gpuPools.{budget.pool.name}.instanceType",
                    f"no price of {budget.pool.instance_type} in {stack.region} is known, so the bill lacks it",
                )
            )
        lines.append(_pool_line(budget, price, note))
    prices = PRICES.get(stack.region)
    for group in stack.node_groups:
        lines += _node_group(stack, group, prices, findings)
    lines += _charges(stack, prices, capacity)
    if prices is None and _buys(stack):
        findings.append(
            Finding("aws:region", f"no prices of NAT, endpoints, volumes and system nodes in {stack.region}")
        )
    services = tuple(
        _service(service, fits[service.name], rates.get(service.pool), _pool(stack, service))
        for service in stack.services
        if service.name in fits and _pool(stack, service).made
    )
    return Cost(tuple(lines), services, tuple(findings), min(dates))


def _pool(stack: Stack, service: Service) -> Pool:
    return next(pool for pool in stack.pools if pool.name == service.pool)


def _buys(stack: Stack) -> bool:
    """Whether anything of the stack is paid to AWS."""
    return bool(stack.charges or stack.node_groups) or any(pool.made for pool in stack.pools)


def _not_ours(pool: Pool) -> Line:
    what = f"{pool.name}: {pool.max_nodes} x {pool.instance_type}"
    return Line(what, 0, 0, 0, "of an existing cluster, so they are not in this stack's bill")


def _nodes(budget: PoolBudget) -> tuple[int, float, int]:
    """Nodes that run: fewest, expected and most."""
    pool = budget.pool
    low = min(pool.max_nodes, max(pool.min_nodes, budget.nodes_for_min))
    high = min(pool.max_nodes, max(pool.min_nodes, budget.nodes_for_max))
    return low, budget.nodes_expected, high


def _line(what: str, price: float | None, amounts: tuple[float, float, float], note: str) -> Line:
    """Amounts at `price`, USD per month and unit."""
    if price is None:
        return Line(what, None, None, None, NOT_KNOWN)
    low, expected, high = (amount * price for amount in amounts)
    return Line(what, low, expected, high, note)


def _pool_line(budget: PoolBudget, price: float | None, note: str) -> Line:
    pool = budget.pool
    low, expected, high = _nodes(budget)
    if pool.capacity in ("reservation", "capacityBlock"):
        low = high = pool.max_nodes  # paid for whether nodes run or not
    expected = high if low == high else expected
    what = (
        f"{pool.name}: {low} to {high} x {pool.instance_type}"
        if low != high
        else f"{pool.name}: {low} x {pool.instance_type}"
    )
    month = None if price is None else price * HOURS
    return _line(what, month, (low, expected, high), "" if price is None else f"{price:g} an hour, {note}")


def _node_group(stack: Stack, group: NodeGroup, prices: RegionPrices | None, findings: list[Finding]) -> Iterator[Line]:
    low, high, type_ = group.min_nodes, group.max_nodes, group.instance_type
    if not high:
        return
    node = stack.own_price(type_) or (prices.nodes.get(type_) if prices else None)
    if node is None:
        findings.append(Finding(group.path, f"no price of {type_} is known, so the bill lacks it"))
    note = "" if node is None else f"{node:g} an hour"
    what = f"{group.name}: {low} to {high} x {type_}"
    yield _line(what, None if node is None else node * HOURS, (low, low, high), note)


VOLUMES = "EBS volumes"


def _charges(stack: Stack, prices: RegionPrices | None, capacity: Capacity) -> Iterator[Line]:
    """A line for each position. The pools' root volumes, whose number follows from the services, are added here."""
    positions: dict[str, list[Charge]] = {}
    made = [budget for budget in capacity.pools if budget.pool.made]
    roots = [_root_volumes(budget, prices) for budget in made] if prices else []
    rest = [Charge(VOLUMES, USD if prices else "gp3_gb_month", 0, 0, 0, "gp3")] if made else []
    for charge in (*stack.charges, *roots, *rest):
        positions.setdefault(charge.what, []).append(charge)
    for what, charges in positions.items():
        rates = [1 if charge.price == USD else prices and getattr(prices, charge.price) for charge in charges]
        note = "; ".join(dict.fromkeys(charge.note for charge in charges if charge.note))
        if None in rates:
            yield Line(what, None, None, None, NOT_KNOWN)
            continue
        low, expected, high = (
            sum(getattr(charge, limit) * rate for charge, rate in zip(charges, rates, strict=True))
            for limit in ("minimum", "expected", "maximum")
        )
        yield Line(what, low, expected, high, note)


def _root_volumes(budget: PoolBudget, prices: RegionPrices) -> Charge:
    each = _volume(budget.pool, prices)
    low, expected, high = (nodes * each for nodes in _nodes(budget))
    return Charge(VOLUMES, USD, low, expected, high, "gp3")


def _volume(pool: Pool, prices: RegionPrices) -> float:
    """A node's root volume, USD per month."""
    return (
        pool.root_volume_gib * prices.gp3_gb_month
        + max(0, pool.root_volume_mbps - 125) * prices.gp3_mbps_month
        + max(0, pool.root_volume_iops - 3000) * prices.gp3_iops_month
    )


def _service(service: Service, fit: Fit, price: float | None, pool: Pool) -> ServiceCost:
    tokens, assumption = token_rate(service, fit)
    replica = None if price is None else price * service.gpus / pool.instance.gpus
    month = None if replica is None else replica * HOURS
    return ServiceCost(
        service=service.name,
        minimum=None if month is None else service.min_replicas * month,
        expected=None if month is None else service.expected * month,
        maximum=None if month is None else service.max_replicas * month,
        per_million_tokens=replica / (tokens * 3600) * 1e6 if replica and tokens else None,
        tokens_per_second=tokens,
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
    return (
        seen.tokens_per_second,
        f"{method(service.shape, fit)}, {batch} requests of {prompt:,} tokens in and {output:,} out",
    )


def _dates(stack: Stack) -> Iterator[datetime.date]:
    """When the price of each pool was valid: the owner's, else the catalogue's."""
    catalogue = min(DATE, datetime.date.fromisoformat(PRICES_DATE))
    for pool in stack.pools:
        if stack.prices and stack.own_price(pool.instance_type, pool.capacity) is not None:
            yield stack.prices.date
        elif _of_block(pool):
            yield datetime.date.fromisoformat(pool.instance.capacity_block_date)
        else:
            yield catalogue
    if not stack.pools:
        yield catalogue


def _of_block(pool: Pool) -> bool:
    return pool.capacity == "capacityBlock" and pool.instance.capacity_block_usd is not None


def _age(stack: Stack, today: datetime.date) -> list[Finding]:
    """Old prices, each kind with the way to renew it: the Pricing API knows no Capacity Blocks."""
    found: dict[str, Finding] = {}
    for pool, dated in zip(stack.pools, _dates(stack), strict=False):
        days = (today - dated).days
        if days <= STALE_DAYS or not pool.made:
            continue
        if pool.capacity == "capacityBlock":
            what, renew = f"the Capacity Block price of {pool.instance_type} is", f"write today's in {FILE}"
        else:
            what, renew = "prices are", f"renew them: eks-llm prices refresh --region {stack.region}"
        found[what] = Finding("cost", f"{what} of {dated}, {days} days old; {renew}")
    return list(found.values())


def _misspelt(stack: Stack) -> list[Finding]:
    """Own prices that nothing asks for."""
    if not stack.prices:
        return []
    groups = (name for group in stack.node_groups for name in group.instance_types)
    known = {*INSTANCES, *groups, *NODES, *(name for prices in PRICES.values() for name in prices.nodes)}
    return [
        Finding(FILE, f"{path}: {name!r} is no instance type that is known here, so its price counts for nothing"
                f"{_meant(name, known)}")
        for path, name in stack.prices.unknown(known)
    ]  # fmt: skip


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
