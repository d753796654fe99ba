"""What the terminal shows of a load: sums over its processes, live lines, the summary at the end."""

from collections import Counter, deque
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from ..telemetry import Service
from .client import Report
from .shape import percentile

RECENT_SECONDS = 15.0
"""Span of the live figures."""
COUNTS = ("sent", "finished", "refused", "lost", "cut", "unsent", "tokens_in", "tokens_out")
BAR = 30
MOST_PROBLEMS = 5


@dataclass
class Totals:
    """Sums of the reports of all processes."""

    counts: Counter[str] = field(default_factory=Counter[str])
    ttft: list[float] = field(default_factory=list[float])
    problems: Counter[str] = field(default_factory=Counter[str])
    late: float = 0.0
    """The latest report of all, seconds."""
    most_ready: int = 0
    """Most replicas that were seen ready."""
    _latest: dict[int, Report] = field(default_factory=dict[int, Report])
    _recent: deque[tuple[float, Report]] = field(default_factory=deque[tuple[float, Report]])

    def add(self, process: int, report: Report, now: float) -> None:
        """A report that came at `now`, seconds after the load's start."""
        self._latest[process] = report
        self.counts.update({name: getattr(report, name) for name in COUNTS})
        self.ttft += report.ttft
        self.problems.update(report.problems)
        self.late = max(self.late, report.late)
        self._recent.append((now, report))

    def recent(self, now: float) -> "Recent":
        """The last `RECENT_SECONDS` before `now`."""
        while self._recent and self._recent[0][0] < now - RECENT_SECONDS:
            self._recent.popleft()
        ttft = [value for _, report in self._recent for value in report.ttft]
        tokens = sum(report.tokens_out for _, report in self._recent)
        return Recent(percentile(ttft, 0.5), percentile(ttft, 0.99), tokens / min(RECENT_SECONDS, max(1.0, now)))

    @property
    def open(self) -> int:
        """Requests that are being answered."""
        return sum(report.open for report in self._latest.values())

    @property
    def queued(self) -> int:
        """Requests that wait for a connection."""
        return sum(report.queued for report in self._latest.values())

    @property
    def cpu(self) -> float:
        """CPU seconds of all processes."""
        return sum(report.cpu for report in self._latest.values())


@dataclass(frozen=True)
class Recent:
    """Live figures."""

    ttft50: float | None
    ttft99: float | None
    tokens_per_second: float
    """Of answers that ended."""


@dataclass(frozen=True)
class Seen:
    """What the platform says meanwhile; None where it does not answer."""

    service: Service | None = None
    running: float | None = None
    waiting: float | None = None
    kv: float | None = None
    """Percent."""


def live(title: str, elapsed: float, duration: float, totals: Totals, seen: Seen) -> Table:
    """The lines that follow a load on a terminal."""
    recent, done = totals.recent(elapsed), round(BAR * min(1.0, elapsed / duration))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    for name, text in {
        "load": Text(title, "bold"),
        "time": Text.assemble(("━" * done, "green"), ("━" * (BAR - done), "dim"), f" {_time(elapsed, duration)}"),
        "connections": _connections(totals),
        "requests": _requests(totals),
        "engine": _engine(seen),
        "first token": f"p50 {seconds(recent.ttft50)}, p99 {seconds(recent.ttft99)}",
        "tokens/s": f"{recent.tokens_per_second:,.0f}",
        "replicas": Text(replicas(seen.service), "bold"),
    }.items():
        table.add_row(name, text)
    return table


def line(elapsed: float, duration: float, totals: Totals, seen: Seen) -> str:
    """The same in one line, for a log."""
    recent = totals.recent(elapsed)
    parts = (
        _time(elapsed, duration),
        f"connections {_connections(totals)}",
        _requests(totals),
        _engine(seen),
        f"first token p50 {seconds(recent.ttft50)} p99 {seconds(recent.ttft99)}",
        f"{recent.tokens_per_second:,.0f} tokens/s",
        f"replicas {replicas(seen.service)}",
    )
    return " | ".join(parts)


def summary(elapsed: float, totals: Totals) -> Table:
    """What came of a load that ran for `elapsed` seconds."""
    counts = totals.counts
    answered = max(1, counts["finished"])
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    rows = {
        "requests": f"{counts['sent']:,} sent in {clock(elapsed)}, {counts['finished']:,} answered",
        "refused": f"{counts['refused']:,} before the first token",
        "lost streams": f"{counts['lost']:,} broke off",
        "tokens": f"{counts['tokens_in'] / answered:,.0f} in and {counts['tokens_out'] / answered:,.0f} out a request, "
        f"{counts['tokens_out'] / max(elapsed, 1e-9):,.0f} out a second",
        "first token": f"p50 {seconds(percentile(totals.ttft, 0.5))}, p90 {seconds(percentile(totals.ttft, 0.9))}, "
        f"p99 {seconds(percentile(totals.ttft, 0.99))}",
        "replicas": f"{totals.most_ready} ready at most",
        "clients": f"{totals.cpu / max(elapsed, 1e-9):.0%} of a core, at most {seconds(totals.late)} late",
    }
    if unfinished := counts["cut"] + counts["unsent"]:
        rows["not counted"] = f"{unfinished:,} unanswered when the load was over"
    for name, text in rows.items():
        table.add_row(name, text)
    for text, count in totals.problems.most_common(MOST_PROBLEMS):
        table.add_row("problem", f"{count:,} × {text}")
    return table


def replicas(service: Service | None) -> str:
    if service is None:
        return "–"
    most = f" (at most {service.scaling.most})" if service.scaling else ""
    return f"{service.ready} ready of {service.desired} desired{most}"


def clock(span: float) -> str:
    """Minutes and seconds: `2:05`."""
    return f"{int(span) // 60}:{int(span) % 60:02}"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _time(elapsed: float, duration: float) -> str:
    left = "" if elapsed <= duration else ", waiting for the last answers"
    return f"{clock(min(elapsed, duration))} of {clock(duration)}{left}"


def _connections(totals: Totals) -> str:
    return f"{totals.open}" + (f", {totals.queued} requests wait for one" if totals.queued else "")


def _requests(totals: Totals) -> str:
    counts = totals.counts
    names = {"sent": "sent", "finished": "answered", "refused": "refused", "lost": "lost"}
    return ", ".join(f"{counts[name]:,} {shown}" for name, shown in names.items())


def _engine(seen: Seen) -> str:
    return f"{_number(seen.running)} running, {_number(seen.waiting)} waiting, KV cache {_number(seen.kv)} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"
