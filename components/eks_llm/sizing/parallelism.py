"""Which tensor-parallel sizes a model and an instance type allow."""

from ..catalog.instances import InstanceType
from ..catalog.models import ModelShape


def problem(shape: ModelShape, tensor_parallel: int, instance: InstanceType, pipeline_parallel: int = 1) -> str | None:
    """Why this parallelism cannot run, and what would; None: it can. Source: vLLM config/model.py, models/llama.py."""
    legal = legal_sizes(shape, instance.gpus // max(1, pipeline_parallel))
    use = f"use {_listed(legal)}" if legal else "no size is legal here"
    if shape.heads % tensor_parallel:
        return f"{tensor_parallel} does not divide {shape.heads} attention heads ({use})"
    if not _kv_heads_shared(shape, tensor_parallel):
        return f"{tensor_parallel} and {shape.kv_heads} key/value heads: neither divides the other ({use})"
    if tensor_parallel * pipeline_parallel > instance.gpus:
        asked = f"{tensor_parallel}" if pipeline_parallel == 1 else f"{tensor_parallel} x {pipeline_parallel} stages"
        return f"{asked} is more than the {instance.gpus} GPU(s) of a node ({use})"
    if shape.layers < pipeline_parallel:
        return f"{pipeline_parallel} pipeline stages are more than the {shape.layers} layers"
    return None


def legal_sizes(shape: ModelShape, gpus: int) -> list[int]:
    """Tensor-parallel sizes of up to `gpus` that the model allows, ascending."""
    return [
        size for size in range(1, gpus + 1) if not shape.heads % size and _kv_heads_shared(shape, size)
    ]  # fmt: skip


def _kv_heads_shared(shape: ModelShape, size: int) -> bool:
    return bool(shape.kv_lora_rank) or not shape.kv_heads % size or not size % shape.kv_heads


def _listed(sizes: list[int]) -> str:
    return " or ".join(filter(None, [", ".join(map(str, sizes[:-1])), str(sizes[-1])]))
