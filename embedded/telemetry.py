"""What a service does now, and did lately: from the API server and Prometheus, for `./dev load` and the page."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from eks_llm.observe import metrics

from .api import Api, Manifest, NotFoundError
from .controlplane import ControlPlane
from .near import opener
from .platform import Platform
from .process import PlatformError
from .prometheus import Prometheus

SERVICES = "app.kubernetes.io/part-of=eks-llm,app.kubernetes.io/component=inference"
"""Labels of the Deployments of services."""
WINDOW = "30s"
"""Of rates and quantiles: three scrapes, so that a lost one leaves no gap."""

Get = Callable[[str], Any]
"""GET of a path with its query, parsed from JSON."""
Points = list[tuple[float, float]]
"""Unix seconds and value."""


@dataclass(frozen=True)
class Scaling:
    """How a service scales, as its ScaledObject says."""

    least: int
    most: int
    triggers: list[str]
    """Names of its triggers, in their order: the HPA calls the first one's metric `s0-…`."""
    thresholds: dict[str, float]
    """Target per replica, by the trigger's name: `demand` in requests, `kv-cache` in percent."""
    window: float
    """Seconds that demand must have been low before a replica ends. The HPA's default where the object says none."""


@dataclass(frozen=True)
class Service:
    """A service and its replicas at one moment."""

    namespace: str
    name: str
    triton: bool
    """Served by Triton; else by vLLM's OpenAI server."""
    desired: int
    ready: int
    scaling: Scaling | None
    """None: it does not scale."""

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Telemetry:
    """Both sources of a platform."""

    kubernetes: Get
    prometheus: Get

    def services(self) -> list[Service]:
        """All services, by namespace and name."""
        found = self.kubernetes(f"/apis/apps/v1/deployments?{urlencode({'labelSelector': SERVICES})}")["items"]
        services = [self._service(deployment) for deployment in found]
        return sorted(services, key=lambda service: service.id)

    def service(self, wanted: str | None) -> Service:
        """The service called `name` or `namespace/name`; None: the only one. Raises `PlatformError`."""
        services = self.services()
        found = [service for service in services if wanted in (None, service.name, service.id)]
        if len(found) == 1:
            return found[0]
        if not services:
            raise PlatformError("no service is deployed; `./dev up` deploys the stack's")
        names = ", ".join(service.id for service in services)
        raise PlatformError(f"--service {wanted}: there are {names}" if wanted else f"--service: which one? {names}")

    def events(self, service: Service) -> list[Manifest]:
        """Kubernetes' events about the service's objects, the newest first; the HPA's decisions are among them."""
        found = self.kubernetes(f"/api/v1/namespaces/{service.namespace}/events")["items"]
        own = (service.name, f"keda-hpa-{service.name}")
        events = [
            event
            for event in found
            if (name := event["involvedObject"].get("name", "")) in own or name.startswith(f"{service.name}-")
        ]
        return sorted(events, key=event_time, reverse=True)

    def value(self, query: str) -> float | None:
        """A query's value now; None: there is none."""
        found = self.prometheus(f"/api/v1/query?{urlencode({'query': query})}")["data"]["result"]
        values = [float(found[0]["value"][1])] if found else []
        return next((value for value in values if math.isfinite(value)), None)

    def history(self, query: str, start: float, end: float, step: float) -> Points:
        """A query's values in a span of time; moments without one are left out."""
        span = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        found = self.prometheus(f"/api/v1/query_range?{urlencode(span)}")["data"]["result"]
        values = [(float(time), float(value)) for time, value in found[0]["values"]] if found else []
        return [(time, value) for time, value in values if math.isfinite(value)]

    def _service(self, deployment: Manifest) -> Service:
        metadata, spec, status = deployment["metadata"], deployment["spec"], deployment.get("status", {})
        server = spec["template"]["spec"]["containers"][0]
        return Service(
            namespace=metadata["namespace"],
            name=metadata["name"],
            triton=server.get("args", [""])[0] == "tritonserver",
            desired=spec.get("replicas", 1),
            ready=status.get("readyReplicas", 0),
            scaling=self._scaling(metadata["namespace"], metadata["name"]),
        )

    def _scaling(self, namespace: str, name: str) -> Scaling | None:
        try:
            found = self.kubernetes(f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects/{name}")
        except NotFoundError:
            return None
        return scaling(found)


def connect(platform: Platform) -> Telemetry:
    """The sources of a platform that is up. Raises `PlatformError`."""
    if not platform.status()["kube-apiserver"]:
        raise PlatformError("the platform is not up; `./dev up` starts it")
    prometheus = Prometheus(ControlPlane.load(platform.home)).url
    near = opener()

    def get(path: str) -> Any:
        with near.open(f"{prometheus}{path}", timeout=5) as response:
            return json.loads(response.read())

    return Telemetry(Api(platform.kubeconfig).raw, get)


def scaling(scaled_object: Manifest) -> Scaling:
    """The policy of a ScaledObject. Sources of defaults: KEDA's ScaledObject, Kubernetes' HPA."""
    spec = scaled_object["spec"]
    behavior = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior", {})
    triggers = {trigger.get("name", trigger["type"]): trigger["metadata"] for trigger in spec["triggers"]}
    return Scaling(
        least=spec.get("minReplicaCount", 0),
        most=spec.get("maxReplicaCount", 100),
        triggers=list(triggers),
        thresholds={name: float(data["threshold"]) for name, data in triggers.items() if "threshold" in data},
        window=behavior.get("scaleDown", {}).get("stabilizationWindowSeconds", 300),
    )


def queries(service: Service) -> dict[str, str]:
    """PromQL of what is drawn and printed, by name. Requests, percent of the KV cache, seconds, tokens a second."""
    here = (service.namespace, service.name)
    return {
        "running": metrics.total(metrics.RUNNING, *here),
        "waiting": metrics.total(metrics.WAITING, *here),
        "kv": f"avg({metrics.KV_USAGE}{{{metrics.selector(*here)}}}) * 100",
        "ttft50": metrics.quantile(0.5, metrics.TTFT, *here, window=WINDOW),
        "ttft99": metrics.quantile(0.99, metrics.TTFT, *here, window=WINDOW),
        "generated": metrics.rate(metrics.GENERATION_TOKENS, *here, window=WINDOW),
        "prompt": metrics.rate(metrics.PROMPT_TOKENS, *here, window=WINDOW),
    }


def event_time(event: Manifest) -> str:
    """When an event happened last, in ISO 8601. Its several reporters fill different fields."""
    return event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
