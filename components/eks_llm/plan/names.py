"""Names in a recording: every object has a legal one, and none is another's, also not in the project's other stacks."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from ..core.reserved import aws_name, aws_problem, kubernetes_problem
from ..core.secrets import SECRET
from .recorder import UNKNOWN, Recording, Resource


def problems(recording: Recording) -> Iterator[str]:
    """Two objects of one name, and names that Kubernetes or AWS does not take, with the components that make them."""
    first: dict[tuple[str, ...], Resource] = {}
    for item in recording.resources:
        key, problem = _key(item)
        if problem:
            yield f"{_maker(item)}: {key[-1]!r} as the name of a {item.kind}: {problem}; give it another name"
        if not key or SECRET in key or UNKNOWN in key:
            continue
        other = first.setdefault(key, item)
        if other is not item:
            name = "/".join(part for part in key[-2:] if part)
            yield (
                f"{_maker(other)} and {_maker(item)} both make the {item.kind} {name}: only one of them can exist; "
                "give one another name"
            )


def _key(item: Resource) -> tuple[tuple[str, ...], str | None]:
    """What tells an object from all others of its provider, and what is wrong with its name."""
    if item.type in _NO_OBJECT or item.type.endswith("Patch") or not item.custom:
        return (), None
    if item.type.startswith("kubernetes:"):
        metadata = item.inputs.get("metadata")
        name = cast(dict[str, Any], metadata).get("name") if isinstance(metadata, dict) else None
        kind = str(item.inputs.get("kind") or item.kind)
        if not isinstance(name, str) or not name:
            return (), None
        namespace = str(cast(dict[str, Any], metadata).get("namespace") or "")
        key = (item.provider, kind, str(item.inputs.get("apiVersion", "")).rpartition("/")[0], namespace, name)
        plain = name not in (SECRET, UNKNOWN)
        return key, kubernetes_problem(kind, namespace, name) if plain else None
    name = aws_name(item.type, item.inputs)
    if name in (SECRET, UNKNOWN):
        return (), None
    problem = aws_problem(item.type, item.name, name)
    return (item.provider, item.type, "", name) if name else (("", item.name) if problem else ()), problem


_NO_OBJECT = {"kubernetes:helm.sh/v3:Release", "kubernetes:helm.sh/v4:Chart", "kubernetes:yaml/v2:ConfigGroup"}
"""Types of the Kubernetes provider that are no object of the cluster. Nor are patches: they change one of another."""


def _maker(item: Resource) -> str:
    """The component that a resource belongs to, in the words of a program; the resource itself without one."""
    if not item.parent or "::pulumi:pulumi:Stack::" in item.parent:
        return f'{item.kind} "{item.name}"'
    chain, name = item.parent.split("::")[2], item.parent.split("::", 3)[3]
    return f'{chain.rsplit(":", 1)[-1]} "{name}"'


# Across stacks ------------------------------------------------------------------------------------------------------


def across(stack: str, configurations: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What this stack makes and another stack of the project makes too, by what their files say below `platform`."""
    own = dict(_made(configurations.get(stack, {})))
    for other, config in configurations.items():
        for key, _ in _made(config):
            if other != stack and key in own:
                yield f"Pulumi.{stack}.yaml: {own[key]}, and so does Pulumi.{other}.yaml; {_OTHERWISE[key[0]]}"


_OTHERWISE = {
    "bucket": "name another bucket in one of them, or write create: false where it is made elsewhere",
    "namespace": "choose another namespace in one of them",
}


def _made(config: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Objects that exist once in an account or cluster: a key for comparison, and the setting in words."""
    for key, platform in config.items():
        if not key.endswith(":platform") or not isinstance(platform, dict):
            continue
        weights, existing = platform.get("weights"), platform.get("existingCluster")
        if isinstance(weights, dict) and not existing and weights.get("create", True) is True and weights.get("bucket"):
            bucket = str(weights["bucket"])
            yield ("bucket", bucket), f"platform.weights.bucket: {bucket!r} is made by this stack (create)"
        if isinstance(existing, dict):
            place = tuple(str(existing.get(part, "")) for part in ("kubeconfig", "context"))
            namespace = str(existing.get("namespace", "inference"))
            text = f"platform.existingCluster.namespace: this stack makes {namespace!r} in the cluster of {place[0]}"
            yield ("namespace", *place, namespace), text
