"""Functions that put times, sizes, errors, gates and limits into words, or parse such text."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, overload

from django.utils import timezone

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes"}
_UNITS |= {"h": "hours", "d": "days", "w": "weeks"}
_DELAY = re.compile(r"(?:\d+(?:min|[smhdw]))+")
_LONGEST = timedelta(days=3650)
# Every process has at least this much memory resident, in bytes.
LEAST_MEMORY = 1024 * 1024
_SIZE = re.compile(r"(\d+) ?(?:([KMGT])i?)?B?", re.ASCII | re.IGNORECASE)
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
# The packages of ATP that a handler's traceback can lead through. Others, such as api and pages,
# may be the project's own, in a folder that is called atp.
_PACKAGES = "authoring|backend|contracts|contrib|daemon|deadletters|downstreams|graphs|operations"
_PACKAGES += "|payload|schedules|sources|store|tailers"
# Stored tracebacks have these, from earlier code.
_PACKAGES += "|middleware|protection|rows|verbs|words"
_TRACEBACK = "Traceback (most recent call last):"
# A frame of ATP: the line that names the file, and the lines below it that are indented further.
# In a group of exceptions, each line begins with a margin.
_OWN_FRAMES = re.compile(
    rf'^(?P<margin>(?: *\| )?)  File "[^"\n]*/atp/(?:(?:{_PACKAGES})/(?:\w+/)*)?\w+\.py", line .*\n'
    r"(?:(?P=margin)    .*\n)*",
    re.M,
)
# In the stack of a worker: the frame that calls the handler, and the frames below it.
_BELOW_HANDLER = re.compile(
    r'^  File "[^"\n]*/atp/daemon/worker/execution\.py", line .*\n(?:  .*\n)*', re.M
)
# Characters that control a terminal, end a line, hide, or change the direction of writing.
HARMFUL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# A line that begins with this continues the line above it; no other line of a log begins so.
CONTINUED = "| "
# The clocks of two hosts differ, so a shorter time before or after the present means nothing.
_PRESENT = timedelta(seconds=1)


# User input: a suggestion for a misspelt word; durations, times and sizes.


def did_you_mean(word: object, possibilities: Iterable[object]) -> str:
    """Return " Did you mean …?" with the closest of ``possibilities``, or "" if none is close."""
    close = difflib.get_close_matches(str(word), [str(p) for p in possibilities], n=1, cutoff=0.6)
    if not close:
        upper = {str(p).upper(): str(p) for p in possibilities}
        close = difflib.get_close_matches(str(word).upper(), upper, n=1, cutoff=0.6)
        close = [upper[c] for c in close]
    return f" Did you mean {close[0]!r}?" if close else ""


@overload
def as_timedelta(value: None) -> None: ...
@overload
def as_timedelta(value: timedelta | float) -> timedelta: ...
def as_timedelta(value: timedelta | float | None) -> timedelta | None:
    """Return a number of seconds, or a timedelta, as a timedelta; None stays None."""
    if value is None or isinstance(value, timedelta):
        return value
    return timedelta(seconds=value)


def read_moment(value: str) -> datetime | timedelta:
    """Parse an ISO 8601 time to an aware datetime, or a delay such as ``1h30m`` to a timedelta.

    A time without an offset is in the current time zone. Raises ValueError.
    """
    if _DELAY.fullmatch(value):
        return read_delay(value)
    try:
        time = datetime.fromisoformat(value)
        return timezone.make_aware(time) if timezone.is_naive(time) else time
    except (ValueError, OverflowError):
        raise ValueError(
            f"{value!r} is neither a time such as 2030-01-31T18:00 nor a delay such as 90s or 1h30m"
        ) from None


def read_delay(value: str) -> timedelta:
    """Parse a delay such as ``1h30m``. Raises ValueError."""
    if not _DELAY.fullmatch(value):
        raise ValueError(f"{value!r} is not a delay such as 90s, 10m, 1h30m or 2d")
    parts = re.findall(r"(\d+)(min|[smhdw])", value)
    try:
        delay = sum((timedelta(**{_UNITS[u]: int(n)}) for n, u in parts), timedelta())
    except (OverflowError, ValueError):
        delay = timedelta.max
    if delay > _LONGEST:
        raise ValueError(f"{value!r} is longer than {_LONGEST.days} days")
    return delay


# Instances, errors, times, durations and sizes in words.


class HasState(Protocol):
    """The part of an Instance that :func:`describe_state` reads."""

    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str: ...


def describe_state(instance: HasState) -> str:
    """Return the state of an Instance; if FAILED, with the reason: "FAILED (CANCELLED)"."""
    return f"{instance.state} ({instance.reason})" if instance.reason else str(instance.state)


def shorten(text: str, limit: int = 60) -> str:
    """Return a text, cut to ``limit`` characters and ended by an ellipsis if it is longer."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def exception_words(error: BaseException, limit: int = 300) -> str:
    """Return the class and the message of an exception, even if its ``__str__`` raises."""
    try:
        message = str(error)
    except Exception:
        message = ""
    name = type(error).__name__
    return shorten(f"{name}: {message}" if message else name, limit)


def moment(time: datetime | None, *, precise: bool = False) -> str:
    """Return a time as text, in the current time zone; with ``precise``, to the millisecond."""
    if time is None:
        return ""
    local = timezone.localtime(time)
    text = f"{local:%Y-%m-%d %H:%M:%S}"
    if precise:
        text = f"{text}.{local.microsecond // 1000:03d}"
    return f"{text} {local:%Z}" if _is_twice(local) else text


def _is_twice(local: datetime) -> bool:
    """Return True if this local time occurs twice, because the clock goes back."""
    return local.replace(fold=0).utcoffset() > local.replace(fold=1).utcoffset()  # type: ignore[operator]


def headline(text: str) -> str:
    """Return the first line of a message; for a traceback, the line that names the exception."""
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if not headers:
        return lines[0] if lines else ""
    # In a group of exceptions, the first header is the header of the whole group. Otherwise, the
    # last header belongs to the exception that was raised.
    groups = [number for number in headers if "Exception Group" in lines[number]]
    below = [line.removeprefix("  | ") for line in lines[(groups or headers[-1:])[0] + 1 :]]
    return next((line for line in below if line and not line.startswith(" ")), lines[-1])


def repetitions(messages: Iterable[tuple[str, int | None]]) -> list[int | None]:
    """Return for each message the number of the earlier attempt with the same traceback, or None.

    ``messages`` are pairs of message and attempt, in the order of the log. The comparison ignores
    text that ATP adds after a traceback, such as "(retries used up: 4 of 4)".
    """
    first: dict[str, int | None] = {}
    repeated = []
    for message, attempt in messages:
        same = (m for m in first if message == m or message.startswith(f"{m} ("))
        before = first.setdefault(next(same, message), attempt) if "\n" in message else attempt
        repeated.append(before if before != attempt else None)
    return repeated


def without_own_frames(text: str) -> str:
    """Return a traceback without ATP's frames, which do not help to find the error."""
    return _OWN_FRAMES.sub("", text)


def handler_frames(text: str) -> str:
    """Return the stacks of a worker as faulthandler writes them, without ATP around the handler."""
    return without_own_frames(_BELOW_HANDLER.sub("", text))


def time_zone_name() -> str:
    """Return the name of the current time zone."""
    return timezone.get_current_timezone_name()


def duration(value: timedelta | None) -> str:
    """Return a duration in one unit, such as "3.3 min" or "12 h"; "" for None."""
    if value is None:
        return ""
    seconds = value.total_seconds()
    if seconds < 0:
        return f"-{duration(-value)}"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, name, until in ((1, "s", _MINUTE), (_MINUTE, "min", _HOUR), (_HOUR, "h", 2 * _DAY)):
        if seconds < until:
            return _with_unit(seconds / unit, name)
    return _with_unit(seconds / _DAY, "d")


def _with_unit(number: float, unit: str) -> str:
    """Return a number with its unit. A number below ten has one decimal."""
    return f"{number:.1f} {unit}".replace(".0 ", " ") if number < 10 else f"{number:.0f} {unit}"


def delay_text(value: timedelta | None) -> str:
    """Return a delay in the form that :func:`read_moment` parses: "1h30m"; "" for None."""
    if value is None:
        return ""
    left = int(value.total_seconds())
    text = ""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("m", _MINUTE), ("s", 1)):
        count, left = divmod(left, length)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def age(time: datetime | None, now: datetime) -> str:
    """Return how long ago a time was, such as "3 min"; for a future time, "in 3 min".

    A time less than a second before or after ``now`` gives "0 s".
    """
    if time is None:
        return ""
    if abs(now - time) < _PRESENT:
        return duration(timedelta())
    return duration(now - time) if time <= now else f"in {duration(time - now)}"


def ago(time: datetime | None, now: datetime) -> str:
    """Return how long ago a time was, such as "5 s ago".

    A time less than a second ago gives "just now". So does a time after ``now``, which another
    session may have written after the caller read ``now``.
    """
    if time is None:
        return ""
    return f"{duration(now - time)} ago" if now - time >= _PRESENT else "just now"


def due(time: datetime | None, now: datetime) -> str:
    """Return when a Task is due: "in 5 s", or "due for 5 s" if the time has passed.

    A time less than a second before or after ``now`` gives "now".
    """
    if time is None:
        return ""
    if abs(time - now) < _PRESENT:
        return "now"
    return f"in {duration(time - now)}" if time > now else f"due for {duration(now - time)}"


def number(value: int) -> str:
    """Return a whole number with a comma between thousands, such as "25,000"."""
    return f"{value:,}"


def size(count: float) -> str:
    """Return a number of bytes in the largest suitable unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def read_size(value: object) -> int:
    """Parse a size: "512MiB", "512M" or a number of bytes. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        count = value
    else:
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        count = int(match[1]) << _SHIFTS[(match[2] or "").upper()] if match else 0
    if not 0 < count < 1 << 60:
        raise ValueError(f"{value!r} is not a size, as in '512MiB' or '2G'")
    return count


def read_memory(value: object) -> int:
    """Parse the size of the memory that a process may use. Raises ValueError."""
    count = read_size(value)
    if count < LEAST_MEMORY:
        hint = f". Did you mean '{value}MiB'?" if str(value).isdigit() else ""
        raise ValueError(f"{value!r} is less memory than any process uses{hint}")
    return count


def one_line(text: str) -> str:
    """Return text as one line that is safe on a terminal, with control characters escaped."""
    return HARMFUL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def continuation_lines(text: str) -> str:
    """Return text whose lines follow a line of a log: each is escaped and begins with "| "."""
    return "\n".join(
        f"{CONTINUED}{one_line(line.removeprefix(CONTINUED))}" for line in text.split("\n")
    )


def indented(text: str) -> str:
    """Return JSON text with indentation; return text that is not JSON unchanged."""
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


# Gates and limits in words.

MODES = {"hold": "held", "drop": "dropped"}
NO_DAEMON = "No daemon is alive"
_EFFECTS = {
    "hold": "Nothing more is started there.",
    "drop": "Instances that wait there fail.",
    "open": "The gate is open.",
}


class ShutGate(Protocol):
    """The part of a gate in mode "hold" or "drop" that this module reads."""

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
    """The part of the limits of a Type or a lane that this module reads."""

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


def describe_target(type: object, collection: str | None) -> str:
    """Return the target of a gate or a limit: "everything", a Type, or a Type's collection."""
    if type is None:
        return "everything"
    return str(type) if collection is None else f"{type}, collection “{collection}”"


def describe_gate(gate: ShutGate | None, moment: Callable[[datetime], str] = moment) -> str:
    """Return the state of a gate, with the actor and the reason; None stands for an open gate."""
    if gate is None:
        return "open"
    by = f" by {gate.who}" if gate.who else ""
    until = f", until {moment(gate.until)}" if gate.until else ""
    reason = f": {gate.reason}" if gate.reason else ""
    return f"{MODES[gate.mode]}{by}, since {moment(gate.since)}{until}{reason}"


def utc_text(time: datetime) -> str:
    """Return a time in UTC as the log shows it, such as "2030-01-31 18:00:00 UTC"."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def describe_gate_change(
    mode: str,
    type: str | None,
    collection: str | None,
    was: ShutGate | None,
    shut: Iterable[ShutGate],
) -> str:
    """Return the result of setting a gate to ``mode`` ("open", "hold" or "drop"), in sentences.

    ``was`` is the gate before the change, or None if it was open. ``shut`` are all gates that are
    shut after the change.
    """
    if mode == "open" and was is None:
        sentences = ["It is open already."]
    else:
        sentences = [_EFFECTS[mode]]
        if was is not None:
            sentences.append(f"Before, it was {describe_gate(was)}.")
    for gate in wider_gates(type, collection, shut):
        target = describe_target(gate.type, gate.collection)
        if mode == "open":
            sentences.append(f"Nothing moves there yet: {target} is {describe_gate(gate)}.")
        elif mode == "hold" and gate.mode == "drop":
            sentences.append(
                f"Instances that wait there still fail: {target} is {describe_gate(gate)}."
            )
    return " ".join(sentences)


def is_gate_for(gate: ShutGate, type: str | None, collection: str | None) -> bool:
    """Return True if a gate belongs to exactly this target."""
    identifier = None if gate.type is None else gate.type.identifier
    return (identifier, gate.collection) == (type, collection)


def wider_gates(type: str | None, collection: str | None, shut: Iterable[GateT]) -> list[GateT]:
    """Return the shut gates of wider targets, such as the whole queue, which shut this one too."""
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


def describe_limits(limit: SetLimit | None) -> str:
    """Return the limits of a Type or a lane in words; None stands for no limits."""
    if limit is None:
        return "nothing is limited"
    parts = [f"{number(limit.max_running)} at a time"] if limit.max_running is not None else []
    if limit.max_running_per_collection is not None:
        most = number(limit.max_running_per_collection)
        parts.append(f"{most} at a time of each collection")
    parts += [f"{limit.rate}, {number(limit.burst)} at once"] if limit.rate else []
    parts += [f"weight {limit.weight:g}"] if limit.weight != 1 else []
    parts += [f"{number(limit.max_waiting)} waiting"] if limit.max_waiting is not None else []
    if limit.max_wait is not None:
        parts.append(f"the oldest waiting {duration(limit.max_wait)}")
    return "; ".join(parts) or "nothing is limited"


def describe_incompatible_inputs(*, is_elsewhere: bool) -> str:
    """Return why an Instance with incompatible inputs was deferred, without the error.

    ``is_elsewhere`` says whether another live daemon may be able to run it.
    """
    problem = "Its inputs did not fit the handler of the daemon that had claimed it."
    return f"{problem} Another daemon that is alive may take it." if is_elsewhere else problem


# JSON Schemas in words.

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


def describe_schema(schema: Any, defs: dict[str, Any]) -> str:
    """Return a JSON Schema in a few words: "integer or null", "array of text".

    ``defs`` are the definitions to which references in the schema lead.
    """
    if not isinstance(schema, dict):
        return "any JSON"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        inner = defs.get(name, {})
        return describe_schema(inner, defs) if "enum" in inner else inner.get("title", name)
    if is_tagged(schema):
        return schema["title"]
    if "const" in schema:
        return _as_json(schema["const"])
    if "enum" in schema:
        return _one_of(map(_as_json, schema["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            # Any number may be NaN: the words leave this out.
            choices = [each for each in schema[key] if "$float" not in each.get("properties", ())]
            return _one_of(describe_schema(each, defs) for each in choices)
    kind = schema.get("type")
    if kind == "object" and "title" in schema:
        return schema["title"]
    if kind == "array" and isinstance(schema.get("items"), dict) and schema["items"]:
        return f"array of {describe_schema(schema['items'], defs)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {describe_schema(schema['additionalProperties'], defs)}"
    return {"string": "text", None: "any JSON"}.get(kind, str(kind)) + _describe_bounds(schema)


def is_tagged(schema: Any) -> bool:
    """Return True if this is the JSON Schema of a tagged value: an object with one "$…" key."""
    names = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return len(names) == 1 and next(iter(names)).startswith("$") and "title" in schema


def _describe_bounds(schema: dict[str, Any]) -> str:
    bounds = [words.format(schema[key]) for key, words in _BOUNDS.items() if key in schema]
    return f" {', '.join(bounds)}" if bounds else ""


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _one_of(words: Iterable[str]) -> str:
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last
