"""Time of sizing a stack of fifty services, suggestions included. Run: python -m benchmarks.sizing > FILE.json"""

import datetime
import json
import platform
import statistics
import time

from eks_llm.catalog.models import MODELS
from eks_llm.sizing.memory import Engine
from eks_llm.sizing.report import size
from eks_llm.sizing.stack import Pool, Service, Stack

NOW = datetime.datetime(2026, 8, 1, tzinfo=datetime.UTC)
NAMES = ["llama-3.3-70b-instruct", "llama-3.1-8b-instruct", "qwen3-32b", "mixtral-8x7b-instruct", "gemma-3-27b-it"]


def fifty_services() -> Stack:
    """Five pools of p4d; every other service unquantised, so that some do not fit."""
    pools = tuple(Pool(f"pool-{index}", "p4d.24xlarge", 2, 20) for index in range(5))
    services = tuple(
        Service(
            f"service-{index}",
            NAMES[index % 5],
            MODELS[NAMES[index % 5]],
            f"pool-{index % 5}",
            Engine("0.27.1", 8192),
            min_replicas=2,
            max_replicas=4,
            quantization="awq" if index % 2 else "none",
            tensor_parallel=4,
        )
        for index in range(50)
    )
    return Stack("us-west-2", pools, services)


def seconds(repeats: int = 20) -> list[float]:
    """Times of `repeats` runs."""
    stack, times = fifty_services(), []
    for _ in range(repeats):
        start = time.perf_counter()
        size(stack, NOW)
        times.append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    times = seconds()
    record = {
        "command": "python -m benchmarks.sizing",
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "services": 50,
        "median_ms": round(statistics.median(times) * 1000, 1),
        "max_ms": round(max(times) * 1000, 1),
        "limit_ms": 200,
    }
    print(json.dumps(record, indent=2))
