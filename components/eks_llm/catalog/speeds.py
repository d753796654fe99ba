"""How fast engines were measured to be: `SPEEDS`."""

from ._load import Fact, load


class Speed(Fact):
    """One engine under steady load."""

    model: str
    """A name of models.yaml."""
    gpu: str
    """A key of `GPUS`."""
    quantization: str
    tensor_parallel: int
    streams: int
    """Clients in a closed loop."""
    prompt_tokens: float
    output_tokens: float
    tokens_per_second: float
    """Output tokens of the whole engine."""


class _File(Fact):
    date: str
    sources: list[str]
    speeds: list[Speed]


_FILE = load("speeds.yaml", _File)
SPEEDS: list[Speed] = _FILE.speeds
DATE: str = _FILE.date
"""When they were measured."""
