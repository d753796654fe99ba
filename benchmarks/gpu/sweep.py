"""One factor at a time around the profiles: each configuration is an engine of its own, alone on the GPU.

    python benchmarks/gpu/sweep.py --models DIRECTORY --output FOLDER --budget SECONDS SWEEP …

Each configuration becomes one file FOLDER/<sweep>.<value>.json with what benchmarks/serving.py reports, the engine's
KV pool among it. Configurations begin as long as the budget lasts; what was left out is printed. While one is measured
the next process already imports vLLM, which takes it 20 s.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import serving  # noqa: E402

BASE: dict[str, Any] = {
    "load_format": "dummy",
    "max_model_len": 8192,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
    "gpu_memory_utilization": 0.9,
    "enable_prefix_caching": False,
}


@dataclass(frozen=True)
class Configuration:
    """An engine, what is in front of it, and the load on it."""

    name: str
    engine: dict[str, Any]
    """Differences from `BASE`."""
    load: dict[str, Any] = field(default_factory=lambda: {"load": "reference", "concurrency": [100], "ramp": 5.0})
    """Options of benchmarks/serving.py."""
    model: str = "8b"
    paths: tuple[str, ...] = ("bare",)


def small(name: str, engine: dict[str, Any], frontends: int) -> Configuration:
    """The small model behind Triton, where front ends and the engine's process are the limit."""
    load = {"load": "reference", "concurrency": [200, 480], "ramp": 4.0, "frontends": frontends}
    return Configuration(name, {"max_num_seqs": 512, **engine}, load, "1b", ("grpc",))


SWEEPS: dict[str, list[Configuration]] = {
    "batched-tokens": [
        Configuration(str(tokens), {"max_num_batched_tokens": tokens}) for tokens in (2048, 8192, 512, 5120, 16384)
    ],
    # vLLM 0.26 has no switch to turn chunking off; a step that holds the longest prompt leaves nothing to cut.
    "sequences": [Configuration(str(number), {"max_num_seqs": number}) for number in (64, 128, 512)],
    "gpu-memory": [
        Configuration(f"{share:.2f}", {"gpu_memory_utilization": share}, {"concurrency": []})
        for share in (0.80, 0.90, 0.92, 0.95)
    ],
    "prefix-cache": [
        Configuration(
            "on" if on else "off",
            {"enable_prefix_caching": on},
            {"load": "prefix", "concurrency": [100], "ramp": 5.0},
        )
        for on in (True, False)
    ],
    "block-size": [Configuration(str(size), {"block_size": size}) for size in (32, 64)],
    "speculation": [
        Configuration(
            "ngram",
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}},
        )
    ],
    "quantization": [Configuration("fp8", {"quantization": "fp8"})],
    "frontends": [small(str(number), {}, number) for number in (8, 1, 2, 4)],
    "stream-interval": [small(str(number), {"stream_interval": number}, 4) for number in (4, 2, 8)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+", help=f"SWEEP or SWEEP.VALUE; of {', '.join(SWEEPS)}")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=560, help="seconds")
    parser.add_argument("--longest", type=float, default=110, help="seconds that one configuration may need")
    parser.add_argument("--engine", type=json.loads, default={}, help="JSON: changes to every engine, for a dry run")
    parser.add_argument("--load", type=json.loads, default={}, help="JSON: changes to every load, likewise")
    options = parser.parse_args()
    serving.enter_environment()
    options.output.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + options.budget
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as logs:
        waiting = [(f"{sweep}.{item.name}", sweep, item) for sweep, item in _chosen(options.sweeps)]
        spawned: dict[str, Any] = {}

        def spawn(name: str) -> Any:
            if name not in spawned:
                # The engine is then a fork of a process that has imported vLLM; a spawned one would import it again.
                fork = {"VLLM_WORKER_MULTIPROC_METHOD": "fork"}
                spawned[name] = serving.spawn_bare(Path(logs, name), stack, fork)
            return spawned[name]

        while waiting and time.monotonic() + options.longest < until:
            name, sweep, configuration = waiting.pop(0)
            begin = time.monotonic()
            bare = spawn(name)
            if waiting:
                spawn(waiting[0][0])
            with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as servers:
                try:
                    report = measure(configuration, options, bare, Path(scratch), servers)
                except Exception as error:  # the next may be sound; this one's record says why there is none
                    tail = Path(logs, name).read_text(errors="replace")[-4000:]
                    report = {"failed": f"{type(error).__name__}: {error}"[:2000], "log": tail}
            report |= {"sweep": sweep, "value": configuration.name, "model": configuration.model}
            (options.output / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
            print(f"{name}: {time.monotonic() - begin:.0f} s {report.get('failed', '')}", file=sys.stderr, flush=True)
        for name, *_ in waiting:
            print(f"left out, the budget is spent: {name}", file=sys.stderr)


def measure(
    configuration: Configuration,
    options: argparse.Namespace,
    bare: Any,
    scratch: Path,
    stack: contextlib.ExitStack,
) -> dict[str, Any]:
    """Starts the configuration, measures it, and says what it was. `bare`: a process with vLLM imported."""
    model = options.models / configuration.model
    load = serving.parser().parse_args([])
    vars(load).update({"model": str(model), "clients": 4, "repeats": 1, "rounds": 3, "paths": configuration.paths})
    vars(load).update({**configuration.load, **options.load})
    engine = {**BASE, **configuration.engine, **options.engine}
    load.engine = engine
    if configuration.paths == ("bare",):
        servers = {"bare": bare, "facts": serving.tell(bare, {"model": str(model), "engine": engine})}
        stack.callback(serving.end, bare)
    else:
        serving.end(bare)
        servers = serving.start(load, scratch, stack)
    rows = []
    if load.concurrency:
        for row in serving.measurements(load, servers):
            rows.append(row)
            print(serving.line(row), file=sys.stderr, flush=True)
    return {
        "command": f"python benchmarks/gpu/sweep.py {' '.join(sys.argv[1:])}",
        "machine": serving.machine(),
        "versions": serving.versions(),
        "engine": {**engine, **servers.get("facts", {})},
        "load": {**configuration.load, **options.load},
        "rows": rows,
    }


def _chosen(names: list[str]) -> Iterator[tuple[str, Configuration]]:
    for name in names:
        sweep, _, value = name.partition(".")
        found = [item for item in SWEEPS.get(sweep, []) if not value or item.name == value]
        if not found:
            sys.exit(f"no sweep {name}; there are {', '.join(SWEEPS)}")
        yield from ((sweep, item) for item in found)


if __name__ == "__main__":
    main()
