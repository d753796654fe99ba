# pyright: reportMissingImports=false
"""The "before" of the published claims: Hugging Face `generate` behind a queue, static batches of 16.

    python benchmarks/gpu/baseline.py --model DIRECTORY --output FILE [--seconds 180] [--concurrency 100]

The same prompts and closed-loop streams as benchmarks/serving.py. A batch takes the requests that wait, up to its size,
and holds all of them until the longest is done. In its favour: tokens count as sent the moment the batch has them, a
stream's first token included, and only the measured time counts, not the loading.
"""

import argparse
import itertools
import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import serving  # noqa: E402
from benchmarks.gpu import sampler as gpu  # noqa: E402
from benchmarks.serving_clients import prompts  # noqa: E402

BATCH = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--load", choices=serving.LOADS, default="reference")
    options = parser.parse_args()
    begin = time.monotonic()
    model, tokenizer = load(options.model)
    print(f"loaded in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    generate(model, tokenizer, ["w5000 w5001"] * BATCH, 8)  # compile, fill caches
    with gpu.Sampler() as sampler:
        row = measure(model, tokenizer, options)
    report = {
        "command": f"python benchmarks/gpu/baseline.py {' '.join(sys.argv[1:])}",
        "machine": serving.machine(),
        "versions": serving.versions(),
        "batch": BATCH,
        "rows": [{"path": "huggingface", "concurrency": options.concurrency, **row, **sampler.means()}],
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(serving.line(report["rows"][0]))


def load(directory: str) -> tuple[Any, Any]:
    """A model of the directory's shape with random weights in bfloat16, on the GPU where there is one."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    config = AutoConfig.from_pretrained(directory)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return model, tokenizer


def generate(model: Any, tokenizer: Any, texts: list[str], tokens: int) -> list[float]:
    """When each of `tokens` steps of the batch was done."""
    import torch

    done: list[float] = []

    inputs = tokenizer(texts, return_tensors="pt", padding=True).to(model.device)
    with torch.inference_mode():
        model.generate(
            **inputs,
            do_sample=False,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=tokenizer.pad_token_id,
            stopping_criteria=[_StepClock(done)],
        )
    return done


class _StepClock:
    """A stopping criterion that never stops and notes when it was asked: after each step."""

    def __init__(self, done: list[float]) -> None:
        self._done = done

    def __call__(self, input_ids: Any, *_: Any, **__: Any) -> Any:
        import torch

        if input_ids.is_cuda:
            torch.cuda.synchronize()
        self._done.append(time.monotonic())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def measure(model: Any, tokenizer: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Batch after batch until the time is over; the streams of a batch ask again as soon as it is done."""
    task = {"load": options.load, "seed": 0, "requests": 20_000, "tokens": 128, "prompt": 40}
    supply = iter(prompts(task))
    begin = time.monotonic()
    waiting = deque((begin, *next(supply)) for _ in range(options.concurrency))
    ttft: list[float] = []
    tpot: list[float] = []
    gaps: list[float] = []
    total = 0
    while time.monotonic() - begin < options.seconds:
        batch = [waiting.popleft() for _ in range(min(BATCH, len(waiting)))]
        done = generate(model, tokenizer, [text for _, text, _ in batch], max(tokens for *_, tokens in batch))
        for arrived, _, tokens in batch:
            ttft.append(done[0] - arrived)
            tpot.append((done[tokens - 1] - done[0]) / (tokens - 1))
            gaps += [after - before for before, after in itertools.pairwise(done[:tokens])]
            total += tokens
            waiting.append((done[-1], *next(supply)))
    seconds = time.monotonic() - begin
    return {
        "requests": len(ttft),
        "seconds": seconds,
        "tokens_per_second": total / seconds,
        **serving.latencies(sorted(ttft), sorted(tpot), sorted(gaps)),
    }


if __name__ == "__main__":
    main()
