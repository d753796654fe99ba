"""Predictions for the logged engines of tests/data/calibration.yaml; the test and docs/sizing.md use the same."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from eks_llm.catalog.engines import reserve
from eks_llm.catalog.instances import GPUS
from eks_llm.catalog.models import MODELS
from eks_llm.sizing.memory import Engine, Fit, fit

ROOT = Path(__file__).parent.parent
DATA: dict[str, Any] = yaml.safe_load((ROOT / "tests/data/calibration.yaml").read_text(encoding="utf-8"))
DOC = ROOT / "docs/sizing.md"
BEGIN, END = "<!-- calibration: made by `python -m tests.calibration` -->", "<!-- /calibration -->"
DEFAULTS = {"h100-80gb": (1024, 8192)}
"""vLLM's `max_num_seqs` and `max_num_batched_tokens` where they are not 256 and 2,048."""


@dataclass(frozen=True)
class Case:
    """A logged engine and what is predicted for it."""

    log: dict[str, Any]
    fit: Fit

    @property
    def error(self) -> float:
        """Predicted over logged KV cache, minus one; in tokens where the log gives them."""
        if self.log.get("kvTokens"):
            return self.fit.pool_tokens / self.log["kvTokens"] - 1
        return (self.fit.kv_cache - self.log["kvGib"]) / abs(self.log["kvGib"])


def case(log: dict[str, Any]) -> Case:
    seqs, tokens = DEFAULTS.get(log["gpu"], (256, 2048))
    engine = Engine(
        vllm=log["vllm"],
        max_model_len=log["maxModelLen"],
        max_num_seqs=seqs,
        max_num_batched_tokens=log.get("batchedTokens", tokens),
        gpu_memory_utilization=log["utilization"],
        kv_cache_dtype=log.get("kvCacheDtype", "auto"),
        enforce_eager=log.get("eager", False),
    )
    kept = reserve(log["vllm"])
    if "samplerBytes" in log:
        kept = kept.model_copy(update={"sampler_bytes": log["samplerBytes"]})
    return Case(
        log,
        fit(
            log["model"],
            MODELS[log["model"]],
            GPUS[log["gpu"]],
            engine,
            quantization=log.get("quantization", "none"),
            tensor_parallel=log.get("tensorParallel", 1),
            kept=kept,
        ),
    )


CASES = [case(log) for log in DATA["cases"]]


def table() -> str:
    """The comparison as Markdown."""
    rows = [
        "| # | model | GPU x TP | vLLM | logged KV GiB | predicted | logged tokens | predicted | error | verdict |",
        "|---|---|---|---|--:|--:|--:|--:|--:|---|",
    ]
    notes: list[str] = []
    for item in CASES:
        log, memory = item.log, item.fit
        mark = ""
        if "exception" in log:
            notes.append(f"{log['id']}: {log['exception']}")
            mark = f" [^{len(notes)}]"
        logged = f"{log['kvTokens']:,}" if log.get("kvTokens") else "–"
        predicted = f"{memory.pool_tokens:,}" if log.get("kvTokens") else "–"
        model = log["model"] + (f" {log['quantization']}" if "quantization" in log else "")
        rows.append(
            f"| {log['id']} | {model} | {log['gpu']} x {log.get('tensorParallel', 1)} | {log['vllm']} | "
            f"{log['kvGib']:.2f} | {memory.kv_cache:.2f} | {logged} | {predicted} | {item.error:+.1%}{mark} | "
            f"{memory.verdict.value} |"
        )
    rows += ["", *(f"[^{number}]: {note}." for number, note in enumerate(notes, 1))]
    return "\n".join(rows)


def document() -> str:
    """docs/sizing.md with the current table."""
    text = DOC.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    DOC.write_text(document(), encoding="utf-8")
