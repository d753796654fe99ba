"""Engine settings of other kinds than the plain one: quantized checkpoints and speculation.

What vLLM's CPU backend cannot do is listed in docs/serving.md.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serving import bare_engine, quantized
from tests.serving.bare_engine import Case
from tests.serving.reference import Reference
from tests.serving.server import engine_document

PROMPTS = ("The quick brown fox", "Pack my box", "Größe 東京", "lazy dog lazy dog lazy dog")
CHECKPOINTS = {"awq": "float16", "gptq": "float16", "int8": "float32"}
"""Kinds of quantized checkpoints, and the type of what is computed."""
SPECULATION: dict[str, dict[str, Any]] = {
    "ngram": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1},
    "draft_model": {"method": "draft_model", "num_speculative_tokens": 3},
}
ROUNDING = 0.005
"""What a token may lack of the best one's logit, as a share of all logits' range: 16 bits carry three digits."""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the quantized checkpoints, each beside what it was made from: `restored`."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def seen(model: Path, checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bare_engine.Run]:
    """The answers of the engine of each kind."""
    cases: dict[str, Case] = {}
    for kind, dtype in CHECKPOINTS.items():
        made = quantized.make(model, checkpoints / kind / "checkpoint", kind)
        cases[kind] = Case(engine_document(made, frontends=1, engine={"dtype": dtype}), 8)
    for method, speculation in SPECULATION.items():
        config = speculation | ({"model": str(model)} if method == "draft_model" else {})
        cases[method] = Case(engine_document(model, frontends=1, engine={"speculative_config": config}), 40)
    runs = bare_engine.run(tmp_path_factory.mktemp("engines"), cases, PROMPTS)

    def of(kind: str) -> bare_engine.Run:
        run = runs[kind]
        assert isinstance(run, bare_engine.Run), run
        return run

    return of


def shortfall(reference: Reference, seen: bare_engine.Run) -> float:
    return max(reference.shortfall(prompt, ids) for prompt, ids in zip(PROMPTS, seen.tokens, strict=True))


def greedy(reference: Reference, tokens: int) -> list[str]:
    return [reference.greedy(prompt, tokens)[0] for prompt in PROMPTS]


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_quantized_checkpoint(
    seen: Callable[[str], bare_engine.Run], reference: Reference, checkpoints: Path, kind: str
) -> None:
    """The method is read from the checkpoint: engine.json says nothing of it."""
    run = seen(kind)
    restored = Reference(checkpoints / kind / "restored")
    if kind == "int8":
        quantized.round_activations(restored.model)
    assert shortfall(restored, run) < ROUNDING
    assert run.texts != greedy(reference, 8), "the format changes nothing: it is not tested"


@pytest.mark.parametrize("method", SPECULATION)
def test_speculation_changes_no_answer(
    seen: Callable[[str], bare_engine.Run], reference: Reference, method: str
) -> None:
    run = seen(method)
    assert run.texts == greedy(reference, 40)
    drafted, accepted = (run.counters[f"vllm:spec_decode_num_{kind}_tokens"] for kind in ("draft", "accepted"))
    assert drafted > 0
    if method == "draft_model":
        assert accepted == drafted, "the draft is the model itself"
