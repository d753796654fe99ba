"""An explanation as one screen of text, and as JSON."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from .model import Direction, Explanation, Pod, SignalAnswer
from .why import policies

LABEL = 10
MOST_PODS = 5
"""Pods that are listed; the rest is counted."""


def text(found: Explanation) -> str:
    """Lines of at most what a terminal shows; long messages of Kubernetes are left whole."""
    return "\n".join(_lines(found)) + "\n"


def as_json(found: Explanation) -> dict[str, Any]:
    """Everything that the text says, and what it was calculated from. Times are seconds since the epoch."""
    document = {"schema": 1, "kind": found.kind, "verdict": found.verdict, **asdict(found)}
    return json.loads(json.dumps(document, default=lambda member: member.value))  # the only other values are enums


def _lines(found: Explanation) -> Iterator[str]:
    seen = found.seen
    most = f" to {seen.spec.max}" if seen.spec else ""
    wanted = f", wants {found.wanted}" if found.wanted is not None else ""
    size = f"{seen.replicas} replica{'s' * (seen.replicas != 1)}, {seen.ready} ready ({seen.least}{most}){wanted}"
    yield f"{seen.service} in {seen.namespace}: {size}"
    yield ""
    yield from _table(found.answers)
    yield ""
    if found.recommended is not None:
        steps = f"metrics ask for {found.recommended}, windows let {found.stabilised} through, policies {found.wanted}"
        yield _row("HPA", steps)
    for name, side in (("up", found.up), ("down", found.down)):
        if side:
            yield _row(name, " · ".join(_direction(side, seen.now, "+" if name == "up" else "-")))
    yield _row("KEDA", " · ".join(_keda(found)))
    for pod in seen.pods[:MOST_PODS]:
        yield _row("pod", _pod(pod))
    if len(seen.pods) > MOST_PODS:
        yield _row("", f"and {len(seen.pods) - MOST_PODS} more that are not ready")
    if seen.pool:
        yield _row("GPUs", _gpus(found))
    for note in seen.notes:
        yield _row("note", note)
    yield ""
    yield found.verdict


def _row(label: str, body: str) -> str:
    return f"{label:{LABEL}}{body}".rstrip()


def _table(answers: tuple[SignalAnswer, ...]) -> Iterator[str]:
    rows = [("signal", "value", "per replica", "ratio", "asks for", "")]
    for answer in answers:
        signal = answer.signal
        rows.append(
            (
                signal.name,
                "–" if signal.value is None else f"{signal.value:.4g}",
                f"{signal.target:.4g}",
                "–" if answer.ratio is None else f"{answer.ratio:.2f}",
                "–" if answer.asks is None else f"{answer.asks}",
                " · ".join(_remarks(answer)),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for name, *figures, remark in rows:
        cells = [f"{figure:>{width}}" for figure, width in zip(figures, widths[1:], strict=True)]
        yield f"{name:{widths[0]}}  {'  '.join(cells)}  {remark}".rstrip()


def _remarks(answer: SignalAnswer) -> Iterator[str]:
    signal = answer.signal
    if signal.problem:
        yield signal.problem
    if signal.failures:
        yield f"{signal.failures} failures in a row"
    if signal.note:
        yield signal.note
    if answer.tolerated:
        yield "within tolerance"


def _direction(side: Direction, now: float, sign: str) -> Iterator[str]:
    until = f", in force until {_clock(side.holds_until)} ({side.holds_until - now:.0f} s)" if side.holds_until else ""
    yield f"window {side.rules.window:g} s{until}"
    used = f", {side.changed} used" if side.changed else ""
    again = f", free again at {_clock(side.free_at)} ({side.free_at - now:.0f} s)" if side.free_at else ""
    yield f"{policies(side.rules, sign)}{used}{again}"
    yield f"tolerance {side.rules.tolerance:g}"


def _keda(found: Explanation) -> Iterator[str]:
    seen = found.seen
    yield seen.problem or "ready"
    if seen.fallback is not None:
        yield f"fallback active: {seen.fallback} replicas"
    elif seen.fallback_after is not None:
        yield f"fallback off, on after {seen.fallback_after} failures"
    if seen.paused:
        yield f"paused ({seen.paused})"


def _pod(pod: Pod) -> str:
    reason = f": {', '.join(pod.lacks) or pod.reason}" if pod.reason else ""
    told = f" · cluster-autoscaler: {pod.autoscaler}" if pod.autoscaler else ""
    return f"{pod.name} {pod.state} for {_age(pod.seconds)}{reason}{told}"


def _gpus(found: Explanation) -> str:
    seen = found.seen
    pool = seen.pool
    if pool is None:
        return ""
    parts = [f"pool {pool.name}: {pool.gpus} on {pool.nodes} node{'s' * (pool.nodes != 1)}"]
    if pool.requested is not None:
        parts.append(f"{pool.requested} requested, at most {pool.most_free} free on one node")
    most = f", {seen.spec.max} replicas {seen.spec.max * seen.gpus_per_pod}" if seen.spec else ""
    parts.append(f"a replica takes {seen.gpus_per_pod}{most}")
    return " · ".join(parts)


def _age(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _clock(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%H:%M:%S} UTC"
