"""What a service offers to those who call, watch or stand in front of it, as a value."""

from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic.alias_generators import to_camel

CLIENT_LABEL = "eks-llm.dev/client"
"""Pods with this label set to `true` may call the services of their own namespace."""


@dataclass(frozen=True)
class SecretKey:
    """A key of a Kubernetes Secret in the service's namespace."""

    name: str
    key: str


@dataclass(frozen=True)
class Endpoint:
    """The names, ports and rules of a service. All of it is known at preview."""

    namespace: str
    name: str
    """Name of the Kubernetes Service, and of the model that requests ask for."""
    pods_name: str
    """Name of the headless Service, whose DNS name lists the ready pods, for a gateway that balances by itself."""
    protocols: tuple[str, ...]
    """`openai` (HTTP), or `open-inference` (KServe's protocol version 2, HTTP and gRPC)."""
    ports: dict[str, int]
    """Ports that clients call, by name: `http`, and with Triton `grpc`."""
    metrics_ports: dict[str, int]
    """Ports at which pods answer `/metrics`, by name; the engine's is first."""
    models: tuple[str, ...]
    """Names that requests may ask for: the service's own, then its LoRA adapters."""
    pod_labels: dict[str, str]
    """Labels that tell the service's pods from all others."""
    metric_labels: dict[str, str]
    """Labels of the service's series in Prometheus."""
    drain_s: int
    """Longest time, seconds, that a pod takes to end: whoever stands in front must wait that long for answers."""
    client_namespaces: tuple[str, ...] = ()
    """Namespaces whose pods may call, beside pods of the service's own namespace with `client_labels`."""
    client_labels: dict[str, str] = field(default_factory=lambda: {CLIENT_LABEL: "true"})
    api_key: SecretKey | None = None
    """Where the API key lies that clients must send; None: none is asked for."""

    @property
    def host(self) -> str:
        """Name of the service in the cluster's DNS."""
        return f"{self.name}.{self.namespace}.svc"

    @property
    def pods_host(self) -> str:
        """Name in the cluster's DNS that lists the ready pods."""
        return f"{self.pods_name}.{self.namespace}.svc"

    @property
    def url(self) -> str:
        """HTTP address inside the cluster."""
        return f"http://{self.host}:{self.ports['http']}"

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON with camelCase keys, as stack outputs have it."""
        values = {to_camel(key): value for key, value in asdict(self).items() if value is not None}
        listed = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        return {**listed, "host": self.host, "podsHost": self.pods_host, "url": self.url}
