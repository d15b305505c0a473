"""Text for people: times, durations, sizes, gates and limits in words; reading such text; “Did you
mean”.
"""

from __future__ import annotations

import difflib
import json
import math
import pkgutil
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from django.utils import timezone

# Two small helpers for user input: a suggestion for a misspelt word, and durations in seconds.


def did_you_mean(word: object, possibilities: Iterable[object]) -> str:
    """Return " Did you mean …?" with the closest of ``possibilities``, or "" if none is close."""
    close = difflib.get_close_matches(str(word), [str(p) for p in possibilities], n=1, cutoff=0.6)
    if not close:
        upper = {str(p).upper(): str(p) for p in possibilities}
        close = difflib.get_close_matches(str(word).upper(), upper, n=1, cutoff=0.6)
        close = [upper[c] for c in close]
    return f" Did you mean {close[0]!r}?" if close else ""


@overload
def seconds(value: None) -> None: ...
@overload
def seconds(value: timedelta | float) -> timedelta: ...
def seconds(value: timedelta | float | None) -> timedelta | None:
    """Return a duration, given in seconds or as a timedelta, as a timedelta; None stays None."""
    if value is None or isinstance(value, timedelta):
        return value
    return timedelta(seconds=value)


# Times, durations, sizes and errors as text for people, and the parsing of such text.

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes"}
_UNITS |= {"h": "hours", "d": "days", "w": "weeks"}
_DELAY = re.compile(r"(?:\d+(?:min|[smhdw]))+")
# The packages of ATP: a handler's traceback leads through them.
_PACKAGES = "|".join(
    each.name for each in pkgutil.iter_modules([str(Path(__file__).parent)]) if each.ispkg
)
_TRACEBACK = "Traceback (most recent call last):"
# A frame: the line with the file, and those below it that are indented further. In a group of
# exceptions, each line begins with a margin.
_OWN_FRAMES = re.compile(
    rf'^(?P<margin>(?: *\| )?)  File "[^"\n]*/atp/(?:(?:{_PACKAGES})/(?:\w+/)*)?\w+\.py", line .*\n'
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


class HasState(Protocol):
    """An Instance, as far as its state goes."""

    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str: ...


def state(instance: HasState) -> str:
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


# Sentences about gates and limits: their present and their previous state.


class ShutGate(Protocol):
    """A gate that holds or drops, as far as its words go."""

    @property
    def type(self) -> Any: ...
    @property
    def collection(self) -> str | None: ...
    @property
    def mode(self) -> str: ...
    @property
    def who(self) -> str: ...
    @property
    def since(self) -> datetime: ...
    @property
    def until(self) -> datetime | None: ...
    @property
    def reason(self) -> str: ...


class SetLimit(Protocol):
    """Limits of a Type or a lane, as far as their words go."""

    @property
    def max_running(self) -> int | None: ...
    @property
    def max_running_per_collection(self) -> int | None: ...
    @property
    def rate(self) -> str: ...
    @property
    def burst(self) -> int: ...
    @property
    def weight(self) -> float: ...
    @property
    def max_waiting(self) -> int | None: ...
    @property
    def max_wait(self) -> timedelta | None: ...


GateT = TypeVar("GateT", bound=ShutGate)
MODES = {"hold": "held", "drop": "dropped"}
NO_DAEMON = "No daemon is alive"
_DONE = {
    "hold": "Nothing more is started there.",
    "drop": "Instances that wait there fail.",
    "open": "The gate is open.",
}


def where(type: object, collection: str | None) -> str:
    """Return the scope of a gate or a limit in words: the Type's identifier, and the collection."""
    if type is None:
        return "everything"
    return str(type) if collection is None else f"{type}, collection “{collection}”"


def state_of(gate: ShutGate | None, moment: Callable[[datetime], str] = moment) -> str:
    """Return the state of a gate in words, with its author and reason; None is an open gate."""
    if gate is None:
        return "open"
    by = f" by {gate.who}" if gate.who else ""
    until = f", until {moment(gate.until)}" if gate.until else ""
    reason = f": {gate.reason}" if gate.reason else ""
    return f"{MODES[gate.mode]}{by}, since {moment(gate.since)}{until}{reason}"


def in_utc(time: datetime) -> str:
    """Return a time in the form in which the log shows it."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def of_gate(
    mode: str,
    type: str | None,
    collection: str | None,
    was: ShutGate | None,
    shut: Iterable[ShutGate],
) -> str:
    """Return the outcome of a verb on a gate in words; ``mode`` is "open", "hold" or "drop".

    ``was`` is the gate before the verb, None if it was open. ``shut`` are the gates that are shut
    after it.
    """
    if mode == "open" and was is None:
        told = ["It is open already."]
    else:
        told = [_DONE[mode]]
        if was is not None:
            told.append(f"Before, it was {state_of(was)}.")
    for gate in above(type, collection, shut):
        scope = where(gate.type, gate.collection)
        if mode == "open":
            told.append(f"Nothing moves there yet: {scope} is {state_of(gate)}.")
        elif mode == "hold" and gate.mode == "drop":
            told.append(f"Instances that wait there still fail: {scope} is {state_of(gate)}.")
    return " ".join(told)


def is_of(gate: ShutGate, type: str | None, collection: str | None) -> bool:
    """Whether a gate belongs to exactly this scope."""
    of = None if gate.type is None else gate.type.identifier
    return (of, gate.collection) == (type, collection)


def above(type: str | None, collection: str | None, shut: Iterable[GateT]) -> list[GateT]:
    """Return the shut gates of wider scopes, which shut this scope too."""
    if type is None:
        return []
    return [
        gate
        for gate in shut
        if gate.type is None
        or (
            collection is not None and gate.collection is None and gate.type.identifier == str(type)
        )
    ]


def of_limits(limit: SetLimit | None) -> str:
    """Return limits in words; None means no limits."""
    if limit is None:
        return "nothing is limited"
    told = [f"{limit.max_running} at a time"] if limit.max_running is not None else []
    if limit.max_running_per_collection is not None:
        told.append(f"{limit.max_running_per_collection} at a time of each collection")
    told += [f"{limit.rate}, {limit.burst} at once"] if limit.rate else []
    told += [f"weight {limit.weight:g}"] if limit.weight != 1 else []
    told += [f"{limit.max_waiting} waiting"] if limit.max_waiting is not None else []
    if limit.max_wait is not None:
        told.append(f"the oldest waiting {duration(limit.max_wait)}")
    return "; ".join(told) or "nothing is limited"


def misfit(*, is_elsewhere: bool) -> str:
    """Return that its inputs fit no daemon, or not the one that had it, without the error."""
    told = "Its inputs did not fit the handler of the daemon that had claimed it."
    return f"{told} Another daemon that is alive may take it." if is_elsewhere else told


# A JSON Schema in a few words.


def schema_words(schema: Any, defs: dict[str, Any]) -> str:
    """Return a schema in a few words: "integer or null", "array of text"."""
    if not isinstance(schema, dict):
        return "any JSON"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        inner = defs.get(name, {})
        return schema_words(inner, defs) if "enum" in inner else inner.get("title", name)
    if is_tagged(schema):
        return schema["title"]
    if "const" in schema:
        return _as_json(schema["const"])
    if "enum" in schema:
        return _one_of(map(_as_json, schema["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            # Each number may be NaN: that goes without saying.
            said = [each for each in schema[key] if "$float" not in each.get("properties", ())]
            return _one_of(schema_words(each, defs) for each in said)
    kind = schema.get("type")
    if kind == "object" and "title" in schema:
        return schema["title"]
    if kind == "array" and isinstance(schema.get("items"), dict) and schema["items"]:
        return f"array of {schema_words(schema['items'], defs)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {schema_words(schema['additionalProperties'], defs)}"
    return {"string": "text", None: "any JSON"}.get(kind, str(kind)) + _bounds(schema)


def is_tagged(schema: Any) -> bool:
    """Whether a schema is that of a tagged value."""
    names = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return len(names) == 1 and next(iter(names)).startswith("$") and "title" in schema


_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "multiple of {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "pattern": "as {}",
}


def _bounds(schema: dict[str, Any]) -> str:
    told = [words.format(schema[key]) for key, words in _BOUNDS.items() if key in schema]
    return f" {', '.join(told)}" if told else ""


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _one_of(words: Iterable[str]) -> str:
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last
