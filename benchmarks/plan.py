"""How long `eks-llm plan` takes as a platform grows: 1, 10, 50 services on 1, 5, 10 pools, each in fresh processes.

    ./dev bench plan [--repeat N]

Wall time includes the interpreter, imports, the program and the report. Writes benchmarks/results/plan.json.
"""

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "plan.json"
SERVICES = (1, 10, 50)
POOLS = (1, 5, 10)


def stack_file(services: int, pools: int) -> dict[str, Any]:
    """A valid stack: services of one GPU, spread over p4d pools that can hold all their replicas."""
    nodes = math.ceil(math.ceil(services / pools) * 2 / 8)
    return {
        "aws:region": "us-west-2",
        "eks-llm:platform": {
            "network": {"cidr": "10.20.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
            "cluster": {
                "version": "1.35",
                "admins": ["arn:aws:iam::111122223333:role/platform-admin"],
                "publicAccessCidrs": ["203.0.113.0/24"],
            },
            "weights": {"bucket": "acme-bench", "create": True},
            "gpuPools": {
                f"pool-{index}": {
                    "instanceType": "p4d.24xlarge",
                    "zone": "us-west-2b",
                    "nodes": {"min": 0, "max": nodes},
                }
                for index in range(pools)
            },
            "services": {
                f"chat-{index}": {
                    "model": "llama-3-8b-instruct",
                    "weights": f"s3://acme-bench/chat-{index}/",
                    "pool": f"pool-{index % pools}",
                    "runtime": "triton" if index % 2 else "openai",
                    "tensorParallel": 1,
                    "profile": "balanced",
                    "scaling": {"min": 1, "max": 2, "inFlightPerReplica": 32},
                }
                for index in range(services)
            },
        },
    }


def measure(services: int, pools: int, repeat: int) -> dict[str, Any]:
    """Wall seconds of a plan (median of `repeat`), its least CPU seconds, and how many resources it has."""
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory)
        # JSON is YAML; `main` points at the real program, so nothing is written in the repository.
        (project / "Pulumi.yaml").write_text(
            json.dumps({"name": "eks-llm", "runtime": "python", "main": str(ROOT / "infra")})
        )
        (project / "Pulumi.bench.yaml").write_text(json.dumps({"config": stack_file(services, pools)}))
        seconds: list[float] = []
        cpu: list[float] = []
        resources = 0
        for _ in range(repeat):
            start, cpu_before = time.perf_counter(), _cpu_of_children()
            done = subprocess.run(
                [sys.executable, "-m", "eks_llm.cli", "plan", "bench", "--format", "json", "--cwd", directory],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            seconds.append(time.perf_counter() - start)
            cpu.append(_cpu_of_children() - cpu_before)
            if done.returncode:
                sys.exit(done.stderr)
            totals = json.loads(done.stdout)["totals"]
            resources = totals["resources"] + totals["components"]
    wall = statistics.median(seconds)
    return {
        "services": services,
        "pools": pools,
        "resources": resources,
        "seconds": round(wall, 3),
        "fastest": round(min(seconds), 3),
        "slowest": round(max(seconds), 3),
        "cpuSeconds": round(min(cpu), 3),
    }


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _added(few: dict[str, Any], many: dict[str, Any]) -> float:
    seconds = many["cpuSeconds"] - few["cpuSeconds"]
    return round(1000 * seconds / (many["resources"] - few["resources"]), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each size; the median counts")
    repeat = parser.parse_args().repeat
    rows: list[dict[str, Any]] = []
    print("services  pools  resources  wall s  CPU s")
    for services in SERVICES:
        for pools in POOLS:
            row = measure(services, pools, repeat)
            rows.append(row)
            print(
                f"{services:8}  {pools:5}  {row['resources']:9}  {row['seconds']:6.2f}  {row['cpuSeconds']:5.2f}",
                flush=True,
            )
    # CPU time, because it holds on a busy machine too; differences, because start and imports cost the same everywhere.
    per_resource = {
        f"{few['services']} to {many['services']} services": _added(few, many)
        for few, many in zip(rows[len(POOLS) - 1 :: len(POOLS)], rows[2 * len(POOLS) - 1 :: len(POOLS)], strict=False)
    }
    for step, cost in per_resource.items():
        print(f"{step}: {cost:.2f} ms CPU per added resource")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps(
            {
                "command": f"./dev bench plan --repeat {repeat}",
                "date": datetime.now(UTC).date().isoformat(),
                "cpus": os.cpu_count(),
                "loadAverage": round(os.getloadavg()[0], 1),
                "python": platform.python_version(),
                "pulumi": version("pulumi"),
                "rows": rows,
                "cpuMsPerAddedResource": per_resource,
            },
            indent=2,
        )
        + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
