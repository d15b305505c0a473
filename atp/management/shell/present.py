"""Documents as text for people, or as JSON for programs.

What the database holds may contain anything, also what moves a terminal's
cursor or changes its title. Text goes out with such characters escaped (G14).
"""

import json
from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

INDENT = "  "
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def as_json(document):
    """Return the document as JSON: times in ISO 8601, durations in seconds, ASCII only."""
    return json.dumps(document, default=_plain, indent=2)


def _plain(value):
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{value!r} has no place in a document")


def printable(text):
    """Return one line of text with everything escaped that is not to be seen."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in str(text)
    )


def lines(text):
    """Return text as printable lines."""
    return [printable(line.expandtabs()) for line in str(text).splitlines()]


def shorten(text, limit=60):
    """Cut text that is longer than ``limit`` characters at its end."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def table(headings, rows):
    """Return rows under their headings, aligned; numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    numbers = [
        bool(rows) and all(isinstance(row[column], int) for row in rows)
        for column in range(len(headings))
    ]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    return "\n".join(
        INDENT.join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in [headings, *cells]
    )


def pairs(items):
    """Return names and values, aligned, leaving out values that are None or empty."""
    given = [(name, printable(value)) for name, value in items if value not in (None, "")]
    width = max((len(name) for name, _ in given), default=0)
    return "\n".join(f"{name.ljust(width)}{INDENT}{value}" for name, value in given)


def _cell(value):
    return "" if value is None else printable(value)


def moment(time, *, precise=False):
    """Return a time in the current time zone; with ``precise`` to the millisecond."""
    if time is None:
        return ""
    local = timezone.localtime(time)
    text = f"{local:%Y-%m-%d %H:%M:%S}"
    return f"{text}.{local.microsecond // 1000:03d}" if precise else text


def zone():
    """Return the name of the current time zone."""
    return timezone.get_current_timezone_name()


def duration(value):
    """Return a timedelta in one unit, as "3.3 min" or "12 h"; an empty string for None."""
    if value is None:
        return ""
    seconds = value.total_seconds()
    if seconds < 0:
        return f"-{duration(-value)}"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, name, until in ((1, "s", _MINUTE), (_MINUTE, "min", _HOUR), (_HOUR, "h", 2 * _DAY)):
        if seconds < until:
            return _in(seconds / unit, name)
    return _in(seconds / _DAY, "d")


def _in(number, unit):
    """A number in its unit, with a decimal where there are few of them."""
    return f"{number:.1f} {unit}".replace(".0 ", " ") if number < 10 else f"{number:.0f} {unit}"


def age(time, now):
    """Return how long ago a time was; a time to come reads "in 3 min"."""
    if time is None:
        return ""
    return duration(now - time) if time <= now else f"in {duration(time - now)}"


def size(count):
    """Return a number of bytes in its largest unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def percent(fraction):
    """Return progress, from 0 to 1, as a percentage."""
    return "" if fraction is None else f"{fraction:.0%}"
