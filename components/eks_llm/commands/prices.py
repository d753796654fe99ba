"""`eks-llm prices`: the file of prices that replace the catalogue's."""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .output import fail

app = typer.Typer(no_args_is_help=True, help="Prices of your own, in eks-llm.prices.yaml beside Pulumi.yaml.")


@app.callback()
def prices() -> None:
    """Keeps `refresh` a command of its own while it is the only one."""


@app.command()
def refresh(
    region: Annotated[list[str], typer.Option(help="AWS region; may be given several times.")],
    cwd: Annotated[Path, typer.Option(metavar="DIR", help="Where to look for Pulumi.yaml, upwards.")] = Path(),
) -> None:
    """Write today's on-demand prices of every instance type in the catalogue. Needs AWS credentials and boto3.

    They need `pricing:GetProducts`. Spot and Capacity Block prices in the file stay as they are.
    """
    from ..plan.program import PlanError, find_project, own_prices
    from ..sizing.own_prices import OwnPrices, RegionPrices, write

    try:
        project = find_project(cwd)
        before = own_prices(project)
    except PlanError as error:
        fail(error.problems)
    regions = dict(before.regions) if before else {}
    client = _client()
    for name in region:
        found = dict(on_demand(client, name, types()))
        if not found:
            fail([f"--region: AWS lists no price of a known instance type in {name!r}"])
        regions[name] = regions.get(name, RegionPrices()).model_copy(update={"on_demand": found})
        typer.echo(f"{name}: {len(found)} prices")
    file = write(OwnPrices(date=datetime.datetime.now(datetime.UTC).date(), regions=regions), project.root)
    typer.echo(f"written to {file}")


def types() -> list[str]:
    """Instance types of GPU pools and of system nodes."""
    from ..catalog.instances import INSTANCES
    from ..catalog.prices import PRICES

    return sorted({*INSTANCES, *(name for prices in PRICES.values() for name in prices.nodes)})


def on_demand(client: Any, region: str, names: list[str]) -> Iterator[tuple[str, float]]:
    """USD per hour of each type that AWS sells in `region`: Linux, shared tenancy, nothing preinstalled."""
    terms = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
    for name in names:
        fields = {"regionCode": region, "instanceType": name, **terms}
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
        try:
            answer = client.get_products(ServiceCode="AmazonEC2", Filters=filters)
        except Exception as error:
            fail([f"the Pricing API answered: {error}"])
        for product in answer["PriceList"]:
            for usd in _usd(json.loads(product)):
                yield name, usd


def _usd(product: dict[str, Any]) -> Iterator[float]:
    for offer in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in offer["priceDimensions"].values():
            if dimension["unit"] == "Hrs" and (usd := float(dimension["pricePerUnit"].get("USD", 0))):
                yield usd


def _client() -> Any:
    """The Pricing API, which answers for all regions in us-east-1."""
    try:
        import boto3  # pyright: ignore[reportMissingImports] an extra
    except ImportError:
        fail(["prices refresh needs boto3: pip install boto3"])
    session = boto3.Session()
    if session.get_credentials() is None:
        fail(
            [
                "no AWS credentials found, and the Pricing API wants some (any account will do): set AWS_PROFILE, or "
                "write eks-llm.prices.yaml by hand, see docs/sizing.md"
            ]
        )
    return session.client("pricing", region_name="us-east-1")
