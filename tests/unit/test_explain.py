"""Why a service has its replicas: each verdict, from recorded objects, with Kubernetes' documented HPA arithmetic.

desired = ceil(sum / target); a ratio of 0.9 to 1.1 is left alone; up to the least and down to the most recommended
within the windows; then policies, minimum and maximum. Source: kubernetes.io, "Horizontal Pod Autoscaling".
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eks_llm.cli import app
from eks_llm.explain import cluster, prometheus, show
from eks_llm.explain.cluster import ClusterError
from eks_llm.explain.model import Explanation, Pod
from eks_llm.explain.observe import NoServiceError, observe, quantity
from eks_llm.explain.why import explain
from tests.unit.recorded_cluster import NOW, Recorded, pod, rescale, scale_up_refused


def explained(recorded: Recorded) -> Explanation:
    return explain(observe(recorded.source(), "llama", "inference", NOW))


def demand(recorded: Recorded, past: Callable[[float], float | None]) -> Recorded:
    """`past`: the sum over the pods, by seconds before now."""
    recorded.series["demand"] = past
    return recorded


# Verdicts -----------------------------------------------------------------------------------------------------------


def test_steady() -> None:
    found = explained(Recorded(3))  # 30 / 10 = 3
    assert (found.kind, found.recommended, found.wanted) == ("steady", 3, 3)
    assert found.verdict == "It has 3 replicas because demand (30 / 10 = 3.00) asks for just that."


def test_steady_by_tolerance() -> None:
    found = explained(demand(Recorded(3), lambda _: 32.0))  # ceil(3.2) = 4, but 32 / 30 = 1.07 is within 10 %
    assert (found.kind, found.recommended) == ("steady", 3)
    assert "because demand is at 1.07 of its target, which an HPA leaves alone (0.9 to 1.1)" in found.verdict
    assert found.answers[0].tolerated


def test_scaling_up_as_far_as_the_policies_go() -> None:
    found = explained(demand(Recorded(2), lambda _: 70.0))  # 7 wanted for the whole window; 2 pods per 240 s
    assert (found.kind, found.recommended, found.stabilised, found.wanted) == ("scaling-up", 7, 7, 4)
    assert found.verdict == (
        "It goes from 2 to 4 of the 7 that demand (70 / 10 = 7.00) asks for, as far as the policies go (+2 per 240 s)."
    )


def test_scaling_up_limited_by_a_policy_that_is_used_up() -> None:
    recorded = demand(Recorded(4), lambda _: 70.0)
    recorded.rescales = [rescale(900, 2), rescale(100, 4)]  # two pods 100 s ago: none for another 140 s
    found = explained(recorded)
    assert (found.kind, found.recommended, found.stabilised, found.wanted) == ("limited-up", 7, 7, 4)
    assert (
        "though demand (70 / 10 = 7.00) asks for 7: the policies allow +2 per 240 s, and that is used" in found.verdict
    )
    assert found.up is not None
    assert (found.up.changed, found.up.free_at) == (2, NOW + 140)


def test_held_by_the_window_of_scale_up() -> None:
    found = explained(demand(Recorded(2), lambda ago: 50.0 if ago < 10 else 20.0))  # 15 s ago it still was 2
    assert (found.kind, found.recommended, found.stabilised) == ("held-up", 5, 2)
    assert "the scale-up window takes the least of the last 30 s, 2" in found.verdict


def test_held_by_the_window_of_scale_down() -> None:
    found = explained(demand(Recorded(5), lambda ago: 50.0 if ago >= 200 else 20.0))
    assert (found.kind, found.recommended, found.stabilised, found.wanted) == ("held-down", 2, 5, 5)
    assert "the scale-down window takes the most of the last 600 s" in found.verdict
    assert found.down is not None
    assert found.down.holds_until is not None
    assert 385 <= found.down.holds_until - NOW <= 400  # the last 5 was recommended 200 to 215 s ago


def test_scaling_down_one_by_one() -> None:
    recorded = demand(Recorded(5), lambda _: 20.0)
    assert (explained(recorded).kind, explained(recorded).wanted) == ("scaling-down", 4)
    recorded.rescales = [rescale(700, 6), rescale(60, 5)]  # one ended 60 s ago, and one may per 120 s
    found = explained(recorded)
    assert (found.kind, found.wanted) == ("limited-down", 5)


def test_at_the_maximum() -> None:
    found = explained(demand(Recorded(8), lambda _: 120.0))
    assert (found.kind, found.recommended, found.wanted) == ("at-max", 12, 8)
    assert found.verdict == ("It stays at its maximum of 8 replicas though demand (120 / 10 = 12.00) asks for 12.")


def test_at_the_minimum() -> None:
    recorded = demand(Recorded(1), lambda _: 0.0)
    recorded.series["kv"] = lambda _: 0.0
    found = explained(recorded)
    assert (found.kind, found.recommended, found.wanted) == ("at-min", 0, 1)


def test_pods_that_wait_for_gpus() -> None:
    """Two nodes of 8 GPUs, four replicas of 4 each on them, and two that fit nowhere."""
    recorded = demand(Recorded(6, ready=4), lambda _: 60.0)
    recorded.pods = [pod(n, node=f"node-{n // 2}") for n in range(4)] + [pod(n, "unschedulable") for n in (4, 5)]
    recorded.pod_events = [scale_up_refused("llama-4")]
    found = explained(recorded)
    assert found.kind == "gpu-budget"
    assert found.verdict == (
        "2 of its 6 replicas wait for nvidia.com/gpu: pool a100 has 16 GPUs on 2 nodes, 16 of them requested, and a "
        "replica takes 4 on one node; cluster-autoscaler: pod didn't trigger scale-up: 1 max node group size reached."
    )
    assert found.seen.pool is not None
    assert (found.seen.pool.gpus, found.seen.pool.requested, found.seen.pool.most_free) == (16, 16, 0)


def test_pods_that_load() -> None:
    recorded = demand(Recorded(4, ready=3), lambda _: 40.0)
    recorded.pods.append(pod(3, "CrashLoopBackOff"))
    found = explained(recorded)
    assert (found.kind, found.seen.pods[0].state) == ("starting", "CrashLoopBackOff")
    assert found.verdict.endswith("asks for; 1 of them is not ready yet.")


def test_blind_before_the_fallback() -> None:
    recorded = Recorded(3)
    recorded.series = {"demand": lambda _: None, "kv": lambda _: None}
    recorded.scaled["status"]["health"]["s0-prometheus"] = {"numberOfFailures": 5, "status": "Failing"}
    found = explained(recorded)
    assert (found.kind, found.recommended, found.wanted) == ("blind", None, 3)
    assert "demand: empty answer; kv-cache: empty answer" in found.verdict
    assert found.verdict.endswith("until the fallback takes over after more than 8 failures (5 so far).")


def test_blind_with_the_fallback() -> None:
    recorded = Recorded(3)
    recorded.series = {"demand": lambda _: None, "kv": lambda _: None}
    recorded.scaled["status"]["conditions"][1]["status"] = "True"
    found = explained(recorded)
    assert (found.kind, found.seen.fallback, found.wanted) == ("fallback", 3, 3)  # currentReplicasIfHigher than 1
    assert found.verdict.endswith("KEDA's fallback stands for 3 replicas, so it stays as it is.")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([{"metric": {}, "value": [NOW, "NaN"]}], "NaN"),
        ([{"metric": {}, "value": [NOW, "+Inf"]}], "+Inf"),
        ([{"metric": {"pod": str(n)}, "value": [NOW, "1"]} for n in range(2)], "2 elements, and KEDA takes one"),
        ([], "empty answer"),
    ],
)
def test_a_signal_that_is_no_number_forbids_scaling_down(answer: list[Any], problem: str) -> None:
    """With one metric in error an HPA scales up by the others, and never down."""
    recorded = Recorded(3)
    recorded.answers["demand"] = answer
    recorded.series["kv"] = lambda _: 80.0  # asks for 1
    found = explained(recorded)
    assert (found.kind, found.recommended, found.wanted) == ("partly-blind", None, 3)
    assert f"demand: {problem}" in found.verdict
    recorded.series["kv"] = lambda _: 400.0  # asks for 5
    assert (explained(recorded).kind, explained(recorded).wanted) == ("scaling-up", 5)


def test_scaled_to_zero() -> None:
    recorded = Recorded(0, minReplicaCount=0)
    recorded.series = {"demand": lambda _: 0.0, "kv": lambda _: 0.0}
    found = explained(recorded)
    assert (found.kind, found.verdict) == (
        "asleep",
        "It is scaled to zero because no signal is above its activation threshold.",
    )
    recorded.series["demand"] = lambda _: 1.0
    assert explained(recorded).kind == "waking"
    recorded.series = {"demand": lambda _: None, "kv": lambda _: None}
    assert "nothing can wake it" in explained(recorded).verdict
    assert explained(Recorded(0)).kind == "switched-off"


def test_paused() -> None:
    recorded = Recorded(3, annotations={"autoscaling.keda.sh/paused-replicas": "3"})
    recorded.hpa = None  # KEDA deletes it
    found = explained(recorded)
    assert (found.kind, found.verdict) == (
        "paused",
        "It stays at 3 replicas because scaling is paused (autoscaling.keda.sh/paused-replicas: 3).",
    )
    assert explained(Recorded(3, annotations={"autoscaling.keda.sh/paused": "false"})).kind == "steady"


def test_without_an_hpa() -> None:
    recorded = Recorded(3)
    recorded.hpa = None
    recorded.scaled["status"]["conditions"][0] = {"type": "Ready", "status": "False", "message": "no such Deployment"}
    assert explained(recorded).verdict == "It stays at 3 replicas because KEDA has made no HPA: no such Deployment."


@pytest.mark.parametrize(
    ("start", "value", "kind", "note"),
    [("0 8 * * 1-5", 4.0, "steady", "until Mon 18:00 UTC"), ("0 13 * * 1-5", 0.0, "held-down", "from Mon 13:00 UTC")],
)
def test_a_floor_is_in_force_by_the_clock(start: str, value: float, kind: str, note: str) -> None:
    """Monday noon; the demand of one replica."""
    recorded = demand(Recorded(4), lambda ago: 10.0 if ago < 300 else 40.0)
    recorded.series["kv"] = lambda _: 10.0
    schedule = {"timezone": "UTC", "start": start, "end": "0 18 * * 1-5", "desiredReplicas": "4"}
    recorded.scaled["spec"]["triggers"].append({"type": "cron", "name": "floor-1", "metadata": schedule})
    assert recorded.hpa is not None
    target = {"type": "AverageValue", "averageValue": "1"}
    recorded.hpa["spec"]["metrics"].append(
        {"type": "External", "external": {"metric": {"name": "s2-cron"}, "target": target}}
    )
    found = explained(recorded)
    assert found.kind == kind
    assert (found.answers[2].signal.value, found.answers[2].signal.note) == (value, note)


def test_without_a_history_the_controller_is_believed() -> None:
    """Nobody can know from outside what it recommended before: Prometheus is younger than the window of 600 s."""
    recorded = demand(Recorded(5), lambda ago: 20.0 if ago < 60 else None)
    assert recorded.hpa is not None
    recorded.hpa["status"]["conditions"] = [{"type": "AbleToScale", "status": "True", "reason": "ScaleDownStabilized"}]
    assert explained(recorded).kind == "held-down"


# What is missing ----------------------------------------------------------------------------------------------------


def test_nearest_names_of_a_service_that_is_not_there() -> None:
    with pytest.raises(NoServiceError, match="no service 'lama' in namespace inference; did you mean 'llama'"):
        observe(Recorded(1).source(), "lama", "inference", NOW)


def test_what_may_not_be_read_is_left_out_or_refused() -> None:
    recorded = Recorded(3)
    recorded.refused["/api/v1/nodes"] = ClusterError('no permission: nodes is forbidden: User "x" cannot list', 403)
    found = explained(recorded)
    assert (found.kind, found.seen.pool) == ("steady", None)
    assert found.seen.notes == ('GPUs of the pool not shown: no permission: nodes is forbidden: User "x" cannot list',)
    recorded.refused["/deployments/"] = ClusterError("no permission: deployments.apps is forbidden", 403)
    with pytest.raises(ClusterError, match="no permission: deployments"):
        explained(recorded)


def test_without_prometheus_it_says_so_and_goes_on() -> None:
    recorded = Recorded(3)
    recorded.series = {}
    found = explained(recorded)
    assert found.seen.notes == ("no Prometheus at http://prometheus-operated.monitoring.svc:9090: Connection refused",)
    assert found.kind == "blind"


def test_without_keda() -> None:
    recorded = Recorded(1)
    recorded.refused["scaledobjects"] = ClusterError("the server could not find the requested resource", 404)
    with pytest.raises(NoServiceError, match="KEDA is not installed"):
        explained(recorded)


# Reading ------------------------------------------------------------------------------------------------------------


def test_prometheus_behind_the_api_server() -> None:
    asked: list[str] = []

    def read(path: str, parameters: dict[str, str]) -> dict[str, Any]:
        asked.append(path)
        raise ClusterError('no permission: services "http:prom:9090" is forbidden', 403)

    get = cluster.proxied(read, "http://prom.monitoring.svc.cluster.local:9090")
    assert get is not None
    with pytest.raises(prometheus.PrometheusError, match="through the API server: no permission"):
        get("/api/v1/query", {"query": "up"})
    assert asked == ["/api/v1/namespaces/monitoring/services/http:prom:9090/proxy/api/v1/query"]
    assert cluster.proxied(read, "http://127.0.0.1:9090") is None


def test_quantities_of_the_api() -> None:
    """kubernetes.io, Quantity: 1160m is 1.16."""
    assert [quantity(text) for text in ("48", "1160m", "1k", 3)] == [48, 1.16, 1000, 3]


def test_what_a_pod_lacks() -> None:
    reason = "0/4 nodes are available: 1 Insufficient cpu, 3 Insufficient nvidia.com/gpu. preemption: 0/4 nodes."
    assert Pod("p", "unschedulable", 1, reason).lacks == ["cpu", "nvidia.com/gpu"]


# The screen and the command -----------------------------------------------------------------------------------------


def test_one_screen() -> None:
    recorded = demand(Recorded(4), lambda _: 70.0)
    recorded.rescales = [rescale(900, 2), rescale(100, 4)]
    text = show.text(explained(recorded))
    lines = text.splitlines()
    assert len(lines) <= 24
    assert lines[0] == "llama in inference: 4 replicas, 4 ready (1 to 8), wants 4"
    assert lines[3].split() == ["demand", "70", "10", "1.75", "7"]
    assert "metrics ask for 7, windows let 7 through, policies 4" in text
    assert "+2 per 240 s, 2 used, free again at 12:02:20 UTC (140 s)" in text
    assert "pool a100: 16 on 2 nodes · 16 requested" in text
    assert "a replica takes 4, 8 replicas 32" in text
    assert lines[-1].startswith("It stays at 4 replicas")


def test_json_holds_everything() -> None:
    data = json.loads(json.dumps(show.as_json(explained(Recorded(3)))))
    assert (data["kind"], data["recommended"], data["answers"][0]["ratio"]) == ("steady", 3, 1.0)
    assert data["seen"]["spec"]["up"]["policies"] == [{"type": "Pods", "value": 2, "period": 240}]


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: x}}]
"""
SIGN_IN = KUBECONFIG.replace(
    "{token: x}",
    "{exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-aws, interactiveMode: Never}}",
)


@pytest.mark.parametrize(
    ("kubeconfig", "options", "message"),
    [
        (None, [], "no cluster: the kubeconfig {file} does not exist"),
        ("- a\n", [], "no cluster:"),
        (KUBECONFIG, ["--context", "there"], "no cluster: Invalid kube-config file. Expected object with name there"),
        (
            SIGN_IN,
            [],
            "no cluster: the kubeconfig's user cannot sign in: [Errno 2] No such file or directory: 'no-such-aws'",
        ),
        (KUBECONFIG, [], "no cluster: http://127.0.0.1:9 cannot be reached"),
        (KUBECONFIG, ["--prometheus", "http://127.0.0.1:9"], "no Prometheus at http://127.0.0.1:9:"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, kubeconfig: str | None, options: list[str], message: str) -> None:
    file = tmp_path / "kubeconfig"
    if kubeconfig is not None:
        file.write_text(kubeconfig)
    done = CliRunner().invoke(app, ["explain", "llama", "--kubeconfig", str(file), *options])
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert message.format(file=file) in line
