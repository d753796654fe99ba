"""vLLM's engine in one process, from an engine.json as the model reads it: quick to start.

python -m tests.serving.bare_engine ENGINE_JSON TOKENS PROMPT…      # prints JSON: answers, and counters of the engine
"""

# pyright: reportMissingImports=false

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.serving.server import REPOSITORY, ROOT


@dataclass(frozen=True)
class Run:
    texts: list[str]
    """Greedy answers in the order of the prompts."""
    tokens: list[list[int]]
    counters: dict[str, float]


def run(directory: Path, document: dict[str, Any], prompts: tuple[str, ...], tokens: int) -> Run:
    """Starts the engine in a process of its own, asks all prompts at once, and ends it."""
    file = directory / "engine.json"
    file.write_text(json.dumps(document))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "tests.serving.bare_engine", str(file), str(tokens), *prompts]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def main(file: str, tokens: str, *prompts: str) -> None:
    sys.path.insert(0, str(REPOSITORY / "llm" / "1"))
    import engine_config
    import vllm_internals
    from vllm import SamplingParams
    from vllm.v1.engine.llm_engine import LLMEngine

    engine = LLMEngine.from_engine_args(vllm_internals.engine_args(engine_config.load(Path(file)), 0))
    params = SamplingParams(max_tokens=int(tokens), temperature=0)
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
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
