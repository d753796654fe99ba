"""What a service is expected to do, for the bill: it changes no object."""

from typing import NotRequired, TypedDict

from pydantic import Field

from ..core.model import Model


class ExpectedArgs(TypedDict):
    replicas: NotRequired[float]
    """Mean number of replicas over a month, from `scaling.min` to `scaling.max`. Default: half-way between them."""
    tokens_per_request: NotRequired[int]
    """Prompt and output of an ordinary request, tokens, three quarters of it prompt. Default: a quarter of the longest
    request."""
    tokens_per_second: NotRequired[float]
    """Output tokens per second of one busy replica, as you measured it. Default: estimated."""


class Expected(Model):
    replicas: float | None = Field(default=None, ge=0)
    tokens_per_request: int | None = Field(default=None, ge=2)
    tokens_per_second: float | None = Field(default=None, gt=0)
