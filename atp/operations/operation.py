"""Operations as data: an Operation has a name, parameters, a permission and a function to call.

A Parameter has a Kind, which reads its values from text and from JSON.
"""

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
# The shell and the forms of the pages pass text, the API passes JSON. :meth:`Kind.from_text` and
# :meth:`Kind.from_json` reject the same values, with the same message in a ValueError.


class Kind:
    """A kind of parameter value.

    ``schema`` is the JSON schema of the value, and ``hint`` describes the format for people.
    """

    schema: Schema = {}
    hint = ""

    def from_text(self, text: str) -> Any:
        """Parse text from the shell or a form, and return the value. Raises ValueError."""
        raise NotImplementedError

    def from_json(self, value: Any) -> Any:
        """Check a JSON value from the API, and return the Python value. Raises ValueError."""
        raise NotImplementedError


class Text(Kind):
    """A value that is one line of printable text, or empty."""

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
    """A value that is a whole number from ``least`` to ``most``.

    ``zero`` is a hint that the error message for the number 0 ends with.
    """

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
    """A value that is a number from ``least`` to ``most``."""

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
    """A value that is a number of starts per period, such as "100/m"."""

    schema = {"type": "string", "pattern": gates.PATTERN}
    hint = "as 50/s, 100/min or 5/10s"

    def from_text(self, text: str) -> str:
        return self.from_json(text)

    def from_json(self, value: Any) -> str:
        gates.per_second(value)
        return value


class Moment(Kind):
    """A value that is a point in time: a datetime, or a timedelta from now.

    A text without a UTC offset is a time in the current time zone. In JSON, a text needs an offset,
    and a number means seconds from now.
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
    """A value that is a timedelta of at least ``least`` seconds; in JSON a number of seconds."""

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
    """A value that is one of ``words``."""

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
    """A value that is true or false."""

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
    """Return the number in ASCII text; None if the text is not a number or has underscores."""
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
    """Parse an ISO 8601 time. Raises ValueError if the time is invalid or has no UTC offset."""
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
        raise ValueError(f"{value!r} must be from {least:g} to {LONGEST_DELAY:.0f} seconds.")
    return timedelta(seconds=value)


class GateState(Kind):
    """A value that is the expected state of a gate.

    The state is "hold", "drop" or "open", or the time at which the gate was last set.
    """

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
    """A value that is a dict of keyword arguments for a handler.

    In JSON and as text, this is a JSON object with tags for types that JSON lacks.
    """

    schema = {"type": "object", "additionalProperties": {}}
    hint = 'a JSON object, as {"region": "alps"}'

    def from_text(self, text: str) -> dict[str, Any]:
        try:
            value = tagged_json.parse_json(text)
        except NotSerializable as error:
            raise ValueError(f"This is {error}.") from None
        return self.from_json(value)

    def from_json(self, value: object) -> dict[str, Any]:
        # A tag can stand for the whole value: the JSON object {"$float": "nan"} is a number.
        arguments = tagged_json.from_plain(value)
        if not isinstance(arguments, dict):
            raise ValueError(f"{shorten(repr(value), 200)} is not a JSON object of arguments.")
        for name in arguments:
            if not isinstance(name, str):
                raise ValueError(f"{name!r} cannot be the name of an argument; names are text.")
        return arguments

    @staticmethod
    def text_of(value: Mapping[str, Any]) -> str:
        """Convert keyword arguments to text that :meth:`from_text` can parse."""
        return json.dumps(json.loads(tagged_json.to_json(value)), ensure_ascii=False)


class Arguments(Kind):
    """A value that is the positional and keyword arguments for a handler.

    In JSON, this is an object as for :class:`Inputs`, or an array of positional arguments.
    """

    schema = {"oneOf": [Inputs.schema, {"type": "array", "items": {}}]}

    def from_json(self, value: Any) -> binding.Arguments:
        return binding.split_arguments(tagged_json.from_plain(value))


@dataclass(frozen=True)
class Lines(Text):
    """A value that is printable text on one or more lines, up to ``most`` characters in all."""

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
    """A value that is a datetime; unlike :class:`Moment`, this rejects a delay from now."""

    schema: Schema = {"type": "string", "format": "date-time"}
    hint = "as 2030-01-31T18:00"

    def from_text(self, text: str) -> datetime:
        time = super().from_text(text)
        if isinstance(time, timedelta):
            raise ValueError(f"{text!r} is a delay from now, but must be a past time.")
        return time

    def from_json(self, value: Any) -> datetime:
        time = super().from_json(value) if isinstance(value, str) else None
        if not isinstance(time, datetime):
            raise ValueError(_NO_OFFSET.format(value))
        return time


# An entry in the table of operations


def always(*_: object) -> bool:
    """Return True, as the condition of an operation that is allowed in any state."""
    return True


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of an operation.

    ``field`` is the parameter's name in the API, if that differs from ``name``. With
    ``can_be_none``, None is a valid value, for example to remove a limit. If the caller leaves out
    the parameter, it is not passed to the operation's ``call`` either. If ``in_forms`` is False,
    forms on the pages do not show the parameter.
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
    """The outcome of an operation: its return value, and ``told``, a sentence for people."""

    told: str
    value: object = None


def _no_values(target: object) -> dict[str, Any]:
    return {}


def _never(target: object) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation on a target, such as an Instance, a Type, a lane, a daemon or a schedule.

    ``call(target, by=…, **values)`` performs the operation. ``told(target, value)`` returns a
    sentence about the value that ``call`` returned. ``current(target)`` returns the initial values
    for a form. ``asks_first(target)`` returns True if a person has to confirm the operation first.
    If ``is_final`` is True, the operation cannot be undone, and a person always has to confirm.

    ``phrase``, such as "Run {} now", is the label with a place for the target; if it is empty, the
    target follows the label. ``permission``, and ``permission_too`` if it is set, are needed in
    addition to the permission to see the target. ``method`` is the HTTP method of the API. A POST
    goes to an address below that of the target, any other method to the target's own address.
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
        """The name with underscores instead of hyphens, as an identifier in code."""
        return self.name.replace("-", "_")

    def said_of(self, target: str) -> str:
        """Return the label with this target filled in, such as "Run an Instance now"."""
        return (self.phrase or f"{self.label} {{}}").format(target)

    @property
    def has_page(self) -> bool:
        """True if the operation needs its own page, for a form or to let a person confirm."""
        return self.is_final or bool(self.parameters)

    def perform(self, target: Any, by: str, **values: Any) -> Outcome:
        """Perform the operation and return the :class:`Outcome`. Raises the errors of ``call``."""
        value = self.call(target, by=by, **values)
        return Outcome(self.told(target, value), value)

    def permissions(self, target: Any) -> tuple[str, ...]:
        """Return the names of the permissions that the operation needs on this target."""
        return self.needs

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the permissions that the operation needs on any target."""
        return (self.permission, *filter(None, [self.permission_too]))
