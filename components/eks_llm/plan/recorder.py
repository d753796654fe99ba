"""Runs a Pulumi program in this process against a recording monitor: no CLI, no cloud, no credentials.

Pulumi's own test double, `set_mocks`, takes the monitor to use; ours also keeps what the stock one drops: parents,
dependencies, `protect`, ignored paths and exports.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import mocks, rpc, set_all_config
from pulumi.runtime.settings import configure, reset_options
from pulumi.runtime.stack import run_in_stack

from .computed import computed


@dataclass(frozen=True)
class Resource:
    """One registered resource, as the engine would see it. Keys of `inputs` are camelCase."""

    type: str
    name: str
    urn: str
    parent: str
    custom: bool
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    dependencies: frozenset[str]
    """URNs that are created before and deleted after this one."""
    provider: str = ""
    protect: bool = False
    ignore_changes: tuple[str, ...] = ()
    additional_secret_outputs: tuple[str, ...] = ()
    deleted_with: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The type's last part, such as `NodeGroup`."""
        return self.type.rsplit(":", 1)[-1]


@dataclass
class Recording:
    """What a program registered, in order, with its exports and its log."""

    resources: list[Resource] = field(default_factory=list)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Registered outputs of component resources, by URN."""
    exports: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Resource]:
        """All resources whose type ends in `kind`, e.g. `NodeGroup` or `aws:eks/nodeGroup:NodeGroup`."""
        return [item for item in self.resources if kind in (item.kind, item.type)]

    def one(self, kind: str, name: str | None = None) -> Resource:
        """The only resource of a kind (and name); raises `LookupError` otherwise."""
        found = [item for item in self.of(kind) if name in (None, item.name)]
        if len(found) != 1:
            raise LookupError(f"{len(found)} resources of kind {kind} named {name}: {[item.name for item in found]}")
        return found[0]


class _Mocks(mocks.Mocks):
    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], None]:
        raise RuntimeError(f"the program calls {args.token}: a preview without credentials cannot ask the cloud")

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return args.resource_id or f"‹{args.name}.id›", computed(args.typ, args.name, args.inputs)


class _Monitor(mocks.MockMonitor):
    def __init__(self, recording: Recording) -> None:
        super().__init__(_Mocks())
        self._recording = recording

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        # The stock double drops all but the last parent type; the engine keeps the whole chain.
        parent_type = parent.split("::")[2] if parent else ""
        qualified = type_ if parent_type in ("", "pulumi:pulumi:Stack") else f"{parent_type}${type_}"
        return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{qualified}::{name}"

    def RegisterResource(self, request: Any) -> Any:
        response = super().RegisterResource(request)
        if request.type == "pulumi:pulumi:Stack":
            return response
        if any(item.urn == response.urn for item in self._recording.resources):
            raise pulumi.RunError(f"two resources have the URN {response.urn}: give one another name")
        self._recording.resources.append(
            Resource(
                type=request.type,
                name=request.name,
                urn=response.urn,
                parent=request.parent,
                custom=request.custom,
                inputs=_plain(rpc.deserialize_properties(request.object)),
                outputs=self.resources[response.urn].state,
                dependencies=frozenset(request.dependencies)
                | {urn for dep in request.propertyDependencies.values() for urn in dep.urns},
                provider=request.provider,
                protect=request.protect,
                ignore_changes=tuple(request.ignoreChanges),
                additional_secret_outputs=tuple(request.additionalSecretOutputs),
                deleted_with=request.deletedWith,
                aliases=tuple(alias.urn or alias.spec.name for alias in request.aliases),
            )
        )
        return response

    def RegisterResourceOutputs(self, request: Any) -> Any:
        values = _plain(rpc.deserialize_properties(request.outputs))
        if "::pulumi:pulumi:Stack::" in request.urn:
            self._recording.exports = values
        else:
            self._recording.outputs[request.urn] = values
        return super().RegisterResourceOutputs(request)


class _LogHandler(logging.Handler):
    def __init__(self, recording: Recording) -> None:
        super().__init__(logging.WARNING)
        self._recording = recording

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self._recording.warnings.append(record.getMessage())


def _plain(value: Any) -> Any:
    """Secrets unwrapped, assets and archives kept."""
    if rpc.is_rpc_secret(value):
        return _plain(rpc.unwrap_rpc_secret(value))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _use(monitor: _Monitor, project: str, stack: str, preview: bool, logger: logging.Logger) -> None:
    """What `set_mocks` does, without its root stack: the program's own run makes that one."""
    configure(
        mocks.MockSettings(
            monitor=monitor,
            monitor_features=set(monitor.GetDeploymentInfo(None).supportedFeatures),
            engine=mocks.MockEngine(logger),
            project=project,
            stack=stack,
            dry_run=preview,
            callbacks=None,
        )
    )


def record(
    program: Callable[[], Any],
    *,
    project: str = "eks-llm",
    stack: str = "test",
    config: Mapping[str, Any] | None = None,
    secret_keys: list[str] | None = None,
    preview: bool = True,
) -> Recording:
    """Runs `program` and returns what it registered. Raises what the program raises.

    `config` holds full keys (`eks-llm:platform`); structured values are encoded as Pulumi does. `preview` sets what
    `pulumi.runtime.is_dry_run()` answers. Not reentrant: Pulumi's runtime is one per process.
    """
    recording = Recording()
    logger = logging.Logger("eks-llm.plan")
    logger.addHandler(_LogHandler(recording))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    encoded = {k: v if isinstance(v, str) else json.dumps(v) for k, v in (config or {}).items()}
    try:
        reset_options()
        _use(_Monitor(recording), project, stack, preview, logger)
        set_all_config(encoded, secret_keys or [])
        loop.run_until_complete(run_in_stack(program))
    finally:
        reset_options()
        set_all_config({}, [])
        loop.close()
        asyncio.set_event_loop(None)
    return recording
