# pyright: reportMissingImports=false
"""Models of the right shape with dummy weights: speed depends on the shape, not on what the weights say.

    python benchmarks/gpu/models.py DIRECTORY        # makes 1b/ and 8b/ there, for vLLM's `load_format: dummy`

The tokenizer has one word per token (`w0`, `w1`, …), so that a client can make a prompt of an exact length.
"""

import json
import sys
from pathlib import Path

VOCABULARY = 128_256
SHAPES = {
    # Llama-3.2-1B-Instruct and Llama-3-8B-Instruct, their config.json; embeddings untied, as vLLM's dummy loader wants
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
}


def make(directory: Path, shape: dict[str, int]) -> Path:
    """Writes config.json and the tokenizer; returns the directory."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_key_value_heads": 8,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        **shape,
    }
    (directory / "config.json").write_text(json.dumps(config))
    words = ["<s>", "</s>", *(f"w{number}" for number in range(2, VOCABULARY))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="w2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(directory)
    return directory


if __name__ == "__main__":
    for name, sizes in SHAPES.items():
        print(make(Path(sys.argv[1]) / name, sizes))
