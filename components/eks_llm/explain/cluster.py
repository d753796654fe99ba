"""The Kubernetes API as plain documents, by a kubeconfig, and a Prometheus behind it.

The official client signs in as kubectl does (exec plugins such as `aws eks get-token`, certificates, contexts).
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_kube_config
from urllib3.exceptions import HTTPError

from .prometheus import TIMEOUT_SECONDS, Get, PrometheusError, refusal

Read = Callable[[str, dict[str, str]], dict[str, Any]]
"""Reads a path of the API with parameters. Raises `ClusterError`."""


class ClusterError(Exception):
    """The cluster cannot be asked; one line. `status`: of the HTTP answer, 0 without one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def connect(kubeconfig: Path | None, context: str | None) -> Read:
    """A reader for the cluster of a kubeconfig and context. Raises `ClusterError`."""
    if kubeconfig is not None and not kubeconfig.is_file():
        raise ClusterError(f"no cluster: the kubeconfig {kubeconfig} does not exist")
    configuration = Configuration()
    try:
        with _logged_errors() as errors:
            load_kube_config(
                config_file=None if kubeconfig is None else str(kubeconfig),
                context=context,
                client_configuration=configuration,
            )
    except (ConfigException, OSError) as error:
        raise ClusterError(f"no cluster: {' '.join(str(error).split())}") from None
    except Exception as error:  # the client lets errors of the YAML parser and of exec plugins through
        raise ClusterError(f"no cluster: the kubeconfig cannot be used: {' '.join(str(error).split())}") from None
    if errors:
        raise ClusterError(f"no cluster: the kubeconfig's user cannot sign in: {' '.join('; '.join(errors).split())}")
    configuration.retries = False  # pyright: ignore[reportAttributeAccessIssue] the client types it by its default
    if urlsplit(configuration.host).hostname in ("localhost", "127.0.0.1", "::1"):
        configuration.proxy = ""  # the client takes HTTPS_PROXY from the environment, even for the loopback interface
    client = ApiClient(configuration)

    def read(path: str, parameters: dict[str, str]) -> dict[str, Any]:
        try:
            answer: Any = client.call_api(
                f"{path}?{urlencode(parameters)}" if parameters else path,
                "GET",
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=TIMEOUT_SECONDS,
            )
            return json.loads(answer.data)
        except ApiException as error:
            raise ClusterError(_said(path, error), error.status or 0) from None
        except (HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise ClusterError(f"no cluster: {configuration.host} cannot be reached ({reason})") from None
        except ValueError:
            raise ClusterError(f"no cluster: {configuration.host} answers no JSON") from None

    return read


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """What the client logs as an error: that an exec plugin failed. It then goes on and asks without a token."""
    messages: list[str] = []

    def keep(entry: logging.LogRecord) -> bool:
        if entry.levelno >= logging.ERROR:
            messages.append(entry.getMessage())
        return False

    root = logging.getLogger()
    root.addFilter(keep)
    try:
        yield messages
    finally:
        root.removeFilter(keep)


def _said(path: str, error: ApiException) -> str:
    try:
        message = json.loads(error.body or "{}").get("message", error.reason)
    except (ValueError, TypeError, AttributeError):
        message = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.reason
    if error.status in (401, 403):
        return f"no permission: {message}"
    return f"{path}: {message}"


def proxied(read: Read, address: str) -> Get | None:
    """Prometheus through the API server, for an address such as `http://prometheus.monitoring.svc:9090`; else None."""
    url = urlsplit(address)
    match = re.fullmatch(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc(\..*)?", url.hostname or "")
    if not match:
        return None
    port = url.port or (443 if url.scheme == "https" else 80)
    base = f"/api/v1/namespaces/{match[2]}/services/{url.scheme}:{match[1]}:{port}/proxy{url.path.rstrip('/')}"

    def get(path: str, parameters: dict[str, str]) -> dict[str, Any]:
        try:
            return read(f"{base}{path}", parameters)
        except ClusterError as error:
            if error.status == 400:  # Prometheus's own refusal of a query, in the API server's words
                return refusal(address, error.status, json.dumps({"status": "error", "error": str(error)}).encode())
            raise PrometheusError(f"no Prometheus at {address} through the API server: {error}") from None

    return get
