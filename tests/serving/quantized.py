"""Quantized checkpoints of the tiny model, in the formats of their makers' libraries, and what they must answer.

Packing: AutoAWQ's `WQLinear_GEMM`, AutoGPTQ's `QuantLinear`, compressed-tensors' `int-quantized`. The reference is the
model in transformers with weights that went through the format and back; for INT8 its layers round activations too.
"""

# pyright: reportMissingImports=false

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

GROUP = 32
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_PLAIN_ORDER = tuple(range(8))


@dataclass(frozen=True)
class Layer:
    """A quantized linear layer: tensors of the checkpoint by suffix, and the weight [out, in] they stand for."""

    tensors: dict[str, Tensor]
    weight: Tensor


def _pack(values: Tensor, order: tuple[int, ...]) -> Tensor:
    """Eight 4-bit numbers of the last dimension per int32, the first of `order` in the lowest bits."""
    groups = values.reshape(*values.shape[:-1], -1, 8).to(torch.int64)
    packed = sum(groups[..., source] << 4 * place for place, source in enumerate(order))
    assert isinstance(packed, Tensor)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


def awq(weight: Tensor) -> Layer:
    """4 bits with zero points, per group of inputs."""
    grouped = weight.float().reshape(weight.shape[0], -1, GROUP)  # [out, groups, GROUP]
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-5).half()
    zeros = (-low / scales.float()).round().clamp(0, 15)
    numbers = (grouped / scales.float()[..., None] + zeros[..., None]).round().clamp(0, 15)
    restored = (numbers - zeros[..., None]) * scales.float()[..., None]
    tensors = {
        "qweight": _pack(numbers.reshape(weight.shape).T, _AWQ_ORDER),
        "qzeros": _pack(zeros.T, _AWQ_ORDER),
        "scales": scales.T,
    }
    return Layer(tensors, restored.reshape(weight.shape))


def gptq(weight: Tensor) -> Layer:
    """4 bits, symmetric, per group of inputs, in their order."""
    outputs, inputs = weight.shape
    grouped = weight.float().reshape(outputs, -1, GROUP)
    scales = (grouped.abs().amax(-1) / 7).clamp(min=1e-5).half()
    numbers = (grouped / scales.float()[..., None]).round().clamp(-8, 7) + 8
    restored = (numbers - 8) * scales.float()[..., None]
    zeros = torch.full((inputs // GROUP, outputs), 7)  # the format stores zero points less one
    tensors = {
        "qweight": _pack(numbers.reshape(outputs, inputs), _PLAIN_ORDER).T,
        "qzeros": _pack(zeros, _PLAIN_ORDER),
        "scales": scales.T,
        "g_idx": (torch.arange(inputs) // GROUP).to(torch.int32),
    }
    return Layer(tensors, restored.reshape(weight.shape))


def int8(weight: Tensor) -> Layer:
    """8 bits, symmetric, per output channel; activations are quantized as they come, per token."""
    scales = weight.float().abs().amax(-1, keepdim=True) / 127
    numbers = (weight.float() / scales).round().clamp(-127, 127)
    return Layer({"weight": numbers.to(torch.int8), "weight_scale": scales}, numbers * scales)


FORMATS: dict[str, tuple[Callable[[Tensor], Layer], dict[str, object]]] = {
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True}),
    "int8": (
        int8,
        {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
                    "input_activations": {
                        "num_bits": 8,
                        "type": "int",
                        "symmetric": True,
                        "strategy": "token",
                        "dynamic": True,
                    },
                }
            },
        },
    ),
}


def make(model: Path, target: Path, kind: str) -> Path:
    """Writes the checkpoint to `target`, and the model that it stands for to `restored` beside it."""
    quantize, config = FORMATS[kind]
    restored = target.with_name("restored")
    for folder in (target, restored):
        shutil.copytree(model, folder)
    tensors, weights = load_file(model / "model.safetensors"), load_file(model / "model.safetensors")
    for name in list(tensors):
        if name.endswith("_proj.weight"):
            layer = quantize(tensors.pop(name))
            weights[name] = layer.weight
            tensors |= {name.removesuffix("weight") + part: value.contiguous() for part, value in layer.tensors.items()}
    metadata = {"format": "pt"}
    save_file(tensors, target / "model.safetensors", metadata)
    save_file({name: value.contiguous() for name, value in weights.items()}, restored / "model.safetensors", metadata)
    document = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**document, "quantization_config": config}))
    return target


def round_activations(model: torch.nn.Module) -> None:
    """Makes the projections of a transformers model round their input to 8 bits per token, as W8A8 does."""

    def rounded(_: torch.nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        scale = inputs[0].abs().amax(-1, keepdim=True) / 127
        return ((inputs[0] / scale).round().clamp(-127, 127) * scale,)

    for name, layer in model.named_modules():
        if name.endswith("_proj"):
            layer.register_forward_pre_hook(rounded)
