"""Names of metrics stand in one file."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from eks_llm.observe import metrics

ROOT = Path(__file__).parents[2]
ROOMS = ("components/eks_llm", "embedded", "infra", "policy", "docs", "benchmarks")
OWN_SOURCE = {
    "components/eks_llm/observe/metrics.py": "the one file",
    "benchmarks/closed_loop.py": "reads files that older releases recorded",
}
"""Files that may name metrics. `model_repository` runs inside the image, without this package, and exports them."""
EXPORTED = re.compile(
    r"(?:vllm:|kube_(?:pod|node|deployment|horizontalpodautoscaler|customresource)_|keda_|DCGM_F|DCGM_EXP|cluster_autoscaler_|"
    r"nv_inference_|container_(?:memory|network|cpu)_|node_(?:cpu|memory|filesystem|network)_|service:)[\w:]+|"
    r"\bhttp_requests_total"
)


def literals(tree: ast.Module) -> Iterator[str]:
    """Texts in the code, docstrings left out."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def named(source: str) -> set[str]:
    """Names of metrics in the literals of a source."""
    return {name for text in literals(ast.parse(source)) for name in EXPORTED.findall(text)}


def test_the_pattern_knows_every_name() -> None:
    values = {value for value in vars(metrics).values() if isinstance(value, str) and re.fullmatch(r"[\w:]+", value)}
    names = {value for value in values if "_" in value and not value.startswith("_")}
    assert len(names) > 80
    short = {metrics.UNAVAILABLE_API, metrics.__name__}
    assert {name for name in names if not EXPORTED.fullmatch(name)} <= short


@pytest.mark.parametrize("room", ROOMS)
def test_names_of_metrics_are_taken_from_one_file(room: str) -> None:
    for file in (ROOT / room).rglob("*.py"):
        path = file.relative_to(ROOT).as_posix()
        if path not in OWN_SOURCE and "model_repository" not in file.parts:
            assert not named(file.read_text(encoding="utf-8")), path


def test_a_name_in_the_code_is_found_and_one_in_a_docstring_is_not() -> None:
    assert named('"""kube_pod_created"""\nX = f"sum({y}) / vllm:num_requests_running"') == {"vllm:num_requests_running"}
