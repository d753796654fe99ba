"""Strict schemas of Kubernetes objects: the API server's own, and the CRDs of the pinned operators.

They are read from the Go modules that publish them.
As with `kubectl --validate=strict`, a field that no schema knows is refused. Not checked here: rules that only the API
server's code or CEL knows (tests/cluster has a real API server).
"""

import json
from functools import cache
from typing import Any

import jsonschema
import yaml

from eks_llm.catalog.charts import CHARTS
from embedded.tools.source import go_module

CRDS = {
    "keda.sh": ("github.com/kedacore/keda/v2", "keda", "config/crd/bases"),
    "monitoring.coreos.com": (
        "github.com/prometheus-operator/prometheus-operator",
        "kube-prometheus-stack",
        "example/prometheus-operator-crd",
    ),
}
"""API group → Go module, chart whose application version is the module's, and folder of the CRDs."""

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def problems(manifest: dict[str, Any], kubernetes: str) -> list[str]:
    """What a cluster of the given minor (`1.35`) would refuse: the path of each field, and why."""
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    group = api_version.rpartition("/")[0]
    is_custom = "." in group and not group.endswith(".k8s.io")
    schema = (_custom if is_custom else _built_in)(kubernetes, api_version, kind)
    errors = jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    return sorted(f"{kind} {_name(manifest)}: {error.json_path}: {error.message}" for error in errors)


@cache
def _built_in(kubernetes: str, api_version: str, kind: str) -> dict[str, Any]:
    group, _, version = api_version.rpartition("/")
    document = _openapi(kubernetes, f"apis__{group}__{version}" if group else f"api__{version}")
    wanted = {"group": group, "version": version, "kind": kind}
    for name, schema in document["components"]["schemas"].items():
        if schema.get("x-kubernetes-group-version-kind") == [wanted]:
            return {**document, "$ref": f"#/components/schemas/{name}"}
    raise LookupError(f"Kubernetes {kubernetes} has no {kind} in {api_version}")


@cache
def _custom(kubernetes: str, api_version: str, kind: str) -> dict[str, Any]:
    group, _, version = api_version.partition("/")
    module, chart, folder = CRDS[group]
    release = f"v{CHARTS[chart].app_version.removeprefix('v')}"
    file = go_module(module, release) / folder / f"{group}_{kind.lower()}s.yaml"  # controller-gen's name of the file
    if not file.exists():
        raise LookupError(f"{module} {release} has no {kind} in {group}")
    versions = yaml.safe_load(file.read_text())["spec"]["versions"]
    schema = next(item["schema"]["openAPIV3Schema"] for item in versions if item["name"] == version)
    # A CRD says only that metadata is an object; the API server holds it to ObjectMeta.
    schema["properties"]["metadata"] = {"$ref": f"#/components/schemas/{META}"}
    return {**_openapi(kubernetes, "api__v1"), **_strict(schema)}


@cache
def _openapi(kubernetes: str, document: str) -> dict[str, Any]:
    # Patch releases add no fields, so the minor's first release has its schemas.
    file = (
        go_module("k8s.io/kubernetes", f"v{kubernetes}.0") / "api" / "openapi-spec" / "v3" / f"{document}_openapi.json"
    )
    if not file.exists():
        raise LookupError(f"Kubernetes {kubernetes} does not serve {document.replace('__', '/')}")
    return {"components": {"schemas": _strict(json.loads(file.read_text())["components"]["schemas"])}}


def _strict(schema: Any) -> Any:
    """OpenAPI as JSON schema that knows all fields, with Kubernetes' extensions said in JSON schema's own words."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items() if key not in ("default", "format", "description")}
    if schema.get("x-kubernetes-int-or-string"):
        strict.pop("anyOf", None)
        strict["type"] = ["integer", "string"]
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        strict["type"] = [schema["type"], "null"]
    if schema.get("format") == "int-or-string" or schema.get("oneOf") == [{"type": "string"}, {"type": "number"}]:
        strict = {"anyOf": strict["oneOf"]}  # an integer is a number too
    has_fields = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if has_fields and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        strict["additionalProperties"] = False
    if schema.get("x-kubernetes-embedded-resource"):
        strict.setdefault("properties", {}).update({key: {} for key in ("apiVersion", "kind", "metadata")})
    return strict


def _name(manifest: dict[str, Any]) -> str:
    return str(manifest.get("metadata", {}).get("name", "without a name"))
