"""How a dashboard reaches Grafana: in a ConfigMap that its sidecar finds by a label, in any namespace."""

import json
from collections.abc import Mapping
from typing import Any

LABELS = {"grafana_dashboard": "1"}
"""Labels of a ConfigMap whose keys `*.json` are dashboards. Source: Grafana's chart, sidecar.dashboards."""
FOLDER_ANNOTATION = "grafana_folder"
"""Annotation of such a ConfigMap that names the dashboards' folder; the chart's value has to say so."""
ANNOTATIONS = {FOLDER_ANNOTATION: "LLM serving"}


def config_map(metadata: Mapping[str, Any], board: dict[str, Any]) -> dict[str, Any]:
    """A ConfigMap that Grafana's sidecar loads: `metadata` and what the sidecar looks for."""
    found = {
        **metadata,
        "labels": {**metadata.get("labels", {}), **LABELS},
        "annotations": {**metadata.get("annotations", {}), **ANNOTATIONS},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": found, "data": data(board)}


def data(board: dict[str, Any]) -> dict[str, str]:
    """The `data` of a ConfigMap with one dashboard. Sorted, so that a preview shows what changed and nothing else."""
    return {f"{board['uid']}.json": json.dumps(board, indent=1, sort_keys=True)}
