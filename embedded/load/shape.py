"""The shape of a load: how many connections when, which moments requests arrive at, how long they are."""

import math
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

REFERENCE = (1024, 256)
"""Tokens in and out of the reference load."""


@dataclass(frozen=True)
class Ramp:
    """A straight climb, then level until the end."""

    first: int
    last: int
    rise: float
    """Seconds of the climb."""
    duration: float
    """Seconds of the whole load."""

    def connections(self, time: float) -> int:
        """Connections in use `time` seconds after the start: `first` at 0, `last` from `rise` on, 0 at the end."""
        if not 0 <= time < self.duration:
            return 0
        return self.first + int((self.last - self.first) * self._climbed(time))

    def opens(self, number: int) -> float | None:
        """When connection `number` (from 0) opens; None: never."""
        if number < self.first:
            return 0.0
        if number >= self.last:
            return None
        at = self.rise * (number + 1 - self.first) / (self.last - self.first)
        return at if at < self.duration else None

    def rate(self, peak: float) -> Callable[[float], float]:
        """Requests a second over time that climb as the connections do, to `peak`."""

        def at(time: float) -> float:
            share = self.first + (self.last - self.first) * self._climbed(time)
            return peak * share / self.last

        return at

    def _climbed(self, time: float) -> float:
        return min(1.0, time / self.rise) if self.rise else 1.0


def arrivals(dice: random.Random, rate: Callable[[float], float], peak: float, duration: float) -> Iterator[float]:
    """Moments of a Poisson process whose rate changes with time and is at most `peak`, in seconds from 0.

    By thinning (Lewis and Shedler, 1979): arrivals at the peak's rate, each kept with the share that is due.
    """
    time = dice.expovariate(peak)
    while time < duration:
        if dice.random() * peak < rate(time):
            yield time
        time += dice.expovariate(peak)


def part(total: int, index: int, parts: int) -> int:
    """How much of `total` falls to one of `parts`, as even as can be."""
    return total // parts + (index < total % parts)


def scaled(scale: float) -> tuple[int, int]:
    """The reference's tokens in and out, divided by `scale`; at least 1."""
    tokens_in, tokens_out = (max(1, round(tokens / scale)) for tokens in REFERENCE)
    return tokens_in, tokens_out


def prompt(dice: random.Random, tokens: int) -> str:
    """A prompt of so many tokens for the platform's own model, the token that begins a text included.

    Its tokenizer knows no pair of capitals, so each is a token; with other models it is about as many. No two prompts
    are alike, so no cached prefix shortens the work.
    """
    return "".join(dice.choices(string.ascii_uppercase, k=tokens - 1))


def percentile(values: list[float], share: float) -> float | None:
    """The smallest value that at least `share` of the values do not exceed (nearest rank); None without values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None
