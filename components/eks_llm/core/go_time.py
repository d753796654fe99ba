"""A date or time without quotes, as Pulumi's CLI hands it over: `go_time`, and `written` for the way back.

Go's yaml.v3 makes a time of it, and the CLI the text of `time.Time.String()`. Source: gopkg.in/yaml.v3 3.0.1,
`parseTimestamp`; Go's package time, `Parse` and `Time.String`.
"""

import calendar
import re

_CLOCK = r"(?P<hour>\d\d?):(?P<minute>\d\d?):(?P<second>\d\d?)(?:[.,](?P<fraction>\d+))?"
_WRITTEN = re.compile(
    rf"(?P<year>\d{{4}})-(?P<month>\d\d?)-(?P<day>\d\d?)"
    rf"(?:[Tt]{_CLOCK}(?P<zone>Z|[-+]\d\d:\d\d)| {_CLOCK.replace('P<', 'P<s_')})?",
    re.ASCII,
)
_PRINTED = re.compile(
    r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,9})?) ([-+]\d{4}) (?:UTC|[A-Z]{3,5}|[-+]\d{2,4})", re.ASCII
)


def go_time(text: str) -> str | None:
    """What the CLI makes of `text` without quotes, where it is a time to it; None where it is not.

    The name of a zone is the one of a machine that is not in that zone.
    """
    match = _WRITTEN.fullmatch(text)
    if not match:
        return None
    part = {name.removeprefix("s_"): value for name, value in match.groupdict().items() if value is not None}
    year, month, day = int(part["year"]), int(part["month"]), int(part["day"])
    hour, minute, second = (int(part.get(name, 0)) for name in ("hour", "minute", "second"))
    zone = part.get("zone", "Z")
    if not 1 <= month <= 12 or not 1 <= day <= _days(year, month) or hour > 23 or minute > 59 or second > 59:
        return None
    if zone != "Z" and (int(zone[1:3]) > 24 or int(zone[4:]) > 59):
        return None
    fraction = part.get("fraction", "")[:9].rstrip("0")
    offset = "+0000" if zone in ("Z", "+00:00", "-00:00") else zone.replace(":", "")
    name = "UTC" if offset == "+0000" else offset
    clock = f"{hour:02}:{minute:02}:{second:02}{'.' if fraction else ''}{fraction}"
    return f"{year:04}-{month:02}-{day:02} {clock} {offset} {name}"


def _days(year: int, month: int) -> int:
    return 29 if month == 2 and calendar.isleap(year) else [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]


def written(text: str) -> str | None:
    """How the user wrote what the CLI made `text` of, such as `2026-10-01`; None where `text` is no such time."""
    match = _PRINTED.fullmatch(text)
    if not match:
        return None
    date, clock, offset = match.groups()
    zone = "Z" if offset == "+0000" else f"{offset[:3]}:{offset[3:]}"
    return date if (clock, zone) == ("00:00:00", "Z") else f"{date}T{clock}{zone}"
