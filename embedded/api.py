"""A Kubernetes client for one kubeconfig file, and no other: it looks at nothing in the caller's environment."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient, Configuration
from kubernetes.config import load_kube_config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ApiException, NotFoundError
from urllib3.exceptions import HTTPError

from .process import PATIENCE, PlatformError

MANAGER = "eks-llm-embedded"
"""Field manager of what the platform itself applies."""

REFUSED_OR_AWAY = (ApiException, HTTPError, OSError)
"""What a request raises if the API server says no, and if it does not answer, e.g. because it restarts."""

Manifest = dict[str, Any]

__all__ = ["REFUSED_OR_AWAY", "Api", "ApiException", "Manifest", "NotFoundError", "condition"]


def condition(found: Manifest, kind: str) -> str:
    """Status of an object's condition: `True`, `False` or `Unknown`; empty if it has none of this kind."""
    conditions = found.get("status", {}).get("conditions") or []
    return next((item["status"] for item in conditions if item["type"] == kind), "")


class Api:
    """Reads and writes objects as plain dicts."""

    def __init__(self, kubeconfig: Path) -> None:
        configuration = Configuration()
        load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        configuration.proxy = ""  # the client takes HTTPS_PROXY from the environment, even for the loopback interface
        # Its default cache of the API's kinds is a file per address, and another platform may have had this address.
        self._client = DynamicClient(ApiClient(configuration), cache_file=str(kubeconfig.with_name("api-kinds.json")))

    def apply(self, manifest: Manifest, dry_run: bool = False, manager: str = MANAGER) -> Manifest:
        """Server-side apply. Unknown fields are refused, as the API server may only warn of them otherwise."""
        options: dict[str, Any] = {"dry_run": "All"} if dry_run else {}
        return (
            self._kind(manifest)
            .server_side_apply(
                body=manifest,
                namespace=manifest["metadata"].get("namespace"),
                field_manager=manager,
                force_conflicts=True,
                query_params=[("fieldValidation", "Strict")],
                **options,
            )
            .to_dict()
        )

    def create(self, manifest: Manifest, dry_run: bool = False) -> Manifest:
        options: dict[str, Any] = {"dry_run": "All"} if dry_run else {}
        return (
            self._kind(manifest)
            .create(
                body=manifest,
                namespace=manifest["metadata"].get("namespace"),
                query_params=[("fieldValidation", "Strict")],
                **options,
            )
            .to_dict()
        )

    def get(self, version: str, kind: str, name: str, namespace: str | None = None) -> Manifest:
        """Raises `NotFoundError`."""
        return self._client.resources.get(api_version=version, kind=kind).get(name=name, namespace=namespace).to_dict()

    def list(self, version: str, kind: str, namespace: str | None = None, **selectors: str) -> list[Manifest]:
        """Selectors: `label_selector`, `field_selector`."""
        found = self._client.resources.get(api_version=version, kind=kind).get(namespace=namespace, **selectors)
        return found.to_dict()["items"]

    def patch(self, manifest: Manifest, subresource: str = "") -> Manifest:
        """Merges `manifest` into the object (JSON merge patch)."""
        resource = self._kind(manifest)
        target = resource.subresources[subresource] if subresource else resource
        return target.patch(
            body=manifest,
            name=manifest["metadata"]["name"],
            namespace=manifest["metadata"].get("namespace"),
            content_type="application/merge-patch+json",
        ).to_dict()

    def delete(self, manifest: Manifest, grace: int | None = None) -> None:
        """Deletes an object; one that is gone already is none."""
        metadata = manifest["metadata"]
        options = {} if grace is None else {"grace_period_seconds": grace}
        with suppress(NotFoundError):
            self._kind(manifest).delete(name=metadata["name"], namespace=metadata.get("namespace"), **options)

    def watch(self, version: str, kind: str, timeout: int, **selectors: str) -> Iterator[tuple[str, Manifest]]:
        """Events (`ADDED`, `MODIFIED`, `DELETED`) and the object, for `timeout` seconds; first all that exist."""
        resource = self._client.resources.get(api_version=version, kind=kind)
        events: Any = self._client.watch(resource, timeout=timeout, **selectors)
        for event in events:
            yield event["type"], event["raw_object"]

    def raw(self, path: str) -> Manifest:
        """GET of any path, e.g. `/apis/external.metrics.k8s.io/v1beta1`."""
        return json.loads(self._client.request("get", path, serialize=False).data)

    def wait(self, what: str, condition: Callable[[], object], timeout: float = PATIENCE) -> Any:
        """Waits until `condition` is true and returns what it returned. Errors of the API count as not yet.

        Raises `PlatformError`, which says `what` was waited for, and the last error.
        """
        deadline, last = time.monotonic() + timeout, ""
        while time.monotonic() < deadline:
            try:
                if result := condition():
                    return result
            except REFUSED_OR_AWAY as error:
                last = f" ({str(error).strip()})"
            time.sleep(0.1)
        raise PlatformError(f"{what}: not within {timeout:g} s{last}")

    def _kind(self, manifest: Manifest) -> Any:
        return self._client.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
