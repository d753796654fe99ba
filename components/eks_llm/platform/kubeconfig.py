"""One context of one kubeconfig file, as a text that needs no other file of that kind and no variable of the shell."""

import json
from pathlib import Path
from typing import Any, cast

from ..core.problems import shown
from ..core.strict_yaml import YamlError
from ..core.strict_yaml import read as read_yaml

PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys of clusters and users whose value is a path, relative to the kubeconfig's folder. Source: client-go,
`clientcmd/loader.go`, `GetClusterFileReferences` and `GetAuthInfoFileReferences`."""


def read(file: Path, context: str | None = None) -> str:
    """The kubeconfig of one context (default: the file's current one), as JSON with absolute paths.

    Raises `ValueError`, which says what is wrong with the file, and `OSError`.
    """
    try:
        content = read_yaml(file.read_text(encoding="utf-8"), times=False)  # kubectl takes a time as its text
    except YamlError as error:
        raise ValueError(f"not a kubeconfig: {error}") from None
    except UnicodeDecodeError:
        raise ValueError("not a kubeconfig: it is no text in UTF-8") from None
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
    if not isinstance(cluster.get("server"), str) or not cluster["server"]:
        raise ValueError(f"cluster {chosen['cluster']!r} has no server; write its address, https://…")
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "contexts": [{"name": name, "context": chosen}],
            "clusters": [{"name": chosen["cluster"], "cluster": _absolute("cluster", cluster, file.parent)}],
            "users": [{"name": chosen["user"], "user": _absolute("user", user, file.parent)}],
        },
        sort_keys=True,
    )


def _items(config: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = config.get(key) or []
    if not isinstance(items, list):
        raise ValueError(f"{key}: {shown(type(items).__name__)} where a list of mappings is expected")
    return [item for item in cast(list[Any], items) if isinstance(item, dict)]


def _named(config: dict[str, Any], key: str, name: Any, kind: str, where: str) -> dict[str, Any]:
    """The content of the item called `name` in one of a kubeconfig's lists."""
    found = next((item.get(kind) for item in _items(config, key) if item.get("name") == name), None)
    if not isinstance(name, str) or not isinstance(found, dict):
        raise ValueError(f"it has no {kind} {shown(name)}{where}")
    return cast(dict[str, Any], found)


def _absolute(kind: str, item: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A cluster or user whose paths hold from every working directory. No message repeats a value: it may be a key."""
    whole = dict(item)
    for key in PATHS:
        if item.get(key) is None:
            whole.pop(key, None)
        elif isinstance(item[key], str):
            whole[key] = str((folder / item[key]).resolve())
        else:
            raise ValueError(f"{kind}.{key}: not a path; write text, in quotes")
    plugin = item.get("exec")
    if plugin is None:
        return whole
    if not isinstance(plugin, dict) or not isinstance(plugin.get("command"), str):
        raise ValueError(
            f"{kind}.exec: has no command; write a mapping such as {{command: aws, args: [eks, get-token]}}"
        )
    if "/" in plugin["command"]:  # one without is looked for on PATH
        whole["exec"] = {**plugin, "command": str(folder / plugin["command"])}
    return whole
