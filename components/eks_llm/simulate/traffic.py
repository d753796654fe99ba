"""Traffic over time: generated shapes, or a CSV file. All become a `Trace`, arrivals per time step."""

import csv
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LONGEST_DAYS = 31
STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Lengths of a time step; each divides the 10 s of a scrape or is it."""
MOST_STEPS = 100_000
"""A day has 86,400 seconds, so it is simulated in steps of 1 s."""
MOST_PER_SECOND = 1e6
"""More is a slip of units; far above it random arrivals cannot be drawn."""
GAP = 3.0
"""Rates further apart than this many times the usual distance have a gap between them."""


class TrafficError(ValueError):
    """Traffic that cannot be simulated; the message says where and what to do."""


@dataclass(frozen=True)
class Trace:
    """Requests that arrive in each step of `step` seconds."""

    step: float
    arrivals: np.ndarray

    @property
    def seconds(self) -> float:
        return len(self.arrivals) * self.step

    @property
    def requests(self) -> int:
        return int(self.arrivals.sum())


@dataclass(frozen=True)
class Rates:
    """Requests per second, constant between times."""

    times: np.ndarray
    """Begin of each piece, seconds; the last entry is the end."""
    rates: np.ndarray

    def trace(self, random: np.random.Generator | None) -> Trace:
        """Random arrivals (Poisson) at these rates; None: evenly spaced ones."""
        if (most := float(self.rates.max())) > MOST_PER_SECOND:
            raise TrafficError(f"{most:g} requests per second; at most {MOST_PER_SECOND:,.0f} are simulated")
        end = float(self.times[-1])
        step = step_for(end)
        edges = np.arange(0, math.ceil(end / step) + 1) * step
        total = np.concatenate([[0.0], np.cumsum(self.rates * np.diff(self.times))])
        upto = np.interp(edges, self.times, total)
        if random is None:
            return Trace(step, np.diff(np.floor(upto + 1e-9)))
        return Trace(step, random.poisson(np.diff(upto)).astype(float))


def step_for(seconds: float) -> float:
    if seconds <= 0:
        raise TrafficError("traffic lasts 0 s")
    if seconds > LONGEST_DAYS * 86400:
        raise TrafficError(f"traffic lasts {seconds / 86400:.0f} days; cut it to at most {LONGEST_DAYS}")
    return next((step for step in STEPS if seconds / step <= MOST_STEPS), STEPS[-1])


# Shapes -------------------------------------------------------------------------------------------------------------


def stages(parts: Sequence[tuple[float, float]]) -> Rates:
    """(seconds, requests per second), one after another."""
    lengths, rates = zip(*parts, strict=True)
    return Rates(np.concatenate([[0.0], np.cumsum(lengths)]), np.array(rates, dtype=float))


def ramp(before: float, after: float, start: float, length: float, total: float) -> Rates:
    """From one rate to another, evenly over `length` seconds from `start`."""
    times = np.unique(np.concatenate([[0.0], np.arange(start, start + length, 5.0), [start + length, total]]))
    middle = (times[:-1] + times[1:]) / 2
    return Rates(times, np.interp(middle, [start, start + length], [before, after]))


def diurnal(low: float, high: float, peak_hour: float, days: float) -> Rates:
    """A sine over each day, with its top at `peak_hour`."""
    times = np.linspace(0, days * 86400, math.ceil(days * 1440) + 1)
    hours = (times[:-1] + times[1:]) / 7200
    wave = (1 + np.cos((hours - peak_hour) / 24 * 2 * math.pi)) / 2
    return Rates(times, low + (high - low) * wave)


def bursts(base: float, burst: float, every: float, length: float, total: float) -> Rates:
    """`burst` instead of `base` requests per second for `length` seconds, at the end of every `every` seconds."""
    parts: list[tuple[float, float]] = []
    left = total
    while left > 0:
        for seconds, rate in ((every - length, base), (length, burst)):
            if left > 0:
                parts.append((min(seconds, left), rate))
                left -= seconds
    return stages(parts)


# Files --------------------------------------------------------------------------------------------------------------


def read_csv(path: Path, random: np.random.Generator) -> Trace:
    """A file with a header. `seconds` alone: one request per row, at that time. `seconds,rate`: requests per second
    from each row to the next; the last row ends the trace.

    Raises `TrafficError` with the row for times that are negative or not in order, gaps between rates, and files that
    hold nothing.
    """
    columns = _header(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no rows: said below
            data = np.loadtxt(
                path, delimiter=",", comments=None, skiprows=1, usecols=columns, ndmin=2, dtype=float, encoding="utf-8"
            )
    except ValueError as error:
        raise TrafficError(f"{path}: {_in_file(str(error))}") from None
    if not len(data):
        raise TrafficError(f"{path}: no rows below the header")
    times = data[:, 0]
    for column in data.T:
        _check(path, column, ~np.isfinite(column), "is not a finite number")
    _check(path, times, times < 0, "is before 0; times are seconds since the trace began")
    _check(path, times, np.append(False, np.diff(times) < 0), "is earlier than the row above; sort the file")
    if len(columns) == 1:
        if times[0] > LONGEST_DAYS * 86400:
            raise TrafficError(f"{path}: row 2: {times[0]:.0f}: write seconds since the trace began, not a date")
        step = step_for(max(1.0, float(times[-1])))
        counts = np.bincount((times / step).astype(int))
        return Trace(step, counts.astype(float))
    return _rates(path, times, data[:, 1]).trace(random)


def _header(path: Path) -> list[int]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte-order mark
            names = [name.strip() for name in next(csv.reader(file), [])]
    except OSError as error:
        raise TrafficError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TrafficError(f"{path}: not a text file") from None
    if not names:
        raise TrafficError(f"{path}: empty")
    if "seconds" not in names:
        raise TrafficError(f"{path}: no column `seconds` (columns: {', '.join(names)})")
    return [names.index("seconds")] + ([names.index("rate")] if "rate" in names else [])


def _in_file(message: str) -> str:
    """A message of numpy, which counts rows from 0 below the header or from 1, with the row of the file."""
    bad = re.match(r"could not convert string '(.*)' to float64 at row (\d+)", message)
    if bad:
        return f"row {int(bad[2]) + 2}: '{bad[1]}' is not a number"
    short = re.match(r"invalid column index \d+ at row (\d+)", message)
    return f"row {int(short[1]) + 1}: a value is missing" if short else message


def _check(path: Path, values: np.ndarray, bad: np.ndarray, what: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise TrafficError(f"{path}: row {row + 2}: {values[row]:g} {what} ({int(bad.sum()):,} such rows)")


def _rates(path: Path, times: np.ndarray, rates: np.ndarray) -> Rates:
    if len(times) < 2:
        raise TrafficError(f"{path}: one row; a rate needs a second row that ends it")
    _check(path, rates, rates < 0, "requests per second is negative")
    _check(path, times, np.append(False, np.diff(times) == 0), "is the time of the row above, too; keep one of them")
    distances = np.diff(times)
    usual = float(np.median(distances))
    gaps = distances > GAP * usual
    if gaps.any():
        row = int(gaps.argmax())
        raise TrafficError(
            f"{path}: row {row + 2}: nothing between {times[row]:g} s and {times[row + 1]:g} s, where rows usually are "
            f"{usual:g} s apart ({int(gaps.sum())} such gaps); write rows of rate 0 if it was quiet"
        )
    return Rates(times - times[0], rates[:-1])
