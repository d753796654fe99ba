"""vLLM's engine in one process, from engine.json files as the model reads them: quick to start, and imported once.

python -m tests.serving.bare_engine SPEC      # SPEC: {"documents": {name: file}, "prompts": […], "tokens": {name: N}}
"""

# pyright: reportMissingImports=false

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.serving.server import REPOSITORY, ROOT


@dataclass(frozen=True)
class Case:
    """What one engine is started with, and how many tokens it is asked for."""

    document: dict[str, Any]
    tokens: int


@dataclass(frozen=True)
class Run:
    texts: list[str]
    """Greedy answers in the order of the prompts."""
    tokens: list[list[int]]
    counters: dict[str, float]


def run(directory: Path, cases: Mapping[str, Case], prompts: tuple[str, ...]) -> dict[str, Run | str]:
    """Starts the engines one after the other, asks each all prompts at once; what came of it, or why nothing did."""
    spec: dict[str, Any] = {"prompts": prompts, "cases": {}}
    for name, case in cases.items():
        file = directory / f"{name}.json"
        file.write_text(json.dumps(case.document))
        spec["cases"][name] = {"file": str(file), "tokens": case.tokens, "answer": str(directory / f"{name}.answer")}
    (directory / "spec").write_text(json.dumps(spec))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "tests.serving.bare_engine", str(directory / "spec")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = {name: Path(case["answer"]) for name, case in spec["cases"].items()}
    return {
        name: Run(**json.loads(file.read_text())) if file.exists() else f"no answer:\n{done.stderr[-3000:]}"
        for name, file in answers.items()
    }


def main(spec_file: str) -> None:
    """Each engine in a fork: vLLM's state of one process is that of one engine, but its imports take ten seconds."""
    sys.path.insert(0, str(REPOSITORY / "llm" / "1"))
    import vllm_internals  # noqa: F401 for `serve`
    from vllm.v1.engine.llm_engine import LLMEngine  # noqa: F401

    spec = json.loads(Path(spec_file).read_text())
    for case in spec["cases"].values():
        sys.stdout.flush()
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        try:
            serve(case, spec["prompts"])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def serve(case: dict[str, Any], prompts: list[str]) -> None:
    import engine_config
    import vllm_internals
    from vllm import SamplingParams
    from vllm.v1.engine.llm_engine import LLMEngine

    engine = LLMEngine.from_engine_args(vllm_internals.engine_args(engine_config.load(Path(case["file"])), 0))
    params = SamplingParams(max_tokens=case["tokens"], temperature=0)
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, params)
    texts: dict[str, str] = {}
    ids: dict[str, list[int]] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            texts[output.request_id] = output.outputs[0].text.rstrip("\N{REPLACEMENT CHARACTER}")
            ids[output.request_id] = list(output.outputs[0].token_ids)
    counters = {metric.name: metric.value for metric in engine.get_metrics() if hasattr(metric, "value")}
    order = [str(number) for number in range(len(prompts))]
    found = {"texts": [texts[key] for key in order], "tokens": [ids[key] for key in order], "counters": counters}
    Path(case["answer"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
