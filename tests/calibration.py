"""Predictions for the logged engines of tests/data/calibration.yaml, and the parts of docs/sizing.md made from data.

`python -m tests.calibration` writes them; a unit test fails while they are stale.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from docs.marked import replaced
from eks_llm.catalog.engines import reserve
from eks_llm.catalog.instances import GPUS
from eks_llm.catalog.models import MODELS
from eks_llm.sizing.advise import Workload, advise, cheapest_per_type
from eks_llm.sizing.memory import Engine, Fit, fit
from eks_llm.sizing.report import service_fit
from eks_llm.sizing.stack import Pool, Service

ROOT = Path(__file__).parent.parent
DATA: dict[str, Any] = yaml.safe_load((ROOT / "tests/data/calibration.yaml").read_text(encoding="utf-8"))
DOC = ROOT / "docs/sizing.md"
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


def refusal_example() -> str:
    """The refusal of Llama-3-70B in bfloat16 on four A100-40, as a stack's preview prints it."""
    model = "llama-3-70b-instruct"
    service = Service(
        "llama-70b",
        model,
        MODELS[model],
        "a100",
        Engine("0.27.1", 8192),
        min_replicas=2,
        max_replicas=4,
        tensor_parallel=4,
    )
    _, found = service_fit(service, Pool("a100", "p4d.24xlarge", 1, 2), "us-west-2")
    return f"```\n{found[0]}\n```"


REFERENCE = Workload(
    streams=100,
    prompt_tokens=856,
    longest_prompt=1200,
    output_tokens=256,
    longest_output=384,
    ttft_p99=0.82,
    tpot_p99=0.042,
)
"""The project's reference: 100 streams, prompts of 512 to 1,200 tokens, answers of 128 to 384."""


def advice_example() -> str:
    """The cheapest placement of the reference workload for each instance type, as Markdown."""
    model = "llama-3-70b-instruct"
    rows = [
        "| instance | format | TP | replicas | nodes | streams each | TTFT p99 | TPOT p99 | USD/month | USD/1M out |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    found = advise(model, MODELS[model], REFERENCE, region="us-west-2", vllm="0.27.1")
    rows += [
        f"| {item.instance_type} | {item.quantization} | {item.tensor_parallel} | {item.replicas} | {item.nodes} | "
        f"{item.streams_per_replica} | {item.latency.ttft_p99 * 1000:.0f} ms | "
        f"{item.latency.tpot_p99 * 1000:.0f} ms | {item.usd_month:,.0f} | {item.usd_per_million_tokens:.2f} |"
        for item in cheapest_per_type(found)
    ]
    return "\n".join(rows[:10])


SECTIONS = {"calibration": table, "refusal": refusal_example, "advice": advice_example}
"""Parts of docs/sizing.md between the comments `begin: NAME` and `end: NAME`."""


def document() -> str:
    """docs/sizing.md with all parts as they are now."""
    return replaced(DOC.read_text(encoding="utf-8"), {name: part() for name, part in SECTIONS.items()})


if __name__ == "__main__":
    DOC.write_text(document(), encoding="utf-8")
