"""One context of one kubeconfig file, as a text that needs no other file of that kind and no variable of the shell."""

import json
from pathlib import Path
from typing import Any, cast

import yaml

PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys of clusters and users whose value is a path, relative to the kubeconfig's folder. Source: client-go,
`clientcmd/loader.go`, `GetClusterFileReferences` and `GetAuthInfoFileReferences`."""


def read(file: Path, context: str | None = None) -> str:
    """The kubeconfig of one context (default: the file's current one), as JSON with absolute paths.

    Raises `ValueError`, which says what is wrong with the file, and `OSError`.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ValueError("not a kubeconfig: it is no YAML") from None
    if not isinstance(content, dict) or not content.get("contexts"):
        raise ValueError("not a kubeconfig: it has no contexts")
    config = cast(dict[str, Any], content)
    name = context or config.get("current-context")
    known = ", ".join(sorted(str(item.get("name")) for item in _items(config, "contexts")))
    if not name:
        raise ValueError(f"it has no current-context; set context to one of {known}")
    chosen = _named(config, "contexts", name, "context", f" (known: {known})")
    cluster = _named(config, "clusters", chosen.get("cluster"), "cluster", f", of context {name!r}")
    user = _named(config, "users", chosen.get("user"), "user", f", of context {name!r}")
    if not cluster.get("server"):
        raise ValueError(f"cluster {chosen['cluster']!r} has no server")
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "contexts": [{"name": name, "context": chosen}],
            "clusters": [{"name": chosen["cluster"], "cluster": _absolute(cluster, file.parent)}],
            "users": [{"name": chosen["user"], "user": _absolute(user, file.parent)}],
        },
        sort_keys=True,
    )


def _items(config: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [item for item in config.get(key) or [] if isinstance(item, dict)]


def _named(config: dict[str, Any], key: str, name: Any, kind: str, where: str) -> dict[str, Any]:
    """The content of the item called `name` in one of a kubeconfig's lists."""
    found = next((item.get(kind) for item in _items(config, key) if item.get("name") == name), None)
    if not isinstance(found, dict):
        raise ValueError(f"it has no {kind} {name!r}{where}")
    return cast(dict[str, Any], found)


def _absolute(item: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A cluster or user whose paths hold from every working directory."""
    whole = {key: str((folder / value).resolve()) if key in PATHS else value for key, value in item.items()}
    command = (item.get("exec") or {}).get("command", "")
    if "/" in command:  # one without is looked for on PATH
        whole["exec"] = {**item["exec"], "command": str(folder / command)}
    return whole
