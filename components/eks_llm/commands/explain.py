"""`eks-llm explain`: why a service has the replicas it has."""

import json
import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .output import console, fail


class Format(Enum):
    """How an explanation is shown."""

    TEXT = "text"
    JSON = "json"


def explain(
    service: Annotated[str, typer.Argument(help="Service, as the stack file names it.")],
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the service.")] = "inference",
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Kubeconfig. Default: kubectl's, KUBECONFIG or ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="Its context. Default: the current one.")] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Prometheus. Default: KEDA's, through the API server where it is a Service."),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="text for people, json for programs.")] = Format.TEXT,
) -> None:
    """Say why a service has the replicas it has: signals, windows, policies, pending pods, fallback, and a verdict."""
    try:  # imported here: the Kubernetes client is an extra, and the other commands need none of it
        from ..explain import cluster, show
        from ..explain import prometheus as metrics
        from ..explain.observe import NoServiceError, Source, observe
        from ..explain.why import explain as reasons
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kubernetes":
            raise
        fail(["the Kubernetes client is missing; install it with: pip install 'eks-llm[explain]'"])

    try:
        read = cluster.connect(kubeconfig, context)
        if prometheus is not None:
            named = metrics.direct(prometheus)
            named("/api/v1/query", {"query": "vector(1)"})  # what was named on purpose has to answer
            source = Source(read, lambda _: named)
        else:
            source = Source(read, lambda address: cluster.proxied(read, address) or metrics.direct(address))
        found = reasons(observe(source, service, namespace, time.time()))
    except (cluster.ClusterError, metrics.PrometheusError, NoServiceError) as error:
        fail([str(error)])
    if format_ is Format.JSON:
        typer.echo(json.dumps(show.as_json(found), indent=2))
    else:
        console().print(show.text(found), end="", soft_wrap=True)
