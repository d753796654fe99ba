"""Every query of a runbook finds data among the series that exist, in the real promtool.

The series are made of what exporters and rules make (tests/known_series.py, the recording rules), each with those
labels that it has and no other: a query by a label that no exporter has finds nothing.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eks_llm.observe import slo
from eks_llm.observe.recordings import recordings
from eks_llm.observe.watched import EXAMPLE
from tests.known_series import TARGET_LABELS, Known, everything

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
NO_QUERY = re.compile(r"(kubectl|aws|amtool|export|curl|pulumi|\./dev|[|#]|-)")
"""Lines of a block that are for a shell."""
ONE_FOR_ALL = ("keda_", "DCGM_", "cluster_autoscaler_", "gpu_operator_", "node_")
"""Exporters whose `namespace`, `service`, `pod` and so on are their own, not those of what they tell of."""
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)?(?:\{([^}]*)\})?(?=[\[\s),]|$)")


def queries() -> dict[str, str]:
    """The queries of all runbooks, by page and place."""
    found: dict[str, str] = {}
    for page in sorted(RUNBOOKS.glob("*.md")):
        for block in re.findall(r"^```\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found |= {
                f"{page.stem}: {line}": line for line in lines if line.strip() and not NO_QUERY.match(line.strip())
            }
    return found


def recorded() -> Known:
    """Series of the recording rules of a service."""
    windows = (*slo.FAST_WINDOWS, *slo.SLOW_WINDOWS)
    rules = [*recordings(EXAMPLE), *(r for t in slo.targets(EXAMPLE) for r in slo.recordings(EXAMPLE, t, windows))]
    return {rule.name: {"namespace", "service", *rule.labels} for rule in rules}


def series_for(query: str, known: Known) -> Iterator[tuple[str, int]]:
    """One series at 0 and one at 1 for every metric that the query names, with the values that it asks for."""
    for name, matchers in SELECTOR.findall(query):
        wanted = dict(re.findall(r'(\w+)=~?"([^"]*)"', matchers))
        pattern = wanted.pop("__name__", name)
        for metric in (metric for metric in known if re.fullmatch(pattern, metric)):
            own = known[metric] - (TARGET_LABELS if metric.startswith(ONE_FOR_ALL) else set())
            has = {label: wanted.get(label, "x").removesuffix(".*") for label in own}
            has |= {"le": "+Inf"} if "le" in own else {}
            for value in (0, 1):
                labels = ",".join(f'{label}="{text}"' for label, text in {**has, "instance": str(value)}.items())
                yield f"{metric}{{{labels}}}", value


def run(promtool: Path, folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    (folder / "queries.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": tests}))
    command = [promtool, "test", "rules", "queries.yaml"]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=300)


def case(query: str, known: Known) -> dict[str, Any]:
    return {
        "name": query,
        "interval": "30s",
        "input_series": [
            {"series": series, "values": f"{value}x60"} for series, value in dict(series_for(query, known)).items()
        ],
        "promql_expr_test": [
            {"expr": f"count({query}) > bool 0", "eval_time": "30m", "exp_samples": [{"labels": "{}", "value": 1}]}
        ],
    }


def test_every_query_of_a_runbook_finds_data(promtool: Path, tmp_path: Path) -> None:
    known = everything() | recorded()
    found = queries()
    assert len(found) > 40
    done = run(promtool, tmp_path, [case(query, known) for query in dict.fromkeys(found.values())])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "query",
    [
        'DCGM_FI_DEV_GPU_UTIL{Hostname="NODE"}',
        "sum(vllm:gpu_cache_usage_perc)",
        'keda_scaled_object_paused{service="S"}',
    ],
)
def test_a_query_by_what_no_exporter_has_is_found(query: str, promtool: Path, tmp_path: Path) -> None:
    assert run(promtool, tmp_path, [case(query, everything())]).returncode != 0
