"""`eks-llm prices refresh` against stand-ins for boto3 and the Pricing API."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from eks_llm.cli import app
from eks_llm.sizing.own_prices import read

# An answer of GetProducts, cut down to what is read. Source: AWS Price List, EC2 OnDemand terms.
PRODUCT = {
    "terms": {"OnDemand": {"SKU.JRTC": {"priceDimensions": {"SKU.JRTC.6YS6": {
        "unit": "Hrs", "pricePerUnit": {"USD": "21.9576420000"},
    }}}}}
}  # fmt: skip
OLD = "date: 2026-01-01\nregions: {us-west-2: {onDemand: {p4d.24xlarge: 1}, spot: {p4d.24xlarge: 9}}}\n"


class Pricing:
    def get_products(self, ServiceCode: str, Filters: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
        asked = {item["Field"]: item["Value"] for item in Filters}
        assert ServiceCode == "AmazonEC2"
        assert asked["operatingSystem"] == "Linux"
        known = asked["instanceType"] == "p4d.24xlarge" and asked["regionCode"] == "us-west-2"
        return {"PriceList": [json.dumps(PRODUCT)] if known else []}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("")
    return tmp_path


def with_boto3(monkeypatch: pytest.MonkeyPatch, credentials: Any, client: Any = None) -> None:
    module: Any = ModuleType("boto3")
    module.Session = lambda: SimpleNamespace(
        get_credentials=lambda: credentials, client=lambda name, region_name: client
    )
    monkeypatch.setitem(sys.modules, "boto3", module)


def refresh(project: Path, region: str = "us-west-2") -> Any:
    return CliRunner().invoke(app, ["prices", "refresh", "--region", region, "--cwd", str(project)])


def test_prices_are_written_and_the_rest_of_the_file_stays(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "eks-llm.prices.yaml").write_text(OLD)
    with_boto3(monkeypatch, credentials=object(), client=Pricing())
    done = refresh(project)
    assert done.exit_code == 0, done.output
    prices = read(project)
    assert prices
    assert prices.date.year > 2025
    assert prices.hourly("p4d.24xlarge", "us-west-2") == 21.957642
    assert prices.hourly("p4d.24xlarge", "us-west-2", "spot") == 9


def test_without_boto3(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    done = refresh(project)
    assert done.exit_code == 1
    assert "prices refresh needs boto3: pip install boto3" in done.output


def test_without_credentials(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_boto3(monkeypatch, credentials=None)
    done = refresh(project)
    assert done.exit_code == 1
    assert "no AWS credentials found" in done.output
    assert not (project / "eks-llm.prices.yaml").exists()


def test_a_region_without_prices(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_boto3(monkeypatch, credentials=object(), client=Pricing())
    done = refresh(project, "mars-north-1")
    assert done.exit_code == 1
    assert "AWS lists no price of a known instance type in 'mars-north-1'" in done.output


def test_what_the_pricing_api_refuses(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("AccessDeniedException: pricing:GetProducts")

    with_boto3(monkeypatch, credentials=object(), client=SimpleNamespace(get_products=refuse))
    assert "the Pricing API answered: AccessDeniedException" in refresh(project).output


def test_a_file_that_cannot_be_read_is_not_overwritten(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "eks-llm.prices.yaml").write_text("date: [")
    with_boto3(monkeypatch, credentials=object(), client=Pricing())
    assert "eks-llm.prices.yaml: not a YAML file" in refresh(project).output
    assert (project / "eks-llm.prices.yaml").read_text() == "date: ["
