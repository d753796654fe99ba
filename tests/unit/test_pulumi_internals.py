"""The one module that rests on what Pulumi's SDK does not promise."""

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from eks_llm.plan import pulumi_internals
from eks_llm.plan.pulumi_internals import LEAST, IncompatiblePulumiError, probe

COMPONENTS = Path(__file__).parents[2] / "components"
PRIVATE = re.compile(
    r"pulumi\.runtime\.(mocks|rpc|settings|stack)|from pulumi\.runtime import [^\n]*\b(mocks|rpc|settings)"
)


def test_the_installed_sdk_fits() -> None:
    probe()


def test_an_sdk_that_lacks_something_is_named_in_one_sentence() -> None:
    """As with 3.255, whose double has no GetDeploymentInfo."""
    old = SimpleNamespace(__name__="MockMonitor", RegisterResource=lambda request: request)
    with pytest.raises(IncompatiblePulumiError) as error:
        probe([(old, "GetDeploymentInfo", ()), (old, "RegisterResource", ("request", "options"))])
    assert re.fullmatch(
        r"the installed Pulumi SDK for Python, \d[^ ]*, does not suit eks-llm \(no MockMonitor\.GetDeploymentInfo, "
        rf"no parameter 'options' of MockMonitor\.RegisterResource\): install pulumi>={LEAST},<4",
        str(error.value),
    )


def test_the_bound_of_the_package_is_the_one_that_is_said() -> None:
    project = tomllib.loads((COMPONENTS / "pyproject.toml").read_text())["project"]
    assert f"pulumi>={LEAST},<4" in project["dependencies"]


def test_nothing_else_reaches_into_the_sdk() -> None:
    found = [file.name for file in COMPONENTS.rglob("*.py") if PRIVATE.search(file.read_text(encoding="utf-8"))]
    assert found == [Path(pulumi_internals.__file__).name]
