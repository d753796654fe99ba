"""A pod's manifest as something that runs on this machine: volumes, environment, command lines.

Not emulated: see runner.py. What a manifest asks for beyond that raises `NotEmulated`, so that no pod runs as something
else than it says.
"""

import base64
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from eks_llm.core.placement import NVME_MOUNT

from .api import Api, Manifest
from .images import Stand, repository
from .sandbox import Mount, Sandbox


class NotEmulated(Exception):  # noqa: N818 it says what it is
    """The pod asks for something that the pod runner does not do."""


class Volumes:
    """The volumes of one pod, made in its folder when it starts."""

    def __init__(self, api: Api, pod: Manifest, folder: Path, nvme: Path) -> None:
        self._api = api
        self._namespace = pod["metadata"]["namespace"]
        self._folder = folder
        self._nvme = nvme
        self._volumes: dict[str, Manifest] = {item["name"]: item for item in pod["spec"].get("volumes", [])}

    def mounts(self, container: Manifest) -> list[Mount]:
        """What a container mounts. Raises `NotEmulated`, and `NotFoundError` while a ConfigMap or Secret is missing."""
        return [mount for item in container.get("volumeMounts", []) for mount in self._mount(item)]

    def _mount(self, item: Manifest) -> list[Mount]:
        volume, target = self._volumes[item["name"]], item["mountPath"]
        read_only = item.get("readOnly", False)
        if "hostPath" in volume:
            return self._host_path(volume["hostPath"]["path"], target, read_only)
        if "emptyDir" in volume and volume["emptyDir"].get("medium") == "Memory":
            return [Mount(target)]
        source = self._content(volume)
        if "subPath" in item:
            source /= item["subPath"]
        return [Mount(target, str(source), read_only)]

    def _host_path(self, path: str, target: str, read_only: bool) -> list[Mount]:
        """Below the array of NVMe disks, which a folder stands in for."""
        array = PurePosixPath(NVME_MOUNT)
        if not PurePosixPath(path).is_relative_to(array):
            raise NotEmulated(f"hostPath {path}: only {NVME_MOUNT} exists on a local node")
        source = self._nvme / PurePosixPath(path).relative_to(array)
        source.mkdir(parents=True, exist_ok=True)
        return [Mount(target, str(source), read_only)]

    def _content(self, volume: Manifest) -> Path:
        """A folder with the volume's files. ConfigMaps and Secrets are read once: later changes do not arrive."""
        folder = self._folder / "volumes" / volume["name"]
        if folder.exists():
            return folder
        if "emptyDir" in volume:
            files: dict[str, bytes] = {}
        elif "configMap" in volume:
            found = self._api.get("v1", "ConfigMap", volume["configMap"]["name"], self._namespace)
            files = _items({key: text.encode() for key, text in found.get("data", {}).items()}, volume["configMap"])
        elif "secret" in volume:
            found = self._api.get("v1", "Secret", volume["secret"]["secretName"], self._namespace)
            files = _items(_decoded(found), volume["secret"])
        else:
            kinds = ", ".join(volume.keys() - {"name"})
            raise NotEmulated(f"volume {volume['name']}: {kinds} (only configMap, secret, emptyDir, hostPath)")
        folder.mkdir(parents=True)
        for name, content in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return folder


def _items(files: dict[str, bytes], volume: Manifest) -> dict[str, bytes]:
    """The files under the paths that the volume gives them."""
    if "items" not in volume:
        return files
    return {item["path"]: files[item["key"]] for item in volume["items"]}


def _decoded(secret: Manifest) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in secret.get("data", {}).items()}


def environment(api: Api, pod: Manifest, container: Manifest, ip: str) -> dict[str, str]:
    """The container's variables. Raises `NotEmulated`, and `NotFoundError` while a ConfigMap or Secret is missing."""
    if "envFrom" in container:
        raise NotEmulated(f"container {container['name']}: envFrom")
    values: dict[str, str] = {}
    for item in container.get("env", []):
        source = item.get("valueFrom")
        values[item["name"]] = _value(api, pod, source, ip) if source else expand(item.get("value", ""), values)
    return values


def _value(api: Api, pod: Manifest, source: Manifest, ip: str) -> str:
    namespace = pod["metadata"]["namespace"]
    if reference := source.get("fieldRef"):
        fields = {
            "metadata.name": pod["metadata"]["name"],
            "metadata.namespace": namespace,
            "metadata.uid": pod["metadata"]["uid"],
            "spec.nodeName": pod["spec"]["nodeName"],
            "status.podIP": ip,
        }
        if reference["fieldPath"] in fields:
            return fields[reference["fieldPath"]]
    if reference := source.get("secretKeyRef"):
        return _decoded(api.get("v1", "Secret", reference["name"], namespace))[reference["key"]].decode()
    if reference := source.get("configMapKeyRef"):
        return api.get("v1", "ConfigMap", reference["name"], namespace)["data"][reference["key"]]
    raise NotEmulated(f"valueFrom {source}")


def expand(text: str, values: dict[str, str]) -> str:
    """`$(NAME)` becomes the variable, `$$(NAME)` stays as `$(NAME)`, and so does a name that is not set."""

    def replace(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        return match[0][1:] if escaped else values.get(name, match[0])

    return re.sub(r"(\$?)\$\(([A-Za-z_][\w.-]*)\)", replace, text)


def sandbox(
    pod: Manifest, container: Manifest, values: dict[str, str], mounts: list[Mount], images: dict[str, Stand]
) -> Sandbox:
    """The container's own command line, in its environment and with its volumes. Raises `NotEmulated`."""
    stand = images.get(repository(container["image"]), Stand())
    if "postStart" in container.get("lifecycle", {}):
        raise NotEmulated(f"container {container['name']}: a postStart hook")
    command = [expand(part, values) for part in [*container.get("command", []), *container.get("args", [])]]
    if not command:
        raise NotEmulated(f"container {container['name']}: the command of an image's own entrypoint")
    hostname = {"HOSTNAME": pod["metadata"]["name"]}
    own = [Mount(target, source, read_only=True) for target, source in stand.folders.items()]
    return Sandbox(
        command,
        {"PATH": os.environ.get("PATH", os.defpath), **hostname, **stand.environment, **values},
        [*own, *mounts],
        container.get("workingDir", "/"),
    )


def container_ports(container: Manifest) -> dict[str, int]:
    """Ports by name; one without a name goes by its number."""
    ports: list[Any] = container.get("ports", [])
    return {port.get("name", str(port["containerPort"])): port["containerPort"] for port in ports}
