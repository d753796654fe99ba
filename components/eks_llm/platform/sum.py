"""Can a platform run, what does it need, what does it cost: the answers of its components, summed up into a `Report`.

Each component answers for itself (see `sizing.needs`); nothing here names one. `check` takes settings before anything
is registered; `of_resources` reads them back from registered components, so that a plan or a policy sizes any program.
"""

import datetime
import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from .. import aws, operators, serving
from ..catalog.instances import INSTANCES
from ..core.model import Model
from ..core.problems import problems
from ..sizing import pods
from ..sizing.cost import rate
from ..sizing.needs import KINDS, Context, Kind, Needs, total
from ..sizing.own_prices import OwnPrices
from ..sizing.report import Report, size
from ..sizing.stack import Stack
from ..sizing.validity import Finding


@dataclass(frozen=True)
class Part:
    """A component of a platform: its kind, name and settings."""

    kind: Kind
    name: str
    settings: Model


def kinds() -> Mapping[str, Kind]:
    """Every component that answers, by type token: this package's, and those of modules that have been imported."""
    for room in (aws, operators, serving):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    return KINDS


def part(component: type[Any], name: str, settings: Model) -> Part:
    """A part, of the component's class."""
    return Part(next(kind for kind in kinds().values() if kind.component is component), name, settings)


def needs(parts: Iterable[Part], region: str = "", now: datetime.datetime | None = None) -> Needs:
    """The sum of what `parts` need. They are asked twice: first with nothing known, then with what all have said."""
    listed = list(parts)
    when = now or datetime.datetime.now(datetime.UTC)
    alone = Context(region=region, now=when)
    first = total(item.kind.needs(item.name, item.settings, alone) for item in listed)
    context = replace(
        alone,
        region=region or first.region,
        cluster=first.cluster,
        kubernetes_version=first.kubernetes_version,
        pools={pool.name: pool for pool in first.pools},
    )
    found = total(item.kind.needs(item.name, item.settings, context) for item in listed)
    return replace(found, region=context.region)


def check(
    parts: Iterable[Part],
    region: str = "",
    *,
    prices: OwnPrices | None = None,
    now: datetime.datetime | None = None,
) -> Report:
    """Sizes a platform as of `now` (default: now).

    `region`: default is what the parts tell; empty where only nodes of an existing cluster are used, of which there are
    neither prices nor quotas. A part that the caller does not have costs nothing. `prices` replace the catalogue's.
    """
    when = now or datetime.datetime.now(datetime.UTC)
    found = needs(parts, region, when)
    stack = Stack(
        region=found.region,
        pools=found.pools,
        services=found.services,
        node_groups=found.node_groups,
        charges=found.charges,
        quotas=found.quotas,
        prices=prices,
    )
    report = size(stack, when)
    held = [finding for group in found.node_groups for finding in pods.misfits(group, found.pods)]
    return replace(report, findings=(*report.findings, *found.findings, *held), policies=found.policies, needs=found)


def of_resources(
    resources: Iterable[tuple[str, str, Mapping[str, Any]]], prices: OwnPrices | None = None
) -> Report | None:
    """The report on registered resources, each given as type token, name and inputs; None without a component.

    A component that cannot be read is a finding of the report: its kind answers nothing, or its inputs are wrong or not
    known yet (outputs of other resources).
    """
    known, parts, unread = kinds(), list[Part](), list[Finding]()
    own = {token.split(":")[0] for token in known}
    for token, name, inputs in resources:
        if token in known:
            try:
                parts.append(Part(known[token], name, known[token].settings.model_validate(dict(inputs))))
            except ValidationError as error:
                said = "; ".join(f"{bad.path}: {bad.message}" for bad in problems(error, known[token].settings))
                unread.append(_unread(token, name, said))
        elif token.split(":")[0] in own:
            unread.append(_unread(token, name, "a component that says nothing of its needs (sizing.needs.answers)"))
    if not parts and not unread:
        return None
    report = check(parts, prices=prices)
    return replace(report, findings=(*report.findings, *unread))


def _unread(token: str, name: str, why: str) -> Finding:
    return Finding(f"{token.rsplit(':', 1)[-1]} {name}", f"not counted in this plan: {why}")


def usd_per_gpu_hour(report: Report, pool: str) -> float | None:
    """Price of a GPU of a pool, USD per hour; None: not known."""
    found = next(item for item in report.stack.pools if item.name == pool)
    price, _ = rate(found.instance_type, report.stack.region, found.capacity, report.stack.prices)
    return None if price is None else round(price / INSTANCES[found.instance_type].gpus, 6)


def outputs(report: Report) -> dict[str, Any]:
    """The figures of a report that a stack exports. Money is USD per month."""
    bill = report.cost
    return {
        "cost": {
            "usdPerMonth": {"min": round(bill.minimum), "expected": round(bill.expected), "max": round(bill.maximum)},
            "usdPerMillionOutputTokens": {
                service.service: round(service.per_million_tokens, 2)
                for service in bill.services
                if service.per_million_tokens is not None
            },
            "pricesOf": bill.date.isoformat(),
            "incomplete": bill.incomplete,
        },
        "gpuBudget": {
            budget.pool.name: {"held": budget.gpus_held, "atMin": budget.gpus_min, "atMax": budget.gpus_max}
            for budget in report.capacity.pools
        },
        "quotas": [
            {"code": quota.code, "name": quota.name, "value": quota.value, "unit": quota.unit, "region": quota.region}
            for quota in report.capacity.quotas
        ],
    }
