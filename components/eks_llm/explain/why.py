"""From what is seen of a service to why it has its replicas, by the arithmetic of simulate/hpa.py.

A controller keeps what it recommended and did in memory. Here both are rebuilt: recommendations from the history of the
signals, changes from the HPA's events.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..simulate.hpa import (
    SCALE_DOWN_WINDOW,
    SYNC_SECONDS,
    TOLERANCE,
    Decision,
    Hpa,
    MetricType,
    Rules,
    SelectPolicy,
    Spec,
)
from .model import Direction, Explanation, Pod, Seen, Signal, SignalAnswer


def explain(seen: Seen) -> Explanation:
    """The whole answer."""
    hpa = _memory(seen)
    answers = tuple(_answer(seen, hpa, index, signal) for index, signal in enumerate(seen.signals))
    if hpa is None or seen.replicas == 0:
        kind, verdict = _without_hpa(seen, answers)
        return Explanation(seen, kind, verdict, answers)
    decision = hpa.decide(seen.now, seen.replicas, seen.ready, values(seen))
    if not _remembered(seen, hpa.spec):
        decision = _as_said(seen, decision)
    case = Case(seen, answers, decision, hpa.spec)
    kind, verdict = next(_verdicts(case))
    up, down = (_direction(seen, hpa, decision, sign) for sign in (1, -1))
    return Explanation(
        seen, kind, verdict, answers, decision.recommended, decision.stabilised, decision.wanted, up, down
    )


def values(seen: Seen) -> list[float | None]:
    """What KEDA gives to the HPA: the values, and the fallback's where it is active."""
    if seen.spec is None:
        return []
    return [
        signal.value if signal.value is not None or seen.fallback is None else target * seen.fallback
        for signal, (target, _) in zip(seen.signals, seen.spec.targets, strict=True)
    ]


def _memory(seen: Seen) -> Hpa | None:
    """The controller's HPA with its memory."""
    if seen.spec is None:
        return None
    changes = [(time, after - before) for (_, before), (time, after) in pairwise(seen.sizes)]
    return Hpa(
        seen.spec,
        recommendations=list(seen.recommendations),
        ups=[(time, change) for time, change in changes if change > 0],
        downs=[(time, -change) for time, change in changes if change < 0],
    )


def _answer(seen: Seen, hpa: Hpa | None, index: int, signal: Signal) -> SignalAnswer:
    if hpa is None or signal.value is None or not seen.replicas:
        return SignalAnswer(signal, None, None, tolerated=False)
    target, kind = hpa.spec.targets[index]
    whole = target if kind is MetricType.VALUE else target * seen.replicas
    ratio = signal.value / whole
    asks = hpa.propose(signal.value, target, kind, seen.replicas, seen.ready)
    exact = hpa.propose(signal.value, target, kind, 1, seen.ready) if kind is MetricType.AVERAGE_VALUE else asks
    return SignalAnswer(signal, ratio, asks, tolerated=asks == seen.replicas and exact != asks and ratio != 1)


def _remembered(seen: Seen, spec: Spec) -> bool:
    """Whether the history of the signals reaches as far back as the controller looks."""
    longest = max((rules.window for rules in (spec.up, spec.down) if rules), default=SCALE_DOWN_WINDOW)
    return any(time <= seen.now - longest + 2 * SYNC_SECONDS for time, _ in seen.recommendations)


def _as_said(seen: Seen, decision: Decision) -> Decision:
    """Without that history the controller's own words tell what its windows and policies do."""
    reasons = set((seen.said or {}).values())
    if reasons & {"ScaleDownStabilized", "ScaleUpStabilized"}:
        return Decision(decision.recommended, seen.replicas, seen.replicas)
    if reasons & {"ScaleUpLimit", "ScaleDownLimit"}:
        return Decision(decision.recommended, decision.stabilised, seen.replicas)
    return decision


# Windows and policies -----------------------------------------------------------------------------------------------


def _direction(seen: Seen, hpa: Hpa, decision: Decision, sign: int) -> Direction | None:
    rules = hpa.spec.up if sign > 0 else hpa.spec.down
    if rules is None:
        return None
    events = hpa.ups if sign > 0 else hpa.downs
    longest = max((policy.period for policy in rules.policies), default=0)
    return Direction(
        rules,
        holds_until=_holds_until(seen, decision, rules, sign),
        changed=sum(change for time, change in events if time > seen.now - longest),
        free_at=_free_at(seen, decision, rules, events, sign),
    )


def _holds_until(seen: Seen, decision: Decision, rules: Rules, sign: int) -> float | None:
    """When no recommendation within the window is left that speaks against moving on."""
    recommended = decision.recommended
    if recommended is None or (recommended - seen.replicas) * sign <= 0:
        return None
    against = [time for time, value in seen.recommendations if (value - seen.replicas) * sign <= 0]
    latest = max(against, default=None)
    return latest + rules.window if latest is not None and latest + rules.window > seen.now else None


def _free_at(seen: Seen, decision: Decision, rules: Rules, events: list[tuple[float, int]], sign: int) -> float | None:
    held = (decision.stabilised - seen.replicas) * sign > 0 and decision.wanted == seen.replicas
    if not held or not events or rules.select is SelectPolicy.DISABLED:
        return None
    last = max(time for time, _ in events)
    return last + min(policy.period for policy in rules.policies)


# The verdict --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What a verdict is made of."""

    seen: Seen
    answers: tuple[SignalAnswer, ...]
    decision: Decision
    spec: Spec

    @property
    def failing(self) -> list[SignalAnswer]:
        return [answer for answer in self.answers if answer.signal.value is None]

    @property
    def loudest(self) -> str:
        """The signal that decides, with its arithmetic."""
        heard = [answer for answer in self.answers if answer.asks is not None and answer.signal.value is not None]
        if not heard:
            return "no signal"
        best = max(heard, key=lambda answer: (answer.asks or 0, answer.ratio or 0))
        value = best.signal.value
        return f"{best.signal.name} ({value:.4g} / {best.signal.target:.4g} = {(value or 0) / best.signal.target:.2f})"

    @property
    def stays(self) -> str:
        return f"It stays at {_replicas(self.seen.replicas)}"

    @property
    def unschedulable(self) -> list[Pod]:
        return [pod for pod in self.seen.pods if pod.state == "unschedulable"]


def _without_hpa(seen: Seen, answers: tuple[SignalAnswer, ...]) -> tuple[str, str]:
    if seen.paused:
        return "paused", f"It stays at {_replicas(seen.replicas)} because scaling is paused ({seen.paused})."
    if seen.replicas == 0 and seen.least == 0:
        awake = [a.signal.name for a in answers if a.signal.value is not None and a.signal.value > a.signal.activation]
        if awake:
            return "waking", f"It is at 0 and about to wake up: {', '.join(awake)} is above its activation threshold."
        blind = [f"{answer.signal.name}: {answer.signal.problem}" for answer in answers if answer.signal.value is None]
        if blind and len(blind) == len(answers):
            return "blind", f"It sleeps at 0 replicas and nothing can wake it: no signal has a value ({blind[0]})."
        return "asleep", "It is scaled to zero because no signal is above its activation threshold."
    if seen.replicas == 0:
        return "switched-off", (
            "It has 0 replicas because somebody set the Deployment to 0, which an HPA takes for switched off; "
            f"kubectl scale deployment {seen.service} --replicas={max(1, seen.least)} switches it on."
        )
    return "not-scaled", (
        f"It stays at {_replicas(seen.replicas)} because KEDA has made no HPA"
        f"{f': {seen.problem}' if seen.problem else ''}."
    )


def _verdicts(case: Case) -> Iterator[tuple[str, str]]:
    """The first one counts."""
    seen, decision = case.seen, case.decision
    if seen.paused:
        yield "paused", f"{case.stays} because scaling is paused ({seen.paused})."
    yield from _blind(case)
    yield from _pending(case)
    if decision.recommended is None:  # cannot come here without a failing signal
        yield "blind", f"{case.stays} because the HPA has no metric."
    recommended = decision.recommended or 0
    if seen.replicas > case.spec.max or seen.replicas < case.spec.min:
        bound = case.spec.max if seen.replicas > case.spec.max else case.spec.min
        yield "to-bounds", f"It goes from {seen.replicas} to {bound}, since it may have {_bounds(case)}."
    if recommended > seen.replicas:
        yield from _upwards(case, recommended)
    elif recommended < seen.replicas:
        yield from _downwards(case, recommended)
    not_ready = seen.replicas - seen.ready
    if not_ready > 0:
        yield (
            "starting",
            (
                f"It has the {_replicas(seen.replicas)} that {case.loudest} asks for; {not_ready} of them "
                f"{'is' if not_ready == 1 else 'are'} not ready yet."
            ),
        )
    tolerated = [answer for answer in case.answers if answer.tolerated and answer.asks == recommended]
    if tolerated:
        off = tolerated[0]
        yield (
            "steady",
            (
                f"{case.stays} because {off.signal.name} is at {off.ratio:.2f} of its target, "
                f"which an HPA leaves alone ({1 - _tolerance(case.spec.down):g} to {1 + _tolerance(case.spec.up):g})."
            ),
        )
    yield "steady", f"It has {_replicas(seen.replicas)} because {case.loudest} asks for just that."


def _blind(case: Case) -> Iterator[tuple[str, str]]:
    seen, failing = case.seen, case.failing
    if not failing:
        return
    lost = "; ".join(f"{answer.signal.name}: {answer.signal.problem}" for answer in failing)
    if seen.fallback is not None:
        yield (
            "fallback",
            (
                f"It is blind ({lost}), and KEDA's fallback stands for {_replicas(seen.fallback)}, so "
                f"{'it stays as it is' if seen.fallback == seen.replicas else 'it goes there'}."
            ),
        )
    if len(failing) == len(case.answers):
        wait = ""
        if seen.fallback_after is not None:
            most = max(answer.signal.failures for answer in failing)
            wait = f" until the fallback takes over after more than {seen.fallback_after} failures ({most} so far)"
        yield "blind", f"{case.stays} because it is blind ({lost}): no action{wait}."
    if case.decision.recommended is None:
        yield (
            "partly-blind",
            (
                f"{case.stays} because {lost}: with one signal missing an HPA never scales down, "
                "though the others ask for less."
            ),
        )


def _pending(case: Case) -> Iterator[tuple[str, str]]:
    seen, pods = case.seen, case.unschedulable
    if not pods:
        return
    lacks = sorted({name for pod in pods for name in pod.lacks})
    count = f"{len(pods)} of its {_replicas(seen.replicas)} {'waits' if len(pods) == 1 else 'wait'}"
    why = f"for {' and '.join(lacks)}" if lacks else f"for a node ({pods[0].reason})"
    gpu_short = any("gpu" in name for name in lacks)
    pool = seen.pool
    if gpu_short and pool is not None and pool.requested is not None:
        taken = (
            f"pool {pool.name} has {pool.gpus} GPUs on {pool.nodes} node{'s' * (pool.nodes != 1)}, {pool.requested} "
        )
        taken += f"of them requested, and a replica takes {seen.gpus_per_pod} on one node"
        why += f": {taken}"
    told = next((pod.autoscaler for pod in pods if pod.autoscaler), "")
    if told:
        why += f"; cluster-autoscaler: {told}"
    yield ("gpu-budget" if gpu_short else "unschedulable"), f"{count} {why}."


def _upwards(case: Case, recommended: int) -> Iterator[tuple[str, str]]:
    seen, decision = case.seen, case.decision
    if seen.replicas == case.spec.max:
        yield (
            "at-max",
            (f"It stays at its maximum of {_replicas(case.spec.max)} though {case.loudest} asks for {recommended}."),
        )
    rules = case.spec.up
    if decision.stabilised <= seen.replicas and rules is not None:
        yield (
            "held-up",
            (
                f"{case.stays} though {case.loudest} asks for {recommended}: the scale-up window "
                f"takes the least of the last {rules.window:g} s, {decision.stabilised}."
            ),
        )
    if decision.wanted == seen.replicas:
        yield (
            "limited-up",
            (
                f"{case.stays} though {case.loudest} asks for {recommended}: the policies allow "
                f"{policies(rules, '+')}, and that is used up."
            ),
        )
    short = f" of the {recommended}" if decision.wanted < recommended else ""
    limit = ""
    if short:
        at_max = decision.wanted == case.spec.max
        limit = ", its maximum" if at_max else f", as far as the policies go ({policies(rules, '+')})"
    yield "scaling-up", f"It goes from {seen.replicas} to {decision.wanted}{short} that {case.loudest} asks for{limit}."


def _downwards(case: Case, recommended: int) -> Iterator[tuple[str, str]]:
    seen, decision = case.seen, case.decision
    rules = case.spec.down
    if seen.replicas == case.spec.min:
        yield "at-min", f"It stays at its minimum of {_replicas(case.spec.min)}; {case.loudest} asks for {recommended}."
    if decision.stabilised >= seen.replicas:
        window = f"{rules.window:g} s" if rules else "five minutes"
        yield (
            "held-down",
            (
                f"{case.stays} though {case.loudest} asks for {recommended} only: the scale-down "
                f"window takes the most of the last {window}."
            ),
        )
    if decision.wanted == seen.replicas:
        yield (
            "limited-down",
            (
                f"{case.stays} though {case.loudest} asks for {recommended} only: the policies "
                f"allow {policies(rules, '-')}, and that is used up."
            ),
        )
    yield (
        "scaling-down",
        f"It goes from {seen.replicas} to {decision.wanted}, since {case.loudest} asks for {recommended}.",
    )


def policies(rules: Rules | None, sign: str) -> str:
    """How fast an HPA goes in one direction, in words."""
    if rules is None:
        return "a doubling per turn"
    if rules.select is SelectPolicy.DISABLED:
        return "no change"
    joint = " or " if rules.select is SelectPolicy.MAX else " and at most "
    return joint.join(
        f"{sign}{policy.value}{' %' if policy.type.value == 'Percent' else ''} per {policy.period} s"
        for policy in rules.policies
    )


def _tolerance(rules: Rules | None) -> float:
    return rules.tolerance if rules else TOLERANCE


def _bounds(case: Case) -> str:
    return f"{case.spec.min} to {_replicas(case.spec.max)}"


def _replicas(number: int) -> str:
    return f"{number} replica{'s' * (number != 1)}"
