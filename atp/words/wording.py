"""Times, durations, sizes and errors as text for people, and the parsing of such text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.utils import timezone

if TYPE_CHECKING:
    from ..models import Instance

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes"}
_UNITS |= {"h": "hours", "d": "days", "w": "weeks"}
_DELAY = re.compile(r"(?:\d+(?:min|[smhdw]))+")
_TRACEBACK = "Traceback (most recent call last):"
# The rooms of ATP that a handler's traceback can lead through.
_ROOMS = "authoring|backend|contracts|contrib|daemon|graphs|middleware|payload|protection|rows"
_ROOMS += "|sources|store|tailers|verbs|words"
# A frame: the line with the file, and those below it that are indented further. In a group of
# exceptions, each line begins with a margin.
_OWN_FRAMES = re.compile(
    rf'^(?P<margin>(?: *\| )?)  File "[^"\n]*/atp/(?:(?:{_ROOMS})/(?:\w+/)*)?\w+\.py", line .*\n'
    r"(?:(?P=margin)    .*\n)*",
    re.M,
)
_LONGEST = timedelta(days=3650)
_SIZE = re.compile(r"(\d+) ?(?:([KMGT])i?)?B?", re.ASCII | re.IGNORECASE)
# Characters that control a terminal, end a line, hide, or change the direction of writing.
HARMFUL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# What a line begins with that continues the line above: no line of a log begins so.
CONTINUED = "| "
# Every process has at least this much memory resident, in bytes.
LEAST_MEMORY = 1024 * 1024
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def read_moment(given: str) -> datetime | timedelta:
    """Parse a time in ISO 8601 to an aware datetime, or a delay as ``1h30m`` to a timedelta.

    A time without an offset is in the current time zone. Raises ValueError.
    """
    if _DELAY.fullmatch(given):
        return read_delay(given)
    try:
        time = datetime.fromisoformat(given)
        return timezone.make_aware(time) if timezone.is_naive(time) else time
    except (ValueError, OverflowError):
        raise ValueError(
            f"{given!r} is neither a time as 2030-01-31T18:00 nor a delay as 90s, 10m, 1h30m or 2d"
        ) from None


def read_delay(given: str) -> timedelta:
    """Parse a delay as ``1h30m``. Raises ValueError."""
    if not _DELAY.fullmatch(given):
        raise ValueError(f"{given!r} is not a delay as 90s, 10m, 1h30m or 2d")
    parts = re.findall(r"(\d+)(min|[smhdw])", given)
    try:
        delay = sum((timedelta(**{_UNITS[u]: int(n)}) for n, u in parts), timedelta())
    except (OverflowError, ValueError):
        delay = timedelta.max
    if delay > _LONGEST:
        raise ValueError(f"{given!r} is longer than {_LONGEST.days} days")
    return delay


def state(instance: Instance) -> str:
    """Return the state of an Instance, with the reason if it FAILED: "FAILED (CANCELLED)"."""
    return f"{instance.state} ({instance.reason})" if instance.reason else str(instance.state)


def shorten(text: str, limit: int = 60) -> str:
    """Cut the end of a text that is longer than ``limit`` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def exception_words(error: BaseException, limit: int = 300) -> str:
    """Return the class and the message of an exception, whose own code may raise, too."""
    try:
        said = str(error)
    except Exception:
        said = ""
    name = type(error).__name__
    return shorten(f"{name}: {said}" if said else name, limit)


def moment(time: datetime | None, *, precise: bool = False) -> str:
    """Return a time in the current time zone as text; with ``precise``, to the millisecond."""
    if time is None:
        return ""
    local = timezone.localtime(time)
    text = f"{local:%Y-%m-%d %H:%M:%S}"
    if precise:
        text = f"{text}.{local.microsecond // 1000:03d}"
    return f"{text} {local:%Z}" if _is_twice(local) else text


def _is_twice(local: datetime) -> bool:
    """Whether this local time occurs twice, because clocks are put back in that night."""
    return local.replace(fold=0).utcoffset() > local.replace(fold=1).utcoffset()  # type: ignore[operator]


def headline(text: str) -> str:
    """Return the line of a message that names the error; in a traceback, the exception's line."""
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if not headers:
        return lines[0] if lines else ""
    # The first header of a group is the whole group's. Without groups, the last header is
    # that of the exception that was raised.
    groups = [number for number in headers if "Exception Group" in lines[number]]
    below = [line.removeprefix("  | ") for line in lines[(groups or headers[-1:])[0] + 1 :]]
    return next((line for line in below if line and not line.startswith(" ")), lines[-1])


def repetitions(told: Iterable[tuple[str, int | None]]) -> list[int | None]:
    """Return for each message the earlier claim whose traceback it repeats, or None.

    ``told`` are pairs of message and claim, in the order of the log. Text that ATP adds after a
    traceback, as "(retries used up: 4 of 4)", is ignored in the comparison.
    """
    first: dict[str, int | None] = {}
    found = []
    for message, claim in told:
        same = (m for m in first if message == m or message.startswith(f"{m} ("))
        before = first.setdefault(next(same, message), claim) if "\n" in message else claim
        found.append(before if before != claim else None)
    return found


def without_own_frames(text: str) -> str:
    """Return a traceback without the frames of ATP, which do not help to find the error."""
    return _OWN_FRAMES.sub("", text)


def zone() -> str:
    """Return the name of the current time zone."""
    return timezone.get_current_timezone_name()


def duration(value: timedelta | None) -> str:
    """Return a timedelta in one unit, as "3.3 min" or "12 h"; "" for None."""
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


def _in(number: float, unit: str) -> str:
    """Return a number with its unit; numbers below ten have one decimal."""
    return f"{number:.1f} {unit}".replace(".0 ", " ") if number < 10 else f"{number:.0f} {unit}"


def written(value: timedelta | None) -> str:
    """Return a delay in the form that :func:`read_moment` parses, as "1h30m"; "" for None."""
    if value is None:
        return ""
    left = int(value.total_seconds())
    text = ""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("m", _MINUTE), ("s", 1)):
        count, left = divmod(left, length)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def age(time: datetime | None, now: datetime) -> str:
    """Return the time since a moment in words; a moment in the future gives "in 3 min"."""
    if time is None:
        return ""
    return duration(now - time) if time <= now else f"in {duration(time - now)}"


def ago(time: datetime | None, now: datetime) -> str:
    """Return how long ago a past moment was: "5 s ago".

    Another session may have written the moment after ``now`` was read: that gives "just now".
    """
    if time is None:
        return ""
    return f"{duration(now - time)} ago" if time < now else "just now"


def due(time: datetime | None, now: datetime) -> str:
    """Return when something comes: "in 5 s", or "due for 5 s" if its moment has passed."""
    if time is None:
        return ""
    return f"in {duration(time - now)}" if time > now else f"due for {duration(now - time)}"


def size(count: float) -> str:
    """Return a number of bytes in the largest suitable unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def read_size(given: object) -> int:
    """Parse a size: "512MiB", "512M" or a number of bytes. Raises ValueError."""
    if isinstance(given, int) and not isinstance(given, bool):
        count = given
    else:
        match = _SIZE.fullmatch(given) if isinstance(given, str) else None
        count = int(match[1]) << _SHIFTS[(match[2] or "").upper()] if match else 0
    if not 0 < count < 1 << 60:
        raise ValueError(f"{given!r} is not a size, as in '512MiB' or '2G'")
    return count


def read_memory(given: object) -> int:
    """Parse the amount of memory that a process may use. Raises ValueError."""
    count = read_size(given)
    if count < LEAST_MEMORY:
        raise ValueError(
            f"{given!r} is less than any process has; say '{given}MiB' if that is what is meant"
            if str(given).isdigit()
            else f"{given!r} is less than any process has"
        )
    return count


def one_line(text: str) -> str:
    """Return text as one line that harms no terminal: control characters are escaped."""
    return HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def continued(text: str) -> str:
    """Return the lines of a text as lines that continue a line of a log, each harmless."""
    return "\n".join(
        f"{CONTINUED}{one_line(line.removeprefix(CONTINUED))}" for line in text.split("\n")
    )


def indented(text: str) -> str:
    """Return JSON text with indentation; text that is no JSON is returned unchanged."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def plain_number(value: float) -> float:
    """Return a whole number as an int, any other number unchanged."""
    return int(value) if value == int(value) else value


def percent(fraction: float | None) -> str:
    """Return a fraction from 0 to 1 as a percentage, rounded down: only 1 gives 100%."""
    return "" if fraction is None else f"{math.floor(fraction * 100)}%"
