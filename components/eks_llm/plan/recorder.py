"""Runs a Pulumi program in this process against a recording monitor: no CLI, no cloud, no credentials.

Pulumi's own test double, `set_mocks`, takes the monitor to use; ours also keeps what the stock one drops: parents,
dependencies, `protect`, ignored paths, exports and which values are secret.
"""

import asyncio
import gc
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from google.protobuf.struct_pb2 import Struct, Value
from pulumi.runtime import set_all_config
from pulumi.runtime.proto import engine_pb2, resource_pb2

from ..core.secrets import SECRET
from . import pulumi_internals
from .computed import computed

UNKNOWN = "‹unknown›"
"""Stands in a recording for a value that is known only after `pulumi up`."""


@dataclass(frozen=True)
class Resource:
    """One registered resource, as the engine would see it. Keys of `inputs` are camelCase; secrets read `[secret]`."""

    type: str
    name: str
    urn: str
    parent: str
    """URN of the parent; the stack's own URN at the top."""
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
    """What a program registered, in the order of the program, with its exports and its log."""

    resources: list[Resource] = field(default_factory=list)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Registered outputs of component resources, by URN."""
    exports: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What the program passed to `pulumi.log.error`; the engine fails such a run at its end."""

    def of(self, kind: str) -> list[Resource]:
        """All resources whose type ends in `kind`, e.g. `NodeGroup` or `aws:eks/nodeGroup:NodeGroup`."""
        return [item for item in self.resources if kind in (item.kind, item.type)]

    def one(self, kind: str, name: str | None = None) -> Resource:
        """The only resource of a kind (and name); raises `LookupError` otherwise."""
        found = [item for item in self.of(kind) if name in (None, item.name)]
        if len(found) != 1:
            raise LookupError(f"{len(found)} resources of kind {kind} named {name}: {[item.name for item in found]}")
        return found[0]


# The engine's side --------------------------------------------------------------------------------------------------


class _NoCloud(pulumi_internals.Mocks):
    def call(self, args: pulumi_internals.MockCallArgs) -> Any:
        raise NotImplementedError

    def new_resource(self, args: pulumi_internals.MockResourceArgs) -> Any:
        raise NotImplementedError


class _Monitor(pulumi_internals.MockMonitor):
    """Answers like the engine would after `up`: what the program gave, and placeholders for what the cloud adds."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(_NoCloud())
        self._recording = recording
        self._urns: set[str] = set()

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        # The stock double drops all but the last parent type; the engine keeps the whole chain.
        parent_type = parent.split("::")[2] if parent else ""
        qualified = type_ if parent_type in ("", "pulumi:pulumi:Stack") else f"{parent_type}${type_}"
        return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{qualified}::{name}"

    def RegisterResource(self, request: Any) -> Any:
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == "pulumi:pulumi:Stack":
            return resource_pb2.RegisterResourceResponse(urn=urn)
        if urn in self._urns:
            raise pulumi.RunError(f"two resources have the URN {urn}: give one another name")
        self._urns.add(urn)
        inputs = _plain(request.object)
        state = computed(request.type, request.name, inputs)
        self._recording.resources.append(
            Resource(
                type=request.type,
                name=request.name,
                urn=urn,
                parent=request.parent,
                custom=request.custom,
                inputs=inputs,
                outputs=state,
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
        return resource_pb2.RegisterResourceResponse(
            urn=urn, id=request.importId or f"‹{request.name}.id›", object=_with_state(request.object, inputs, state)
        )

    def ReadResource(self, request: Any) -> Any:
        inputs = _plain(request.properties)
        state = computed(request.type, request.name, inputs)
        return resource_pb2.ReadResourceResponse(
            urn=self.make_urn(request.parent, request.type, request.name),
            properties=_with_state(request.properties, inputs, state),
        )

    def Invoke(self, request: Any) -> Any:
        raise pulumi.RunError(f"the program calls {request.tok}: a preview without credentials cannot ask the cloud")

    def RegisterResourceOutputs(self, request: Any) -> Any:
        values = _plain(request.outputs)
        if "::pulumi:pulumi:Stack::" in request.urn:
            self._recording.exports = values
        else:
            self._recording.outputs[request.urn] = values
        return super().RegisterResourceOutputs(request)


class _Engine:
    """The engine's log."""

    def __init__(self, recording: Recording) -> None:
        self._sinks = {engine_pb2.WARNING: recording.warnings, engine_pb2.ERROR: recording.errors}

    def Log(self, request: Any) -> None:
        sink = self._sinks.get(request.severity)
        if sink is not None and request.message not in sink:
            sink.append(request.message)


class _Loop(asyncio.SelectorEventLoop):
    """Runs what the SDK hands to threads (calls to the monitor) right here: same order in each run, and faster."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # noqa: ARG002
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


# Values on the wire -------------------------------------------------------------------------------------------------


def _plain(properties: Struct, secret: bool = False) -> dict[str, Any]:
    return {key: _value(value, secret) for key, value in sorted(properties.fields.items())}


def _value(value: Value, secret: bool) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        plain = _struct(value, secret)
    elif kind == "list_value":
        plain = [_value(item, secret) for item in value.list_value.values]
    elif kind in (None, "null_value"):
        plain = None
    elif secret:
        plain = SECRET
    elif kind == "number_value":
        plain = int(value.number_value) if value.number_value.is_integer() else value.number_value
    elif kind == "bool_value":
        plain = value.bool_value
    else:
        plain = UNKNOWN if value.string_value == pulumi_internals.UNKNOWN else value.string_value
    return plain


def _struct(value: Value, secret: bool) -> Any:
    fields = value.struct_value.fields
    signature = fields[pulumi_internals.SIGNATURE].string_value if pulumi_internals.SIGNATURE in fields else None
    if signature is None:
        return _plain(value.struct_value, secret)
    if signature == pulumi_internals.SECRET_SIGNATURE:
        return _value(fields["value"], secret=True)
    if signature == pulumi_internals.RESOURCE_SIGNATURE:
        return fields["id"].string_value or fields["urn"].string_value
    return SECRET if secret else pulumi_internals.deserialize(value)  # an asset or an archive


def _with_state(given: Struct, inputs: dict[str, Any], state: dict[str, Any]) -> Struct:
    """`given` as it came (secrets still wrapped), and what `state` has beyond `inputs`."""
    answer = Struct()
    answer.CopyFrom(given)
    answer.update({key: value for key, value in state.items() if key not in inputs or value is not inputs[key]})
    return answer


# The run ------------------------------------------------------------------------------------------------------------


async def _settle() -> None:
    """Waits for everything that the program set going.

    The SDK waits for its outputs one by one and looks at all that are left each time, which takes minutes for
    thousands of resources; waiting for them together first leaves it nothing to do.
    """
    outputs = pulumi_internals.outputs()
    while pending := list(outputs):
        outputs.clear()
        await asyncio.gather(*pending)


def record(
    program: Callable[[], Any],
    *,
    project: str = "eks-llm",
    stack: str = "test",
    config: Mapping[str, Any] | None = None,
    secret_keys: list[str] | None = None,
    preview: bool = True,
    root: str | None = None,
) -> Recording:
    """Runs `program` and returns what it registered. Raises what the program raises.

    `config` holds full keys (`eks-llm:platform`); structured values are encoded as Pulumi does. `preview` sets what
    `pulumi.runtime.is_dry_run()` answers, `root` what `pulumi.runtime.get_root_directory()` does. Not reentrant:
    Pulumi's runtime is one per process.
    """
    pulumi_internals.probe()
    recording = Recording()
    monitor = _Monitor(recording)
    loop = _Loop()
    # A program that fails leaves outputs behind that nobody awaits; asyncio would report each of them.
    loop.set_exception_handler(lambda *_: None)
    asyncio.set_event_loop(loop)
    encoded = {k: v if isinstance(v, str) else json.dumps(v) for k, v in (config or {}).items()}

    made: dict[tuple[str, str], int] = {}

    def note(args: pulumi.ResourceTransformationArgs) -> None:
        made.setdefault((args.type_, args.name), len(made))

    async def run() -> None:
        pulumi_internals.register_stack_transformation(note)
        result = program()
        if asyncio.iscoroutine(result):
            await result
        await _settle()

    # All objects of a run live to its end: the collector would walk them ever again, for 2/3 of the time at 1,000
    # resources, and find nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        pulumi_internals.reset()
        pulumi_internals.configure(
            monitor, _Engine(recording), project=project, stack=stack, root=root, preview=preview
        )
        set_all_config(encoded, secret_keys or [])
        loop.run_until_complete(pulumi_internals.run_in_stack(run))
    finally:
        pulumi_internals.reset()
        set_all_config({}, [])
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        asyncio.set_event_loop(None)
        if collecting:
            gc.enable()
    # Requests arrive as their inputs resolve; a reader expects the order of the program.
    recording.resources.sort(key=lambda item: made.get((item.type, item.name), len(made)))
    return recording
