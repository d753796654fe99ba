"""Stand-ins for the aws and kubernetes providers: the real engine talks to them as it does to the real ones.

They keep no cloud: what a program sends is checked, named, given computed attributes and answered. As with the real
providers, an attribute that the cloud fills in is unknown while a resource's creation is previewed. Not modelled: what
AWS or the API server would refuse (tests/engine/test_schemas.py and tests/cluster do the latter).
"""

import hashlib
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import grpc
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime import rpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from eks_llm.plan.computed import NAMED_BY_PROVIDER, computed

HELM_RELEASE = "kubernetes:helm.sh/v3:Release"
MESSAGE_LIMIT = [("grpc.max_receive_message_length", 400 * 1024 * 1024)]
"""As the engine sets it: a Release with its values passes gRPC's 4 MiB."""


@dataclass(frozen=True)
class Event:
    """A change that the engine ordered. Times are `time.monotonic()`."""

    action: str
    urn: str
    started: float
    ended: float


@dataclass
class Journal:
    """What the stand-ins were told to create, update and delete, in order of completion."""

    events: list[Event] = field(default_factory=list)
    delay: float = 0.0
    """Seconds that each change takes. With a delay, changes that do not wait for each other overlap in time."""
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def entry(self, action: str, urn: str) -> Iterator[None]:
        started = time.monotonic()
        time.sleep(self.delay)
        yield
        with self._lock:
            self.events.append(Event(action, urn, started, time.monotonic()))

    def of(self, action: str) -> list[Event]:
        return [event for event in self.events if event.action == action]


class StandIn(provider_pb2_grpc.ResourceProviderServicer):
    """The part that both providers share. `replaced_by` names the inputs whose change needs a new resource."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def named(self, type_: str, name: str, inputs: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
        """The inputs with the name that the provider generates when the program gives none."""
        raise NotImplementedError

    def replaced_by(self, type_: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        raise NotImplementedError

    def id_of(self, urn: str, inputs: dict[str, Any]) -> str:
        raise NotImplementedError

    def state(self, type_: str, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
        return computed(type_, name, inputs)

    # The protocol. Every argument is (request, context).

    def Handshake(self, request: Any, context: Any) -> Any:
        return provider_pb2.ProviderHandshakeResponse()

    def Attach(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version="99.0.0")

    def Cancel(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        return _diff(_dict(request.old_inputs), _dict(request.news), [])

    def Configure(self, request: Any, context: Any) -> Any:
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: Any, context: Any) -> Any:
        inputs = self.named(request.type, request.name, _dict(request.news), _dict(request.olds))
        return provider_pb2.CheckResponse(inputs=_struct(inputs))

    def Diff(self, request: Any, context: Any) -> Any:
        old, new = _dict(request.old_inputs), _dict(request.news)
        return _diff(old, new, self.replaced_by(request.type, old, new))

    def Create(self, request: Any, context: Any) -> Any:
        inputs = _dict(request.properties)
        state = self.state(request.type, request.name, inputs)
        if request.preview:
            return provider_pb2.CreateResponse(properties=_struct(_unknown_but(inputs, state)))
        with self.journal.entry("create", request.urn):
            return provider_pb2.CreateResponse(id=self.id_of(request.urn, inputs), properties=_struct(state))

    def Read(self, request: Any, context: Any) -> Any:
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def Update(self, request: Any, context: Any) -> Any:
        state = _dict(request.olds) | _dict(request.news)
        if request.preview:
            return provider_pb2.UpdateResponse(properties=_struct(state))
        with self.journal.entry("update", request.urn):
            return provider_pb2.UpdateResponse(properties=_struct(state))

    def Delete(self, request: Any, context: Any) -> Any:
        with self.journal.entry("delete", request.urn):
            return empty_pb2.Empty()


class Aws(StandIn):
    """Like a provider that is bridged from Terraform: it appends random characters to names that it generates."""

    def named(self, type_: str, name: str, inputs: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
        key = NAMED_BY_PROVIDER.get(type_)
        if not key or key in inputs:
            return inputs
        return {**inputs, key: old.get(key, f"{name}-{_digest(name, 7)}")}

    def replaced_by(self, type_: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        key = NAMED_BY_PROVIDER.get(type_)
        return [key] if key and old.get(key) != new.get(key) else []

    def id_of(self, urn: str, inputs: dict[str, Any]) -> str:
        kind = urn.split("::")[2].rsplit(":", 1)[-1].lower()
        return f"{kind}-{_digest(urn, 17)}"


class Kubernetes(StandIn):
    """Names objects as the real provider does and replaces them when their identity changes."""

    def named(self, type_: str, name: str, inputs: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
        if type_ == HELM_RELEASE:
            return {**inputs, "name": inputs.get("name") or old.get("name") or f"{name}-{_digest(name, 8)}"}
        metadata = inputs.get("metadata") or {}
        if metadata == rpc.UNKNOWN or metadata.get("name"):
            return inputs
        generated = (old.get("metadata") or {}).get("name") or f"{name}-{_digest(name, 8)}"
        return {**inputs, "metadata": {**metadata, "name": generated}}

    def replaced_by(self, type_: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        if type_ == HELM_RELEASE:
            return [key for key in ("name", "namespace") if old.get(key) != new.get(key)]
        before, after = old.get("metadata") or {}, new.get("metadata") or {}
        moved = [f"metadata.{key}" for key in ("name", "namespace") if before.get(key) != after.get(key)]
        return moved + [key for key in ("apiVersion", "kind") if old.get(key) != new.get(key)]

    def id_of(self, urn: str, inputs: dict[str, Any]) -> str:
        metadata = inputs.get("metadata") or {"name": inputs.get("name"), "namespace": inputs.get("namespace")}
        return "/".join(part for part in (metadata.get("namespace"), metadata.get("name")) if part)

    def state(self, type_: str, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
        state = super().state(type_, name, inputs)
        if type_ == HELM_RELEASE:
            of = {key: inputs[key] for key in ("name", "namespace", "version") if key in inputs}
            state = {**state, "status": {**of, "revision": 1, "status": "deployed"}, "resourceNames": {}}
        return state


def _diff(old: dict[str, Any], new: dict[str, Any], replaces: list[str]) -> Any:
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=changed,
        replaces=replaces,
    )


def _unknown_but(inputs: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """The state at preview: what the program gave is known, and what the cloud adds is not."""
    return {
        key: _unknown_but(inputs[key], value)
        if isinstance(value, dict) and isinstance(inputs.get(key), dict)
        else value
        if key in inputs
        else rpc.UNKNOWN
        for key, value in state.items()
    }


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _dict(message: Any) -> dict[str, Any]:
    return json_format.MessageToDict(message)


def _struct(value: dict[str, Any]) -> struct_pb2.Struct:
    return json_format.ParseDict(value, struct_pb2.Struct())


@dataclass(frozen=True)
class Running:
    """Stand-ins that listen on this machine."""

    journal: Journal
    ports: dict[str, int]

    @property
    def environment(self) -> dict[str, str]:
        """Makes the engine attach to them instead of starting its plugins."""
        return {"PULUMI_DEBUG_PROVIDERS": ",".join(f"{name}:{port}" for name, port in self.ports.items())}


@contextmanager
def running() -> Iterator[Running]:
    """Both stand-ins, each on a free port of the loopback interface."""
    journal = Journal()
    servers: list[grpc.Server] = []
    ports: dict[str, int] = {}
    try:
        for name, standin in {"aws": Aws(journal), "kubernetes": Kubernetes(journal)}.items():
            # The engine works on 16 resources at once; each needs a thread while the journal delays it.
            server = grpc.server(futures.ThreadPoolExecutor(max_workers=32), options=MESSAGE_LIMIT)
            provider_pb2_grpc.add_ResourceProviderServicer_to_server(standin, server)
            ports[name] = server.add_insecure_port("127.0.0.1:0")
            server.start()
            servers.append(server)
        yield Running(journal, ports)
    finally:
        for server in servers:
            server.stop(grace=None)
