"""A complete model, made in a second: a 2-layer Llama with random weights and a byte-level BPE tokenizer.

python -m embedded.tiny_model FOLDER     # with the Python of serving_env.py, which has torch
"""

# pyright: reportMissingImports=false

import json
import shutil
import string
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTEXT = 1024
CORPUS = (
    "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs.",
    "Größe, naïve, 東京, привет, 🚀: text outside ASCII takes several bytes, and several tokens, for one character.",
    '{"name": "value", "number": 12345, "list": [true, false, null]}',
)


def make(directory: Path, seed: int = 0, ascii_only: bool = False) -> Path:
    """Writes config.json, generation_config.json, the tokenizer and model.safetensors; returns the directory.

    `ascii_only`: every token is a piece of text by itself (for benchmarks); else a token may be a part of a character.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = string.ascii_letters + string.digits if ascii_only else "".join(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<s>", "</s>"], initial_alphabet=list(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS[:1] if ascii_only else CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(directory)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,  # heads of 32: the CPU attention kernel has none below
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.2,  # large enough that greedy answers differ from prompt to prompt
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    generation = {"bos_token_id": 0, "eos_token_id": 1, "temperature": 0.5, "top_k": 40, "max_new_tokens": 24}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    return directory


def make_adapter(directory: Path, model: Path, seed: int = 1, rank: int = 8) -> Path:
    """A LoRA adapter of every layer's query projection, and beside it the model with the adapter merged in.

    Returns the adapter's directory; the merged model, which says what its answers must be, is in `merged` beside it.
    """
    torch.manual_seed(seed)
    merged = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32)
    tensors: dict[str, torch.Tensor] = {}
    for number, layer in enumerate(merged.model.layers):
        weight = layer.self_attn.q_proj.weight
        down, up = torch.randn(rank, weight.shape[1]) * 0.3, torch.randn(weight.shape[0], rank) * 0.3
        name = f"base_model.model.model.layers.{number}.self_attn.q_proj"
        tensors |= {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}
        weight.data += up @ down  # lora_alpha equals the rank, so the factor is 1
    directory.mkdir(parents=True)
    save_file(tensors, directory / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj"], "bias": "none"}
    (directory / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": str(model)}))
    target = directory.with_name("merged")
    shutil.copytree(model, target)
    merged.save_pretrained(target)
    return directory


if __name__ == "__main__":
    make(Path(sys.argv[1]))
