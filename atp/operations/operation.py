"""One operation as data: name, target, permission, parameters and their kinds, outcome."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from ..exceptions import LONGEST_DELAY, NotSerializable
from ..options import (
    MAX_IDENTIFIER,
    MAX_PRIORITY,
    MAX_RETRIES,
    MIN_PRIORITY,
    SHORTEST_TIMEOUT,
    check_lines,
    check_text,
)
from ..payload import binding
from ..payload import json as tagged_json
from ..text import did_you_mean, read_delay, read_moment, shorten
from . import gates

Schema = dict[str, Any]

# The permissions to act. Each is needed in addition to the permission to see the target.
# To enqueue Instances.
ENQUEUE = "atp.enqueue"
# To act on Instances, graphs and error groups, and to run slots of schedules.
OPERATE = "atp.operate"
# To decide what may run: gates, limits, downstreams, schedules, tailers and daemons.
CONTROL = "atp.control"
# To remove Instances for good.
DELETE = "atp.delete_instance"

DATE_TIME = {"type": "string", "format": "date-time"}
_SECONDS = {"type": "number", "minimum": 0, "maximum": LONGEST_DELAY}
_NO_OFFSET = "{!r} is not a time with an offset, such as 2030-01-31T18:00:00Z."


# The kinds of parameters
#
# The shell and the forms of the pages give text, the API gives JSON. :meth:`Kind.from_text` and
# :meth:`Kind.from_json` refuse the same values, with a ValueError that has the same sentence.


class Kind:
    """A kind of value: ``schema`` is its JSON schema, ``hint`` tells people the format."""

    schema: Schema = {}
    hint = ""

    def from_text(self, text: str) -> Any:
        """Return the value that a text stands for. Raises ValueError."""
        raise NotImplementedError

    def from_json(self, value: Any) -> Any:
        """Return the value that a JSON value stands for. Raises ValueError."""
        raise NotImplementedError


class Text(Kind):
    """One printable line of text; it may be empty."""

    schema = {"type": "string", "maxLength": MAX_IDENTIFIER}

    def from_text(self, text: str) -> str:
        return self.from_json(text)

    def from_json(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"It must be text, not {value!r}.")
        check_text("It", value)
        return value


@dataclass(frozen=True)
class WholeNumber(Kind):
    """A whole number from ``least`` to ``most``. The error for 0 ends with the hint ``zero``."""

    least: int
    most: int
    hint: str = ""
    zero: str = ""

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def from_text(self, text: str) -> int:
        return self._check(_parse_number(int, text), text)

    def from_json(self, value: Any) -> int:
        # 3.0 is the same number as 3 in JSON.
        is_whole = isinstance(value, float) and value.is_integer()
        return self._check(int(value) if is_whole else value, value)

    def _check(self, value: Any, given: Any) -> int:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and self.least <= value <= self.most:
            return value
        hint = f" {self.zero}" if self.zero and is_number and value == 0 else ""
        raise ValueError(f"{given!r} is not a whole number from {self.least} to {self.most}.{hint}")


@dataclass(frozen=True)
class Number(Kind):
    """A number from ``least`` to ``most``."""

    least: float
    most: float

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return {"type": "number", "minimum": self.least, "maximum": self.most}

    def from_text(self, text: str) -> float:
        return self._check(_parse_number(float, text), text)

    def from_json(self, value: Any) -> float:
        return self._check(value, value)

    def _check(self, value: Any, given: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and self.least <= value <= self.most:
            return value
        raise ValueError(f"{given!r} is not a number from {self.least} to {self.most}.")


class Rate(Kind):
    """A number of starts per period, such as "100/m"."""

    schema = {"type": "string", "pattern": gates.PATTERN}
    hint = "as 50/s, 100/min or 5/10s"

    def from_text(self, text: str) -> str:
        return self.from_json(text)

    def from_json(self, value: Any) -> str:
        gates.per_second(value)
        return value


class Moment(Kind):
    """A point in time as a datetime, or a timedelta from now.

    Text without an offset is in the current time zone. In JSON a time needs an offset; a number is
    seconds from now.
    """

    schema = {"oneOf": [DATE_TIME, _SECONDS]}
    hint = "2030-01-31T18:00, or a delay from now as 1h30m"

    def from_text(self, text: str) -> datetime | timedelta:
        return _parse_text(read_moment, text)

    def from_json(self, value: Any) -> datetime | timedelta:
        if isinstance(value, str):
            return time_from_json(value)
        return _make_timedelta(
            value, "a time with an offset as text, nor a number of seconds from now"
        )


@dataclass(frozen=True)
class Delay(Kind):
    """A duration as a timedelta of at least ``least`` seconds; in JSON a number of seconds."""

    least: float = 0
    hint = "as 90s, 10m, 2h or 1d"

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return _SECONDS | {"minimum": self.least}

    def from_text(self, text: str) -> timedelta:
        value = _parse_text(read_delay, text)
        return _make_timedelta(value.total_seconds(), "a number of seconds", self.least)

    def from_json(self, value: Any) -> timedelta:
        return _make_timedelta(value, "a number of seconds", self.least)


@dataclass(frozen=True)
class Choice(Kind):
    """One of the given words."""

    words: tuple[str, ...]

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return {"type": "string", "enum": list(self.words)}

    def from_text(self, text: str) -> str:
        return self.from_json(text)

    def from_json(self, value: Any) -> str:
        if isinstance(value, str) and value in self.words:
            return value
        hint = did_you_mean(str(value), self.words)
        raise ValueError(f"{value!r} must be one of: {', '.join(self.words)}.{hint}")


class Flag(Kind):
    """True or false."""

    schema = {"type": "boolean"}

    def from_text(self, text: str) -> bool:
        return Choice(("true", "false")).from_text(text) == "true"

    def from_json(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"{value!r} must be true or false.")


PRIORITY = WholeNumber(MIN_PRIORITY, MAX_PRIORITY, "higher first")
RETRIES, TIMEOUT = WholeNumber(0, MAX_RETRIES), Delay(SHORTEST_TIMEOUT)


def _parse_number(read: Callable[[str], float], text: str) -> Any:
    """Parse an ASCII number without Python's underscores; return None for any other text."""
    try:
        return read(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def _parse_text(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text.strip())
    except ValueError as error:
        raise ValueError(f"{error}.") from None


def time_from_json(text: str) -> datetime:
    """Parse a time with an offset. Raises ValueError."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or timezone.is_naive(time):
        raise ValueError(_NO_OFFSET.format(text))
    return time


def _make_timedelta(value: Any, what: str, least: float = 0) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not {what}.")
    if not least <= value <= LONGEST_DELAY:
        raise ValueError(f"{value!r} is not from {least:g} to {LONGEST_DELAY:.0f} seconds.")
    return timedelta(seconds=value)


class GateState(Kind):
    """The expected state of a gate: a word, or the time at which the gate was last set."""

    _words = Choice(("hold", "drop", "open"))
    schema = {"oneOf": [{"enum": list(_words.words)}, DATE_TIME]}
    hint = "hold, drop or open, or the time at which the gate was last set"

    def from_text(self, text: str) -> datetime | str:
        return self.from_json(text)

    def from_json(self, value: Any) -> datetime | str:
        if value in self._words.words:
            return value
        try:
            return time_from_json(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"{value!r} must be hold, drop or open, or the time, with an offset, at which the "
                "gate was last set."
            ) from None


class Inputs(Kind):
    """Keyword arguments of a handler: a JSON object, with tags for types that JSON lacks."""

    schema = {"type": "object", "additionalProperties": {}}
    hint = 'a JSON object, as {"region": "alps"}'

    def from_text(self, text: str) -> dict[str, Any]:
        try:
            value = tagged_json.parse_json(text)
        except NotSerializable as error:
            raise ValueError(f"This is {error}.") from None
        return self.from_json(value)

    def from_json(self, value: object) -> dict[str, Any]:
        # A tag may stand for the whole value: {"$float": "nan"} is a JSON object, but a number.
        arguments = tagged_json.from_plain(value)
        if not isinstance(arguments, dict):
            raise ValueError(f"{shorten(repr(value), 200)} is not a JSON object of arguments.")
        for name in arguments:
            if not isinstance(name, str):
                raise ValueError(f"An argument is called {name!r}; names are text.")
        return arguments

    @staticmethod
    def text_of(value: Mapping[str, Any]) -> str:
        """Return a value as text that :meth:`from_text` reads."""
        return json.dumps(json.loads(tagged_json.to_json(value)), ensure_ascii=False)


class Arguments(Kind):
    """Arguments of a handler: a JSON object as in :class:`Inputs`, or an array by position."""

    schema = {"oneOf": [Inputs.schema, {"type": "array", "items": {}}]}

    def from_json(self, value: Any) -> binding.Arguments:
        return binding.split_arguments(tagged_json.from_plain(value))


@dataclass(frozen=True)
class Lines(Text):
    """Printable text on any number of lines, of up to ``most`` characters."""

    most: int

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return {"type": "string", "maxLength": self.most}

    def from_json(self, value: Any) -> str:
        # A browser ends lines with CRLF.
        value = value.replace("\r\n", "\n") if isinstance(value, str) else value
        check_lines("It", value, self.most)
        return value


class Past(Moment):
    """A past time as a datetime. It refuses a delay from now, which lies in the future."""

    schema: Schema = {"type": "string", "format": "date-time"}
    hint = "as 2030-01-31T18:00"

    def from_text(self, text: str) -> datetime:
        time = super().from_text(text)
        if isinstance(time, timedelta):
            raise ValueError(f"{text!r} is a delay from now; it must be a past time.")
        return time

    def from_json(self, value: Any) -> datetime:
        time = super().from_json(value) if isinstance(value, str) else None
        if not isinstance(time, datetime):
            raise ValueError(_NO_OFFSET.format(value))
        return time


# An entry in the table of operations


def always(*_: object) -> bool:
    """Return True: a condition that allows an operation in any state."""
    return True


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of an operation.

    ``field`` is its name in the API, if that differs. With ``can_be_none``, None is a value too,
    such as "no limit". A parameter that the caller leaves out is not passed to ``call``. If
    ``in_forms`` is False, the parameter is only for programs.
    """

    name: str
    kind: Kind
    help: str
    label: str = ""
    field: str = ""
    is_required: bool = False
    can_be_none: bool = False
    in_forms: bool = True

    @property
    def json_name(self) -> str:
        return self.field or self.name


@dataclass(frozen=True)
class Outcome:
    """The outcome of an operation: its return value, and ``told``, a sentence about it."""

    told: str
    value: object = None


def _no_values(target: object) -> dict[str, Any]:
    return {}


def _never(target: object) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation. Its target is an Instance, a Type, a lane, a daemon, a schedule, a graph, …

    ``call(target, by=…, **values)`` performs it. ``told(target, value)`` returns a sentence about
    the value that ``call`` returned. ``current(target)`` returns the initial values of a form.
    ``asks_first(target)`` returns True if a person has to confirm first. An operation that
    ``is_final`` cannot be undone, and a person always has to confirm it.
    ``phrase`` is the label with a place for the target, where the target does not just follow it.
    ``permission``, and ``permission_too`` if it is set, are needed in addition to the permission
    to see the target. ``method`` is the HTTP method: a POST goes to an address below the
    target's, any other method to the address of the target.
    """

    name: str
    label: str
    explanation: str
    call: Callable[..., Any]
    told: Callable[[Any, Any], str]
    parameters: tuple[Parameter, ...] = ()
    current: Callable[[Any], dict[str, Any]] = _no_values
    asks_first: Callable[[Any], bool] = _never
    is_final: bool = False
    phrase: str = ""
    permission: str = OPERATE
    permission_too: str = ""
    method: str = "POST"

    @property
    def id(self) -> str:
        """The name as an identifier in code."""
        return self.name.replace("-", "_")

    def said_of(self, target: str) -> str:
        """Return the label with a target, such as "Run an Instance now"."""
        return (self.phrase or f"{self.label} {{}}").format(target)

    @property
    def has_page(self) -> bool:
        """True if a person needs more than a button: a form, or a question to confirm."""
        return self.is_final or bool(self.parameters)

    def perform(self, target: Any, by: str, **values: Any) -> Outcome:
        """Perform the operation; return the :class:`Outcome`. Raises what ``call`` raises."""
        value = self.call(target, by=by, **values)
        return Outcome(self.told(target, value), value)

    def permissions(self, target: Any) -> tuple[str, ...]:
        """Return the permissions that the operation needs on this target."""
        return self.needs

    @property
    def needs(self) -> tuple[str, ...]:
        """The permissions that the operation needs on every target."""
        return (self.permission, *filter(None, [self.permission_too]))
