"""What is published of a tool: origins of its binary with the checksums of releases.yaml."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .registry import Tool

FILE = Path(__file__).with_name("releases.yaml")
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
"""Go's names of architectures, by what a machine calls its own."""


@dataclass(frozen=True)
class Origin:
    """A published file that is, or holds, a tool's binary."""

    location: str
    """Address of a file, or an image as `REGISTRY/REPOSITORY`."""
    checksum: str
    """SHA-256 in hexadecimal: of the file, or of the image's index."""
    member: str
    """Path of the binary in the archive or image. Empty: the file is the binary."""
    image: bool = False
    silent: bool = False
    """The published binary does not tell its version."""

    def key(self, tool: Tool) -> str:
        """Name of the folder where it is installed. Another checksum is another folder."""
        return f"{tool.name}-{tool.version}-{self.checksum[:8]}"


def architecture() -> str:
    """Go's name of the architecture of this machine; empty for one for which nothing is published."""
    return ARCHITECTURES.get(platform.machine().lower(), "")


@cache
def entries() -> Mapping[str, list[dict[str, Any]]]:
    """releases.yaml as it is: origins by the name of the tool."""
    return yaml.safe_load(FILE.read_text())


def origins(tool: Tool, arch: str) -> list[Origin]:
    """Where the pinned version is published for an architecture, in the order in which to try."""
    return [origin for entry in entries().get(tool.name, []) if (origin := _origin(tool, entry, arch))]


def _origin(tool: Tool, entry: Mapping[str, Any], arch: str) -> Origin | None:
    checksum = entry["digest"].removeprefix("sha256:") if "image" in entry else entry["sha256"].get(arch)
    if not checksum or not arch or entry["version"] != tool.version:
        return None
    fields = {"version": tool.version, "number": tool.version.removeprefix("v"), "arch": arch, "binary": tool.binary}
    return Origin(
        location=entry.get("image") or entry["url"].format_map(fields),
        checksum=checksum,
        member=entry.get("member", "").format_map(fields),
        image="image" in entry,
        silent=entry.get("silent", False),
    )
