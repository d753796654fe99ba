"""The Kubernetes objects of a recording as YAML files: `eks-llm plan --manifests DIR`."""

import base64
import re
from pathlib import Path
from typing import Any

import yaml

from ..core.secrets import SECRET
from .recorder import Recording

HEADER = "# Written by eks-llm plan: "
"""How a file begins that a later run may replace."""

_Dumper: Any = getattr(
    yaml, "CSafeDumper", yaml.SafeDumper
)  # the C emitter is several times faster, where it was built


def manifests(recording: Recording) -> dict[str, str]:
    """Text of each file by its relative path, e.g. `llm/deployment-chat.yaml`. Secret values read `[secret]`."""
    files: dict[str, str] = {}
    for item in recording.resources:
        if not item.type.startswith("kubernetes:") or "apiVersion" not in item.inputs or "kind" not in item.inputs:
            continue
        body = _object(item.inputs, item.name)
        metadata = body["metadata"]
        folder = _safe(metadata.get("namespace", "cluster"))
        path = f"{folder}/{_safe(body['kind'])}-{_safe(metadata['name'])}.yaml"
        if path in files:
            path = f"{path.removesuffix('.yaml')}-{_safe(item.name)}.yaml"
        text = yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
        files[path] = f"{HEADER}{item.urn}\n{text}"
    return files


def write(files: dict[str, str], directory: Path) -> None:
    """Writes `files` below `directory` and removes what an earlier run wrote there; other files stay."""
    for old in directory.glob("*/*.yaml"):
        with old.open(encoding="utf-8", errors="replace") as file:
            written_by_us = file.read(len(HEADER)) == HEADER
        if written_by_us:
            old.unlink()
    for path, text in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _object(inputs: dict[str, Any], name: str) -> dict[str, Any]:
    """The object in the order in which people write it, with a name, and without the values of a Secret."""
    metadata = {"name": name, **(inputs.get("metadata") or {})}
    first = {"apiVersion": inputs["apiVersion"], "kind": inputs["kind"], "metadata": metadata}
    rest = {key: value for key, value in inputs.items() if key not in first}
    if inputs["kind"] == "Secret":
        encoded = base64.b64encode(SECRET.encode()).decode()
        for key, mark in (("data", encoded), ("stringData", SECRET)):
            if isinstance(rest.get(key), dict):
                rest[key] = dict.fromkeys(rest[key], mark)
    return first | rest


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.").lower() or "unnamed"
