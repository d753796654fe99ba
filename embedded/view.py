"""`./dev status`: processes, nodes, pods, autoscaling and addresses, as tables for a terminal."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from eks_llm.core.placement import GPU_RESOURCE

from .api import REFUSED_OR_AWAY, Api, ApiException, Manifest
from .nodes import is_ready
from .platform import Platform
from .process import PlatformError
from .services import address

SERVICES = "app.kubernetes.io/part-of=eks-llm"


def show(platform: Platform, console: Console) -> None:
    """Raises `PlatformError` if nothing runs."""
    processes = platform.status()
    if not any(processes.values()):
        raise PlatformError("nothing runs; `./dev up` starts the platform")
    console.print(_processes(processes))
    for needed in ("kube-apiserver", "etcd"):  # without etcd, each question waits for a minute
        if not processes[needed]:
            raise PlatformError(f"{needed} does not run, so the rest is unknown; `./dev up` starts afresh")
    try:
        console.print(Group(*_objects(Api(platform.kubeconfig))))
    except REFUSED_OR_AWAY as error:
        raise PlatformError(f"the API server does not answer: {str(error).splitlines()[0]}") from None


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column)
    return table


def _processes(processes: dict[str, int | None]) -> RenderableType:
    running = {name: pid for name, pid in processes.items() if pid}
    table = _table("PROCESSES", "")
    table.add_row(
        f"{len(running)} of {len(processes)} run", " ".join(f"{name}({pid})" for name, pid in running.items())
    )
    if missing := [name for name in processes if name not in running]:
        table.add_row("[red]not running[/]", " ".join(missing))
    return table


def _objects(api: Api) -> Iterator[RenderableType]:
    pods = api.list("v1", "Pod")
    yield ""
    yield _nodes(api.list("v1", "Node"), pods)
    yield ""
    yield _pods(pods)
    yield ""
    yield _services(api)


def _nodes(nodes: list[Manifest], pods: list[Manifest]) -> Table:
    table = _table("NODE", "READY", "TYPE", "GPUS CLAIMED", "PODS")
    for node in nodes:
        name = node["metadata"]["name"]
        own = [pod for pod in pods if pod["spec"].get("nodeName") == name and not _over(pod)]
        claimed = sum(_gpus(pod) for pod in own)
        kind = node["metadata"]["labels"].get("node.kubernetes.io/instance-type", "")
        capacity = node["status"].get("capacity", {}).get(GPU_RESOURCE, "0")
        table.add_row(name, _yes(is_ready(node)), kind, f"{claimed} of {capacity}", str(len(own)))
    return table


def _over(pod: Manifest) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _gpus(pod: Manifest) -> int:
    limits = [container.get("resources", {}).get("limits") or {} for container in pod["spec"]["containers"]]
    return sum(int(limit.get(GPU_RESOURCE, 0)) for limit in limits)


def _pods(pods: list[Manifest]) -> Table:
    table = _table("POD", "READY", "RESTARTS", "STATE", "NODE")
    for pod in pods:
        metadata, status = pod["metadata"], pod["status"]
        containers = status.get("containerStatuses") or []
        ready = bool(containers) and all(item["ready"] for item in containers)
        restarts = sum(item["restartCount"] for item in containers)
        name = f"{metadata['namespace']}/{metadata['name']}"
        table.add_row(name, _yes(ready), str(restarts), reason(pod), pod["spec"].get("nodeName", ""))
    return table


def reason(pod: Manifest) -> str:
    """What the pod does, or why it does not run."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = pod["status"]
    for item in status.get("containerStatuses") or []:
        if waiting := item.get("state", {}).get("waiting"):
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', 'Pending')}: {condition.get('message', '')}"
    return status.get("phase", "Unknown")


def _services(api: Api) -> Table:
    hpas = {_target(item): item for item in api.list("autoscaling/v2", "HorizontalPodAutoscaler")}
    scalers = {_target(item): item for item in api.list("keda.sh/v1alpha1", "ScaledObject")}
    table = _table("SERVICE", "REPLICAS", "SIGNALS PER REPLICA")
    table.add_column("ADDRESS", no_wrap=True, overflow="ignore")
    for deployment in api.list("apps/v1", "Deployment", label_selector=SERVICES):
        namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
        replicas = f"{deployment['status'].get('readyReplicas', 0)} ready, {deployment['spec']['replicas']} desired"
        hpa, scaler = hpas.get((namespace, name)), scalers.get((namespace, name))
        if hpa:
            replicas += f", {hpa['spec'].get('minReplicas', 1)} to {hpa['spec']['maxReplicas']}"
        url = ""
        with suppress(ApiException, KeyError):
            host, port = address(api, namespace, name, "http")
            url = f"http://{host}:{port}"
        found = "\n".join(signals(hpa, scaler)) if hpa and scaler else "none: it does not scale"
        table.add_row(f"{namespace}/{name}", replicas, found, url)
    return table


def _target(scaler: Manifest) -> tuple[str, str]:
    """Namespace and name of what an HPA or a ScaledObject scales."""
    return scaler["metadata"]["namespace"], scaler["spec"]["scaleTargetRef"]["name"]


def signals(hpa: Manifest, scaler: Manifest) -> list[str]:
    """Each trigger's metric as it is and its target, both per replica."""
    current = {
        metric["external"]["metric"]["name"]: metric["external"]["current"]
        for metric in hpa.get("status", {}).get("currentMetrics") or []
        if metric.get("external")
    }
    triggers = [trigger.get("name", trigger["type"]) for trigger in scaler["spec"]["triggers"]]
    lines = []
    for metric in hpa["spec"]["metrics"]:
        if external := metric.get("external"):
            name = external["metric"]["name"]  # s0-prometheus: KEDA counts the triggers
            trigger = triggers[int(name.partition("-")[0].removeprefix("s"))]
            now = current.get(name, {}).get("averageValue")
            lines.append(f"{trigger} {_number(now)} of {_number(external['target'].get('averageValue'))}")
    return lines


def _number(quantity: Any) -> str:
    """A Kubernetes quantity without its milli."""
    if quantity is None:
        return "unknown"
    text = str(quantity)
    return f"{float(text[:-1]) / 1000:g}" if text.endswith("m") else text


def _yes(value: bool) -> str:
    return "[green]yes[/]" if value else "[yellow]no[/]"
