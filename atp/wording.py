"""Times, durations and sizes in words that people read and write."""

import json
import math
import re
from datetime import datetime, timedelta

from django.utils import timezone

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes"}
_UNITS |= {"h": "hours", "d": "days", "w": "weeks"}
_DELAY = re.compile(r"(?:\d+(?:min|[smhdw]))+")
_LONGEST = timedelta(days=3650)
_SIZE = re.compile(r"(\d+) ?(?:([KMGT])i?)?B?", re.ASCII | re.IGNORECASE)
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def read_moment(given):
    """Read a time in ISO 8601 as an aware datetime, or a delay as ``1h30m`` as a timedelta.

    A time without an offset is in the current time zone. Raises ValueError.
    """
    if _DELAY.fullmatch(given):
        return _delay(given)
    try:
        time = datetime.fromisoformat(given)
        return timezone.make_aware(time) if timezone.is_naive(time) else time
    except (ValueError, OverflowError):
        raise ValueError(
            f"{given!r} is neither a time as 2030-01-31T18:00 nor a delay as 90s, 10m, 1h30m or 2d"
        ) from None


def _delay(given):
    parts = re.findall(r"(\d+)(min|[smhdw])", given)
    try:
        delay = sum((timedelta(**{_UNITS[u]: int(n)}) for n, u in parts), timedelta())
    except (OverflowError, ValueError):
        delay = timedelta.max
    if delay > _LONGEST:
        raise ValueError(f"{given!r} is longer than {_LONGEST.days} days")
    return delay


def state(instance):
    """Return the state of an Instance, with the reason if it FAILED: "FAILED (CANCELLED)"."""
    return f"{instance.state} ({instance.reason})" if instance.reason else str(instance.state)


def shorten(text, limit=60):
    """Cut text that is longer than ``limit`` characters at its end."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


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


def read_size(given):
    """Read a size as "512MiB", "512M" or a number of bytes. Raises ValueError."""
    if isinstance(given, int) and not isinstance(given, bool):
        count = given
    else:
        match = _SIZE.fullmatch(given) if isinstance(given, str) else None
        count = int(match[1]) << _SHIFTS[(match[2] or "").upper()] if match else 0
    if not 0 < count < 1 << 60:
        raise ValueError(f"{given!r} is not a size, as in '512MiB' or '2G'")
    return count


def indented(text):
    """Return JSON text indented, for people; as it is where it cannot be read."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def plain_number(value):
    """Return a number without decimals that say nothing."""
    return int(value) if value == int(value) else value


def percent(fraction):
    """Return progress, from 0 to 1, as a percentage that is 100 only when all is done."""
    return "" if fraction is None else f"{math.floor(fraction * 100)}%"
