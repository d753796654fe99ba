"""The part of PromQL that scaling triggers use, over series of one simulated service.

`compile_query` turns the text of a trigger into a function of a `Store`, so that what is deployed is what is
simulated. Label matchers are ignored: a store holds one service. Semantics follow Prometheus
(promql/functions.go): missing and stale series, extrapolation of `rate` and `delta`, filters, NaN.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..observe import metrics

POD_METRICS = (
    metrics.RUNNING,
    metrics.WAITING,
    metrics.KV_USAGE,
    metrics.REQUEST_SUCCESS,
    metrics.PROMPT_TOKENS,
    metrics.GENERATION_TOKENS,
    f"{metrics.INFERENCE_TIME}_sum",
    f"{metrics.INFERENCE_TIME}_count",
)
"""What each ready pod exports."""
SERVICE_METRICS = (metrics.DEPLOYMENT_REPLICAS, metrics.DEPLOYMENT_READY)
FRONT_DOOR_METRICS = metrics.FRONT_DOOR_REQUESTS
"""Each is simulated as a counter of requests that reached the front door."""
LOOKBACK = 300
"""Seconds for which history is kept; also how long Prometheus shows the last sample of a series."""


class QueryError(ValueError):
    """A query that cannot be simulated."""


class Store:
    """Scraped samples: one column per pod slot, and one for the service as a whole."""

    def __init__(self, slots: int, interval: float) -> None:
        self.slots = slots
        self._kept = int(LOOKBACK / interval) + 2
        self._names = (*POD_METRICS, *SERVICE_METRICS, *FRONT_DOOR_METRICS)
        # Room for many scrapes, so that the history is a slice and seldom has to move.
        self._times = np.zeros(16 * self._kept)
        self._samples = {name: np.full((len(self._times), slots + 1), np.nan) for name in self._names}
        self._end = 0

    def scrape(self, now: float, live: np.ndarray, pods: dict[str, np.ndarray], service: dict[str, float]) -> None:
        """A sample of every metric. `live` marks the slots whose pods answer."""
        if self._end == len(self._times):
            self._move()
        row, self._end = self._end, self._end + 1
        self._times[row] = now
        for name, values in pods.items():
            self._samples[name][row, :-1] = np.where(live, values, np.nan)
        for name, value in service.items():
            self._samples[name][row, -1] = value

    def _move(self) -> None:
        for array in (self._times, *self._samples.values()):
            array[: self._kept] = array[-self._kept :]
            array[self._kept :] = np.nan
        self._end = self._kept

    def forget(self, slot: int) -> None:
        """A new pod takes this slot, and begins new series."""
        for samples in self._samples.values():
            samples[:, slot] = np.nan

    def latest(self, name: str, now: float) -> "Vector":
        """The samples of the last scrape up to `now`."""
        last = int(np.searchsorted(self._times[: self._end], now, side="right")) - 1
        if last < 0:
            return EMPTY
        values = self._samples[name][last]
        return Vector(values, ~np.isnan(values))

    def window(self, name: str, seconds: float, now: float) -> tuple[np.ndarray, np.ndarray]:
        """Times and samples (time x series) within the `seconds` up to `now`, the oldest first."""
        first, end = np.searchsorted(self._times[: self._end], (now - seconds, now), side="right")
        return self._times[first:end], self._samples[name][first:end]


@dataclass(frozen=True)
class Vector:
    """An instant vector. After an aggregation it has one element, without labels."""

    values: np.ndarray
    there: np.ndarray

    @property
    def single(self) -> bool:
        return len(self.values) == 1

    def elements(self) -> np.ndarray:
        return self.values[self.there]


Value = Vector | float
Compiled = Callable[[Store, float], Value]
EMPTY = Vector(np.zeros(1), np.zeros(1, dtype=bool))
THERE = np.array([True])


def one(value: float) -> Vector:
    return Vector(np.array([value]), np.array([True]))


def compile_query(query: str) -> Compiled:
    """A function from a store and the time to the result. Raises `QueryError` for what is not understood."""
    parser = _Parser(query)
    compiled = parser.expression(0)
    parser.expect("end", "")
    return compiled


def evaluate(query: Compiled, store: Store, now: float, ignore_nulls: bool) -> float | None:
    """What KEDA makes of the answer: one element's value. None: an error. Source: KEDA, prometheus_scaler.go."""
    result = query(store, now)
    found = result.elements() if isinstance(result, Vector) else np.array([result])
    if len(found) > 1:
        return None
    if len(found) == 0 or not np.isfinite(found[0]):
        return 0.0 if ignore_nulls else None
    return max(0.0, float(found[0]))


# Operators and functions --------------------------------------------------------------------------------------------

AGGREGATIONS: dict[str, Callable[[np.ndarray], float]] = {
    "sum": np.sum, "max": np.nanmax, "min": np.nanmin, "avg": np.mean, "count": len,
}  # fmt: skip
ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
}  # fmt: skip
COMPARISONS: dict[str, Callable[..., np.ndarray]] = {
    ">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
PRECEDENCE = {"or": 1, **dict.fromkeys(COMPARISONS, 2), "+": 3, "-": 3, "*": 4, "/": 4}
RANGES = ("rate", "increase", "delta", "deriv", "avg_over_time", "max_over_time")
FUNCTIONS = ("clamp_min", "clamp_max", "scalar", "vector")


def _aggregate(name: str, argument: Value) -> Vector:
    if not isinstance(argument, Vector):
        raise QueryError(f"{name}() takes series, not a number")
    found = argument.elements()
    return one(float(AGGREGATIONS[name](found))) if len(found) else EMPTY


def _binary(operator: str, left: Value, right: Value) -> Value:
    if operator == "or":
        if not (isinstance(left, Vector) and isinstance(right, Vector)):
            raise QueryError("`or` joins series, not numbers")
        return left if left.there.any() else right
    a, a_there = (left.values, left.there) if isinstance(left, Vector) else (left, THERE)
    b, b_there = (right.values, right.there) if isinstance(right, Vector) else (right, THERE)
    if isinstance(left, Vector) and isinstance(right, Vector) and len(left.values) != len(right.values):
        return EMPTY  # their labels differ
    with np.errstate(divide="ignore", invalid="ignore"):
        if operator in ARITHMETIC:
            result = ARITHMETIC[operator](a, b)
            return Vector(result, a_there & b_there) if isinstance(result, np.ndarray) else float(result)
        kept = COMPARISONS[operator](a, b)
    if not isinstance(left, Vector):
        raise QueryError("a comparison needs a series on its left")
    return Vector(left.values, left.there & b_there & kept)


def _function(name: str, arguments: list[Value]) -> Value:
    first = arguments[0]
    if name == "vector":
        return first if isinstance(first, Vector) else one(first)
    if not isinstance(first, Vector):
        raise QueryError(f"{name}() takes series, not a number")
    if name == "scalar":
        found = first.elements()
        return float(found[0]) if len(found) == 1 else float("nan")
    limit = arguments[1]
    if isinstance(limit, Vector):
        raise QueryError(f"{name}() takes a number as its limit; wrap it into scalar(…)")
    return Vector((np.maximum if name == "clamp_min" else np.minimum)(first.values, limit), first.there)


def _range(name: str, store: Store, metric: str, seconds: float, now: float) -> Vector:
    times, samples = store.window(metric, seconds, now)
    if len(times) == 0:
        return EMPTY
    known = ~np.isnan(samples)
    count = known.sum(axis=0)
    if name == "avg_over_time":
        return Vector(np.nansum(samples, axis=0) / np.maximum(count, 1), count > 0)
    if name == "max_over_time":
        return Vector(np.where(known, samples, -np.inf).max(axis=0), count > 0)
    if name == "deriv":
        return Vector(_slope(times, samples, known, count), count > 1)
    first, last = known.argmax(axis=0), len(times) - 1 - known[::-1].argmax(axis=0)
    columns = np.arange(samples.shape[1])
    change = samples[last, columns] - samples[first, columns]
    start, end = times[first], times[last]
    span = np.maximum(end - start, 1e-9)
    between = span / np.maximum(count - 1, 1)
    before, after = start - (now - seconds), now - end
    before = np.where(before >= 1.1 * between, between / 2, before)
    after = np.where(after >= 1.1 * between, between / 2, after)
    if name != "delta":  # a counter cannot have been below zero
        with np.errstate(divide="ignore", invalid="ignore"):
            since_zero = np.where(change > 0, span * samples[first, columns] / change, np.inf)
        before = np.minimum(before, since_zero)
    change = change * (span + before + after) / span
    return Vector(change / seconds if name == "rate" else change, count > 1)


def _slope(times: np.ndarray, samples: np.ndarray, known: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Least squares, as `deriv` does it."""
    t = np.where(known, (times - times[0])[:, None], 0.0)
    v = np.where(known, samples, 0.0)
    n = np.maximum(count, 1)
    covariance = (t * v).sum(axis=0) - t.sum(axis=0) * v.sum(axis=0) / n
    variance = (t * t).sum(axis=0) - t.sum(axis=0) ** 2 / n
    return covariance / np.where(variance > 0, variance, 1.0)


# Parser -------------------------------------------------------------------------------------------------------------

TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w:])|(?P<name>[a-zA-Z_:][\w:]*)
    |(?P<matchers>\{[^}]*\})|\[(?P<range>\d+[smh])\]|(?P<operator>>=|<=|==|!=|[-+*/><(),])|(?P<end>$))""",
    re.VERBOSE,
)
UNITS = {"s": 1, "m": 60, "h": 3600}


def _tokens(query: str) -> Iterator[tuple[str, str]]:
    position = 0
    while True:
        match = TOKEN.match(query, position)
        if not match or not match.lastgroup:
            raise QueryError(f"cannot read {query[position:].strip()[:30]!r}")
        yield match.lastgroup, match[match.lastgroup]
        if match.lastgroup == "end":
            return
        position = match.end()


class _Parser:
    def __init__(self, query: str) -> None:
        self._tokens = list(_tokens(query))
        self._at = 0

    def peek(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def take(self) -> tuple[str, str]:
        self._at += 1
        return self._tokens[self._at - 1]

    def expect(self, kind: str, text: str) -> None:
        found = self.take()
        if found != (kind, text):
            raise QueryError(f"expected {text or kind!r}, found {found[1] or 'the end'!r}")

    def expression(self, least: int) -> Compiled:
        left = self.operand()
        while (precedence := PRECEDENCE.get(self.peek()[1], 0)) > least:
            operator = self.take()[1]
            left = self.binary(operator, left, self.expression(precedence))
        return left

    @staticmethod
    def binary(operator: str, left: Compiled, right: Compiled) -> Compiled:
        return lambda store, now: _binary(operator, left(store, now), right(store, now))

    def operand(self) -> Compiled:
        kind, text = self.take()
        if kind == "number":
            number = float(text)
            return lambda *_: number
        if (kind, text) == ("operator", "("):
            inner = self.expression(0)
            self.expect("operator", ")")
            return inner
        if kind != "name":
            raise QueryError(f"expected a metric, a number or a function, found {text or 'the end'!r}")
        if text in AGGREGATIONS:
            if self.peek()[1] in ("by", "without"):
                raise QueryError(f"{text} {self.peek()[1]} (…): a trigger needs one element; leave the grouping out")
            argument = self.arguments(1)[0]
            return lambda store, now: _aggregate(text, argument(store, now))
        if text in RANGES:
            return self.range_function(text)
        if text in FUNCTIONS:
            arguments = self.arguments(2 if text.startswith("clamp") else 1)
            return lambda store, now: _function(text, [argument(store, now) for argument in arguments])
        name = self.metric(text)
        return lambda store, now: store.latest(name, now)

    def arguments(self, count: int) -> list[Compiled]:
        self.expect("operator", "(")
        found = [self.expression(0)]
        for _ in range(count - 1):
            self.expect("operator", ",")
            found.append(self.expression(0))
        self.expect("operator", ")")
        return found

    def range_function(self, function: str) -> Compiled:
        self.expect("operator", "(")
        name = self.metric(self.take()[1])
        kind, text = self.take()
        if kind != "range":
            raise QueryError(f"{function}({name}) needs a range such as [1m]")
        seconds = int(text[:-1]) * UNITS[text[-1]]
        if seconds > LOOKBACK:
            raise QueryError(f"[{text}]: ranges are simulated up to {LOOKBACK} s")
        self.expect("operator", ")")
        return lambda store, now: _range(function, store, name, seconds, now)

    def metric(self, name: str) -> str:
        if name not in (*POD_METRICS, *SERVICE_METRICS, *FRONT_DOOR_METRICS):
            known = ", ".join((*POD_METRICS, *SERVICE_METRICS, *FRONT_DOOR_METRICS))
            raise QueryError(f"{name} is not simulated; known are {known}")
        if self.peek()[0] == "matchers":
            self.take()
        return name
