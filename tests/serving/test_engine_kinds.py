"""Engine settings of other kinds than the plain one: quantized checkpoints and speculation.

What vLLM's CPU backend cannot do is listed in docs/serving.md.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.serving import bare_engine, quantized
from tests.serving.reference import Reference
from tests.serving.server import engine_document

PROMPTS = ("The quick brown fox", "Pack my box", "Größe 東京", "lazy dog lazy dog lazy dog")


ROUNDING = 0.005
"""What a token may lack of the best one's logit, as a share of all logits' range: 16 bits carry three digits."""


def shortfall(reference: Reference, seen: bare_engine.Run) -> float:
    return max(reference.shortfall(prompt, ids) for prompt, ids in zip(PROMPTS, seen.tokens, strict=True))


def greedy(reference: Reference, tokens: int) -> list[str]:
    return [reference.greedy(prompt, tokens)[0] for prompt in PROMPTS]


@pytest.mark.parametrize(("kind", "dtype"), [("awq", "float16"), ("gptq", "float16"), ("int8", "float32")])
def test_a_quantized_checkpoint(model: Path, tmp_path: Path, kind: str, dtype: str) -> None:
    """The method is read from the checkpoint: engine.json says nothing of it."""
    checkpoint = quantized.make(model, tmp_path / kind, kind)
    restored = Reference(tmp_path / "restored")
    if kind == "int8":
        quantized.round_activations(restored.model)
    seen = bare_engine.run(tmp_path, engine_document(checkpoint, frontends=1, engine={"dtype": dtype}), PROMPTS, 8)
    assert shortfall(restored, seen) < ROUNDING
    assert seen.texts != greedy(Reference(model), 8), "the format changes nothing: it is not tested"


SPECULATION: dict[str, dict[str, Any]] = {
    "ngram": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1},
    "draft_model": {"method": "draft_model", "num_speculative_tokens": 3},
}


@pytest.mark.parametrize("method", SPECULATION)
def test_speculation_changes_no_answer(model: Path, tmp_path: Path, reference: Reference, method: str) -> None:
    config = SPECULATION[method] | ({"model": str(model)} if method == "draft_model" else {})
    document = engine_document(model, frontends=1, engine={"speculative_config": config})
    seen = bare_engine.run(tmp_path, document, PROMPTS, 40)
    assert seen.texts == greedy(reference, 40)
    drafted, accepted = (seen.counters[f"vllm:spec_decode_num_{kind}_tokens"] for kind in ("draft", "accepted"))
    assert drafted > 0
    if method == "draft_model":
        assert accepted == drafted, "the draft is the model itself"
