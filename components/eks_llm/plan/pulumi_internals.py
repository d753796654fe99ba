"""Every use of Pulumi's Python SDK that is not its public interface, with a check that the installed SDK has it.

The SDK offers a test double, `set_mocks`, and no public way to run a program against a monitor of one's own. Checked
with 3.256 to 3.274; before 3.256 the double had no `GetDeploymentInfo`. `probe()` names what does not fit.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version
from typing import Any, cast

import pulumi
from pulumi.runtime import mocks, rpc, settings
from pulumi.runtime import stack as runtime_stack

LEAST = "3.256"
"""Lowest version of the SDK that fits; `pyproject.toml` asks for it."""

_EXPECTED: list[tuple[Any, str, tuple[str, ...]]] = [
    (mocks, "MockMonitor", ("mocks",)),
    (mocks.MockMonitor, "GetDeploymentInfo", ()),
    (mocks.MockMonitor, "RegisterResource", ()),
    (mocks, "MockSettings", ()),
    (settings, "configure", ()),
    (settings, "reset_options", ()),
    (settings, "SETTINGS", ()),
    (rpc, "_special_sig_key", ()),
    (rpc, "_special_secret_sig", ()),
    (rpc, "_special_resource_sig", ()),
    (rpc, "deserialize_property", ("value",)),
    (runtime_stack, "run_in_stack", ()),
    (runtime_stack, "register_stack_transformation", ()),
]


class IncompatiblePulumiError(pulumi.RunError):
    """The installed Pulumi SDK lacks an internal that a plan uses."""


def probe(expected: Iterable[tuple[Any, str, tuple[str, ...]]] = _EXPECTED) -> None:
    """Raises `IncompatiblePulumiError`, in one sentence, where the installed SDK does not fit."""
    missing: list[str] = []
    for owner, name, parameters in expected:
        full = f"{owner.__name__}.{name}"
        if not hasattr(owner, name):
            missing.append(f"no {full}")
        elif parameters:
            known = inspect.signature(getattr(owner, name)).parameters
            missing += [f"no parameter {parameter!r} of {full}" for parameter in parameters if parameter not in known]
    if missing:
        raise IncompatiblePulumiError(
            f"the installed Pulumi SDK for Python, {version('pulumi')}, does not suit eks-llm ({', '.join(missing)}): "
            f"install pulumi>={LEAST},<4"
        )


SIGNATURE = rpc._special_sig_key
"""Key of a wire value that tells what kind of value it is."""
SECRET_SIGNATURE = rpc._special_secret_sig
RESOURCE_SIGNATURE = rpc._special_resource_sig
UNKNOWN = rpc.UNKNOWN
"""Stands on the wire for a value that is not known yet."""
deserialize = rpc.deserialize_property
register_stack_transformation = runtime_stack.register_stack_transformation
reset = settings.reset_options
Mocks = mocks.Mocks
MockMonitor = mocks.MockMonitor
MockCallArgs = mocks.MockCallArgs
MockResourceArgs = mocks.MockResourceArgs


def outputs() -> set[Any]:
    """What the program has set going and the SDK will await; the set itself."""
    return cast(Any, settings.SETTINGS).outputs


def configure(
    monitor: mocks.MockMonitor, engine: Any, *, project: str, stack: str, root: str | None, preview: bool
) -> None:
    """What `set_mocks` does, without its root stack: the program's own run makes that one."""
    settings.configure(
        mocks.MockSettings(
            monitor=monitor,
            monitor_features=set(monitor.GetDeploymentInfo(None).supportedFeatures),
            engine=engine,
            project=project,
            stack=stack,
            organization="organization",  # what the engine says for backends that have none
            root_directory=root,
            dry_run=preview,
            callbacks=None,
        )
    )


def run_in_stack(program: Callable[[], Awaitable[None]]) -> Awaitable[None]:
    """Runs `program` below a root stack."""
    return runtime_stack.run_in_stack(cast(Any, program))
