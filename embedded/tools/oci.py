"""One file of a published container image, by plain HTTP and without a container runtime.

The digest of an image's index is the SHA-256 of that text, which names the manifests of all architectures by their
digests, and they name the layers by theirs: so one pinned digest vouches for the file.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

from .archives import extract
from .download import DownloadError, Network, RefusedError, Transfer, fetch

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_MAX_TEXT = 4 * 10**6
"""Bytes of an index or a manifest: what registries accept."""


class Registry:
    """A repository of images on a registry that anyone may read."""

    def __init__(self, network: Network, location: str) -> None:
        """`location`: `REGISTRY/REPOSITORY`. A registry on the loopback interface is spoken to without TLS."""
        self.network = network
        self.location = location
        registry, _, repository = location.partition("/")
        scheme = "http" if re.match(r"(127\.|localhost)", registry) else "https"
        self.url = f"{scheme}://{registry}/v2/{repository}"
        self.headers: dict[str, str] = {}
        """Of all requests, once the registry has asked for a token."""

    def take(self, digest: str, arch: str, member: str, target: Path, transfer: Transfer) -> None:
        """Writes the image's file `member` to `target`. Raises `DownloadError`."""
        manifest = self._manifest(digest)
        if "manifests" in manifest:
            manifest = self._manifest(self._of_platform(manifest, arch))
        for layer in reversed(manifest["layers"]):  # a program is added last
            if not re.search(r"(gzip|\.tar)$", layer["mediaType"]):
                raise DownloadError(f"{self.location} has a layer of an unknown kind, {layer['mediaType']}")
            checksum = _hexadecimal(layer["digest"])
            blob = target.with_name(checksum)
            url = f"{self.url}/blobs/{layer['digest']}"
            fetch(self.network, url, blob, checksum, transfer=transfer, headers=self.headers)
            try:
                if extract(blob, member, target):
                    return
            finally:
                blob.unlink()
        raise DownloadError(f"{self.location} has no file {member}")

    def _of_platform(self, index: Mapping[str, Any], arch: str) -> str:
        for entry in index["manifests"]:
            if (entry.get("platform", {}).get("os"), entry.get("platform", {}).get("architecture")) == ("linux", arch):
                return _hexadecimal(entry["digest"])
        raise DownloadError(f"{self.location} is not published for {arch}")

    def _manifest(self, digest: str) -> dict[str, Any]:
        url = f"{self.url}/manifests/sha256:{digest}"
        try:
            text = self._get(url)
        except HTTPError as error:
            error.close()
            if error.code != 401:
                raise DownloadError(f"{url} answers {error.code} {error.reason}") from None
            self.headers["Authorization"] = f"Bearer {self._token(error.headers.get('WWW-Authenticate', ''))}"
            try:
                text = self._get(url)
            except HTTPError as again:
                again.close()
                raise DownloadError(f"{url} answers {again.code} {again.reason}") from None
        if (found := hashlib.sha256(text).hexdigest()) != digest:
            raise RefusedError(f"{url} has the SHA-256 {found}, which is not its name")
        return json.loads(text)

    def _get(self, url: str) -> bytes:
        with self.network.open(url, {"Accept": ", ".join((*_INDEXES, *_MANIFESTS)), **self.headers}) as response:
            text = response.read(_MAX_TEXT)
            if len(text) != int(response.headers.get("Content-Length", len(text))):
                raise DownloadError(f"{url}: the connection broke off")
            return text

    def _token(self, challenge: str) -> str:
        """Registries give one to anyone, but want to be asked (distribution's token authentication)."""
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if not (realm := fields.pop("realm", "")):
            raise DownloadError(f"{self.location} asks for credentials")
        try:
            with self.network.open(f"{realm}?{urlencode(fields)}") as response:
                answer = json.loads(response.read(_MAX_TEXT))
        except HTTPError as error:
            error.close()
            raise DownloadError(f"{realm} answers {error.code} {error.reason}") from None
        return answer.get("token") or answer["access_token"]


def _hexadecimal(digest: str) -> str:
    if not (match := re.fullmatch(r"sha256:([0-9a-f]{64})", digest)):
        raise DownloadError(f"{digest!r} is no SHA-256 digest")
    return match[1]
