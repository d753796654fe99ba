"""A healthy day of a stack with scale-ups and slow cold starts sets off no alert, of ours nor of the chart's.

The chart's rules are those that such a day could set off (tests/data/chart_rules.yaml), with the values that
`Monitoring` gives the chart. Without these values they fire, which shows that the day is one that would.
"""

import subprocess
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from eks_llm.operators.monitoring import MonitoringSettings, default_rules
from tests.rules.test_rules import rule_files

RULES = Path(__file__).parents[1] / "data" / "chart_rules.yaml"
DAY = 24 * 60
UP, NODE, READY, DOWN = 480, 505, 520, 1080
"""Minutes of the day: demand doubles; the new nodes have come, 25 minutes later; its pods are ready; demand is gone."""
FIRING = 'ALERTS{alertstate="firing",alertname!~"CapacityBlock.*"}'
"""All but those of the capacity block, which ends two days after promtool's clock begins."""
KSM = 'job="kube-state-metrics"'
LEAST, MOST = 2, 4
POD_CPU, POD_GIB = 38, 460
"""Requests of a replica that has half of a p4d.24xlarge (96 vCPU, 1,152 GiB), and two of which fill it."""


def steps(*values: tuple[int, float]) -> str:
    """A series of the day: (minute from which it is so, value), in promtool's notation."""
    ends = [begin for begin, _ in values[1:]] + [DAY]
    first = f"_x{values[0][0] - 1} " if values[0][0] else ""
    return first + " ".join(
        f"{value:g}x{end - begin - 1}" for (begin, value), end in zip(values, ends, strict=True) if end > begin
    )


def series() -> dict[str, str]:
    """What kube-state-metrics and the servers say over the day."""
    deployment = f'namespace="inference",deployment="llama",{KSM}'
    hpa = f'namespace="inference",horizontalpodautoscaler="keda-hpa-llama",{KSM}'
    demand = steps((0, LEAST), (UP, MOST), (DOWN, LEAST))
    ready = steps((0, LEAST), (READY, MOST), (DOWN, LEAST))
    found = {
        f"kube_deployment_spec_replicas{{{deployment}}}": demand,
        f"kube_deployment_status_replicas{{{deployment}}}": demand,
        f"kube_deployment_status_replicas_updated{{{deployment}}}": demand,
        f"kube_deployment_status_replicas_available{{{deployment}}}": ready,
        f"kube_deployment_status_replicas_ready{{{deployment}}}": ready,
        f'kube_deployment_status_condition{{condition="Progressing",status="false",{deployment}}}': steps((0, 0)),
        f"kube_horizontalpodautoscaler_status_desired_replicas{{{hpa}}}": demand,
        f"kube_horizontalpodautoscaler_status_current_replicas{{{hpa}}}": demand,
        f"kube_horizontalpodautoscaler_spec_min_replicas{{{hpa}}}": steps((0, LEAST)),
        f"kube_horizontalpodautoscaler_spec_max_replicas{{{hpa}}}": steps((0, MOST + 1)),
        f'kube_node_info{{node="system",{KSM}}}': steps((0, 1)),
    }
    for index in range(MOST):
        pod = f'namespace="inference",pod="llama-6d5f7c9b8d-x2k4{index}",{KSM}'
        begin, placed, serves = (0, 0, 0) if index < LEAST else (UP, NODE, READY)
        found |= {
            f'kube_pod_status_phase{{phase="Pending",{pod}}}': steps((begin, 1), (serves - 5, 0))
            if begin
            else steps((0, 0)),
            f'kube_pod_status_phase{{phase="Running",{pod}}}': steps((begin, 0), (serves - 5, 1))
            if begin
            else steps((0, 1)),
            f'kube_pod_status_ready{{condition="true",{pod}}}': steps((begin, 0), (serves, 1))
            if begin
            else steps((0, 1)),
            f'kube_pod_status_scheduled{{condition="false",{pod}}}': steps((begin, 1), (placed, 0))
            if begin
            else steps((0, 0)),
            f'kube_pod_owner{{owner_kind="ReplicaSet",{pod}}}': steps((begin, 1)),
            f'kube_pod_container_resource_requests{{container="server",resource="cpu",{pod}}}': steps((begin, POD_CPU)),
            f'kube_pod_container_resource_requests{{container="server",resource="memory",{pod}}}': steps(
                (begin, POD_GIB)
            ),
        }
    for index in range(2):
        node = f'node="gpu-{index}",{KSM}'
        begin = 0 if index == 0 else NODE
        found |= {
            f'kube_node_status_allocatable{{resource="cpu",{node}}}': steps((begin, 95)),
            f'kube_node_status_allocatable{{resource="memory",{node}}}': steps((begin, 1120)),
            f'kube_node_status_allocatable{{resource="nvidia_com_gpu",{node}}}': steps((begin, 8)),
            f'kube_node_status_capacity{{resource="nvidia_com_gpu",{node}}}': steps((begin, 8)),
            f'kube_node_status_condition{{condition="Ready",status="true",{node}}}': steps((begin, 1)),
            f"kube_node_spec_unschedulable{{{node}}}": steps((begin, 0)),
        }
        for gpu in range(8):
            found[f'DCGM_FI_DEV_GPU_UTIL{{hostname="gpu-{index}",gpu="{gpu}",UUID="GPU-{index}-{gpu}"}}'] = steps(
                (begin, 60)
            )
    for index in range(LEAST):
        labels = f'namespace="inference",service="llama",pod="llama-6d5f7c9b8d-x2k4{index}"'
        found[f"vllm:num_requests_waiting{{{labels}}}"] = steps((0, 0), (UP - 1, 20), (UP, 4), (READY, 0))
        found[f"vllm:num_requests_running{{{labels}}}"] = steps((0, 10))
        found[f"vllm:kv_cache_usage_perc{{{labels}}}"] = steps((0, 0.6))
        found[f"vllm:generation_tokens_total{{{labels}}}"] = f"0+60000x{DAY}"
        found[f"vllm:prompt_tokens_total{{{labels}}}"] = f"0+60000x{DAY}"
    autoscaler = 'namespace="kube-system",job="cluster-autoscaler",pod="cluster-autoscaler-7d9f-k2m4p"'
    found |= {
        f'cluster_autoscaler_failed_scale_ups_total{{reason="timeout",{autoscaler}}}': steps((0, 0)),
        f'cluster_autoscaler_unschedulable_pods_count{{type="unschedulable",{autoscaler}}}': steps(
            (0, 0), (UP, 2), (NODE, 0)
        ),
        f"cluster_autoscaler_cluster_safe_to_autoscale{{{autoscaler}}}": steps((0, 1)),
        f'cluster_autoscaler_last_activity{{activity="main",{autoscaler}}}': f"0+60x{DAY}",
        'keda_build_info{job="keda-operator"}': steps((0, 1)),
    }
    return found


def chart_rules(values: dict[str, Any]) -> dict[str, Any]:
    """The chart's rules, as it makes them with these `defaultRules`."""
    recorded = yaml.safe_load(RULES.read_text(encoding="utf-8"))["rules"]
    operator, target = values.get("appNamespacesOperator", "=~"), values.get("appNamespacesTarget", ".*")
    left = [rule for rule in recorded if rule.get("alert") not in values.get("disabled", {})]
    apps = f'{operator}"{target}"'
    return {
        "groups": [
            {
                "name": "chart",
                "rules": [{**rule, "expr": Template(rule["expr"]).substitute(apps=apps)} for rule in left],
            }
        ]
    }


def fired(promtool: Path, folder: Path, content: dict[str, Any]) -> str:
    """What promtool says where alerts of these rule files fire over the day; nothing where none does."""
    test = {
        "rule_files": list(content),
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": text} for name, text in series().items()],
                "promql_expr_test": [
                    {
                        "expr": f"count by (alertname) (count_over_time({FIRING}[24h]))",
                        "eval_time": "23h",
                        "exp_samples": [],
                    }
                ],
            }
        ],
    }
    for name, text in {**content, "day.yaml": test}.items():
        (folder / name).write_text(yaml.safe_dump(text))
    command = [promtool, "test", "rules", "day.yaml"]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=300)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_a_healthy_day_sets_off_no_alert(promtool: Path, tmp_path: Path) -> None:
    ours = {name: rule_files()[name] for name in ("llama.yaml", "platform.yaml")}
    content = {"chart.yaml": chart_rules(default_rules(MonitoringSettings())), **ours}
    assert fired(promtool, tmp_path, content) == ""


@pytest.mark.parametrize(
    "alert", ["KubePodNotReady", "KubeDeploymentReplicasMismatch", "KubeCPUOvercommit", "KubeMemoryOvercommit"]
)
def test_the_charts_own_choice_of_rules_would(alert: str, said: str) -> None:
    assert f'alertname="{alert}"' in said


@pytest.fixture(scope="module")
def said(promtool: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What fires with the chart's own values."""
    return fired(promtool, tmp_path_factory.mktemp("chart"), {"chart.yaml": chart_rules({})})
