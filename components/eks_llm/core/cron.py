"""Cron schedules of five fields, as KEDA's cron trigger reads them (robfig/cron: minute hour day month weekday)."""

import datetime
from dataclasses import dataclass
from functools import cache
from zoneinfo import available_timezones

LIMITS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("weekday", 0, 6))
NAMES = {
    "weekday": (0, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
    "month": (1, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
}
"""Names of values by field, and the number of the first."""
LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days of each month at most, January first."""
SEARCH_DAYS = 366 * 5
"""A schedule such as 29 February comes back after at most this long (but for 2100)."""


@dataclass(frozen=True)
class Schedule:
    """The allowed values of each field."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Day of month and weekday are both restricted: one of them is enough."""

    @staticmethod
    def parse(text: str) -> "Schedule":
        """Raises `ValueError` that says which field is wrong, or that no day is meant, as by 31 February."""
        parts = text.split()
        if len(parts) != len(LIMITS):
            raise ValueError(
                f"not a cron expression of five fields: minute hour day month weekday ({len(parts)} given)"
            )
        fields = [_field(part, *limits) for part, limits in zip(parts, LIMITS, strict=True)]
        schedule = Schedule(*fields, either_day=not _star(parts[2]) and not _star(parts[4]))
        if not schedule.either_day and min(schedule.days) > max(LONGEST_MONTHS[month - 1] for month in schedule.months):
            raise ValueError(f"{text!r} never comes: no month that it names has a day {min(schedule.days)}")
        return schedule

    def next(self, after: datetime.datetime) -> datetime.datetime:
        """The first minute later than `after`, in its time zone."""
        moment = after.replace(second=0, microsecond=0) + datetime.timedelta(minutes=1)
        day = moment.replace(hour=0, minute=0)
        for _ in range(SEARCH_DAYS):
            if self._on(day):
                first = (moment.hour, moment.minute) if day.date() == moment.date() else (0, 0)
                times = [(h, m) for h in sorted(self.hours) for m in sorted(self.minutes) if (h, m) >= first]
                if times:
                    return day.replace(hour=times[0][0], minute=times[0][1])
            day += datetime.timedelta(days=1)
        raise ValueError("the schedule never comes")

    def closes_before_opening(self, opens: "Schedule", moment: datetime.datetime) -> bool:
        """Whether the interval from `opens` to this schedule holds at `moment`: then its end is the next to come."""
        return self.next(moment) <= opens.next(moment)

    def _on(self, day: datetime.datetime) -> bool:
        if day.month not in self.months:
            return False
        date, weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (date or weekday) if self.either_day else (date and weekday)


def _star(field: str) -> bool:
    """Whether robfig/cron takes the field for no restriction: `*`, but not `*/2`. Source: its parser.go, getRange."""
    items = [item.partition("/") for item in field.split(",")]
    return any(span in ("*", "?") and step in ("", "1") for span, _, step in items)


def _field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        try:
            if span in ("*", "?"):
                first, last = low, high
            else:
                begin, _, end = span.partition("-")
                first = _number(begin, name)
                last = _number(end, name) if end else (high if step else first)
            every = int(step) if step else 1
        except ValueError:
            raise ValueError(f"{item!r} is not a {name}") from None
        if name == "weekday" and first <= last == 7:
            raise ValueError(f"{item!r} is not a weekday within 0 and 6; 0 is Sunday")
        if not low <= first <= last <= high or every < 1:
            raise ValueError(f"{item!r} is not a {name} within {low} and {high}")
        values.update(range(first, last + 1, every))
    return frozenset(values)


def _number(text: str, name: str) -> int:
    first, names = NAMES.get(name, (0, ()))
    return first + names.index(text.upper()) if text.upper() in names else int(text)


@cache
def time_zones() -> frozenset[str]:
    """Names of the IANA time zones, spelt as KEDA finds them on every machine; `localtime` is another on each."""
    return frozenset(available_timezones() - {"localtime", "posixrules", "Factory"})
