"""Instance types without GPU: `NODES` by name, and what pods can have of one."""

from typing import Any

from pydantic import model_validator

from ._load import Fact, load


class NodeType(Fact):
    """What EC2 states of an instance type, and how many pods it takes on EKS."""

    vcpus: int
    memory_mib: int
    max_pods: int

    @model_validator(mode="before")
    @classmethod
    def _of_row(cls, row: Any) -> Any:
        return dict(zip(("vcpus", "memoryMib", "maxPods"), row, strict=True)) if isinstance(row, list) else row


class _File(Fact):
    source: str
    date: str
    types: dict[str, NodeType]


NODES: dict[str, NodeType] = load("nodes.yaml", _File).types
"""Types that system nodes may have, by name."""
