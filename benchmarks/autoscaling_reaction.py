"""How long real KEDA and a real HPA take from a load step to more desired replicas.

    python benchmarks/autoscaling_reaction.py --runs 20 --output benchmarks/results/autoscaling_reaction.json

Starts a control plane with KEDA on this machine. A stand-in answers KEDA's queries, so that the moment of the step is
known exactly; what a scrape adds (up to the PodMonitor's interval) is not in the figures. Steps come at random moments
of the HPA's 15 s period. Two parts: from the step to the query that first sees it, and from there to the new replicas.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from embedded.api import Api
from embedded.controlplane import ControlPlane
from embedded.keda import Keda
from embedded.nodes import Nodes, add, gpu_node
from embedded.ports import allot, free_base
from tests.cluster.metrics_server import Metrics, metrics_server
from tests.cluster.test_controlplane import gpu_deployment
from tests.cluster.test_keda import hpa_status, scaled_object

NAMESPACE = "reaction"


def step(api: Api, metrics: Metrics) -> dict[str, float]:
    """One load step from 1 to 14 waiting, at 5 per replica; seconds of each part."""

    def desired(count: int) -> None:
        api.wait(f"{count} replicas", lambda: hpa_status(api, NAMESPACE).get("desiredReplicas") == count, 120)

    metrics.values["waiting"] = 1
    desired(1)
    time.sleep(random.uniform(0, 15))
    begin, seen = time.time(), len(metrics.times)
    metrics.values["waiting"] = 14
    desired(3)
    end, asked = time.time(), metrics.times[seen]
    return {"toQuery": round(asked - begin, 2), "toReplicas": round(end - asked, 2), "total": round(end - begin, 2)}


def run(runs: int) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder, metrics_server() as metrics:
        plane = ControlPlane(Path(folder), allot(free_base()))
        keda, nodes = Keda(plane), Nodes(plane)
        try:
            plane.start()
            nodes.start()
            keda.start()
            api = Api(plane.kubeconfig)
            for index in range(3):
                add(api, gpu_node("a100", "p4d.24xlarge", "us-west-2b", index))
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            metrics.values["waiting"] = 1
            api.apply(gpu_deployment(NAMESPACE, replicas=1))
            api.apply(scaled_object(NAMESPACE, metrics.url))
            api.wait("the HPA", lambda: hpa_status(api, NAMESPACE).get("currentMetrics"), 60)
            found = []
            for index in range(runs):
                found.append(step(api, metrics))
                print(f"{index + 1}/{runs}: {found[-1]}", flush=True)
            return found
        finally:
            keda.stop()
            nodes.stop()
            plane.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    found = run(arguments.runs)
    totals = sorted(item["total"] for item in found)
    report = {
        "command": f"python benchmarks/autoscaling_reaction.py --runs {arguments.runs}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": {"cpus": os.cpu_count(), "load": [round(value, 1) for value in os.getloadavg()]},
        "seconds": {
            part: {
                "median": round(statistics.median(item[part] for item in found), 2),
                "max": max(item[part] for item in found),
            }
            for part in ("toQuery", "toReplicas", "total")
        },
        "withinTwentySeconds": sum(total <= 20 for total in totals) / len(totals),
        "runs": found,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
