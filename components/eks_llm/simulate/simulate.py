"""The simulation: traffic, fleet, scrapes and autoscaler on one clock."""

import math
from dataclasses import dataclass

import numpy as np

from ..sizing.replica import Replica
from .hpa import SYNC_SECONDS
from .keda import Autoscaler
from .promql import FRONT_DOOR_METRICS, Store
from .replica import TIMELY, Counts, Fleet, Routing, Slo
from .traffic import Trace

SCRAPE_SECONDS = 10
"""As serving/observability.py sets it."""
COARSEST, MOST_PARTS = 1.5, 20
"""A time step is as long as so many stages of a request at most, and is split into as many parts at most."""
DRAIN_LIMIT = 7200
"""Seconds after the traffic, at most, until the last request ends and the replicas are back at their minimum."""


@dataclass(frozen=True)
class Service:
    """What is scaled."""

    replica: Replica
    slo: Slo
    pod_start: float
    """Seconds from the decision to a ready pod."""
    gpus: int = 1
    gpu_hour_usd: float | None = None
    max_queued: float | None = None
    """Requests that may wait in a pod; None: twice as many as run, the default of `limits.maxQueuedRequests`."""
    timeout: float = 300.0
    routing: Routing = Routing.LEAST_REQUEST


@dataclass(frozen=True)
class Result:
    """One policy on one trace."""

    counts: Counts
    seconds: float
    """Of the traffic."""
    gpus: int
    gpu_hour_usd: float | None
    times: np.ndarray
    """Every `SYNC_SECONDS`, from 0 until all was over; the series below follow it."""
    desired: np.ndarray
    ready: np.ndarray
    pods: np.ndarray
    """Pods that hold GPUs: starting, ready and draining ones."""
    in_flight: np.ndarray
    """Running and waiting requests."""
    arrivals: np.ndarray
    """Requests per second."""
    missed: np.ndarray
    """Requests per second that were refused, expired or had their first token late, by their time of arrival."""

    @property
    def attainment(self) -> float:
        """Share of the requests that met the SLO; 1 without requests."""
        return self.counts.good / self.counts.arrived if self.counts.arrived else 1.0

    def mean_replicas(self, until: float | None = None) -> float:
        """Mean of the pods that hold GPUs, over the traffic or `until` a later time."""
        return float(self.pods[self.times < (self.seconds if until is None else until)].mean())

    @property
    def back_at_minimum(self) -> float:
        """When the replicas were last above the final, lowest number."""
        above = np.flatnonzero(self.desired > self.desired[-1])
        return float(self.times[above[-1]] + SYNC_SECONDS) if len(above) else self.seconds

    @property
    def gpu_hours(self) -> float:
        """Over the traffic."""
        return self.mean_replicas() * self.gpus * self.seconds / 3600

    @property
    def cost_usd(self) -> float | None:
        return None if self.gpu_hour_usd is None else self.gpu_hours * self.gpu_hour_usd


def simulate(trace: Trace, service: Service, scaler: Autoscaler, seed: int = 1) -> Result:
    """Runs the whole trace, and on until all requests have ended and the replicas are back at their minimum."""
    replica = service.replica
    fleet = Fleet(
        replica,
        service.slo,
        service.pod_start,
        2 * replica.slots if service.max_queued is None else service.max_queued,
        service.timeout,
        service.routing,
        slots=2 * scaler.max,
        random=np.random.default_rng(seed),
    )
    fleet.start(scaler.min)
    store = Store(fleet.slots, SCRAPE_SECONDS)
    rows: list[tuple[float, ...]] = []
    desired, index, received = scaler.min, 0, 0.0
    scrape = poll = sync = 0.0
    parts = max(1, min(MOST_PARTS, math.ceil(trace.step / (COARSEST * replica.shortest_stage))))
    while True:
        now = index * trace.step
        if now >= scrape:
            _scrape(store, fleet, now, received)
            scrape += SCRAPE_SECONDS
        if now >= poll:
            desired = scaler.poll(now, store, desired)
            poll += scaler.polling
        if now >= sync:
            desired = scaler.sync(now, store, desired, fleet.ready)
            fleet.scale(now, desired)
            rows.append((now, desired, fleet.ready, fleet.in_flight, fleet.pods))
            sync += SYNC_SECONDS
        if desired != fleet.replicas:
            fleet.scale(now, desired)
        if now >= trace.seconds and (_quiet(fleet, scaler.min) or now > trace.seconds + DRAIN_LIMIT):
            break
        arrivals = float(trace.arrivals[index]) if index < len(trace.arrivals) else 0.0
        received += arrivals
        for part in range(parts):
            fleet.step(now + part * trace.step / parts, trace.step / parts, arrivals / parts)
        index += 1
    return _result(trace, service, fleet, rows)


def _quiet(fleet: Fleet, least: int) -> bool:
    return fleet.in_flight < 0.5 and fleet.pods <= least


def _scrape(store: Store, fleet: Fleet, now: float, received: float) -> None:
    for slot in fleet.recycled:
        store.forget(slot)
    fleet.recycled.clear()
    live, pods, service = fleet.metrics()
    store.scrape(now, live, pods, service | dict.fromkeys(FRONT_DOOR_METRICS, received))


def _result(trace: Trace, service: Service, fleet: Fleet, rows: list[tuple[float, ...]]) -> Result:
    fleet.counts.good += float(fleet.requests[TIMELY].sum())  # what is left of fading amounts
    times, desired, ready, in_flight, pods = (np.array(column) for column in zip(*rows, strict=True))
    bins = len(times)
    arrived = np.arange(len(trace.arrivals)) * trace.step // SYNC_SECONDS
    missed = np.zeros(bins)
    for second, amount in fleet.missed.items():
        missed[min(bins - 1, second // SYNC_SECONDS)] += amount
    return Result(
        counts=fleet.counts,
        seconds=trace.seconds,
        gpus=service.gpus,
        gpu_hour_usd=service.gpu_hour_usd,
        times=times,
        desired=desired.astype(int),
        ready=ready.astype(int),
        pods=pods.astype(int),
        in_flight=in_flight,
        arrivals=np.bincount(arrived.astype(int), trace.arrivals, minlength=bins)[:bins] / SYNC_SECONDS,
        missed=missed / SYNC_SECONDS,
    )
