"""One operation as data: name, target, permission, parameters and their kinds, outcome."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from .. import text as wording
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
from ..text import did_you_mean, shorten
from . import gates

# The kinds of parameters of verbs. Each kind parses text, parses JSON, and has a schema.
#
# The shell and the forms of the pages give text, the API gives JSON. :meth:`Kind.from_text` and
# :meth:`Kind.from_json` refuse the same values, with a ValueError that has the same sentence.

Schema = dict[str, Any]

_LONGEST = timedelta(seconds=LONGEST_DELAY)
DATE_TIME = {"type": "string", "format": "date-time"}
_SECONDS = {"type": "number", "minimum": 0, "maximum": LONGEST_DELAY}


class Kind:
    """A kind of values: ``schema`` is its JSON schema, ``hint`` tells people the format."""

    schema: Schema = {}
    hint = ""

    def from_text(self, text: str) -> Any:
        """Parse a text and return the value. Raises ValueError."""
        raise NotImplementedError

    def from_json(self, value: Any) -> Any:
        """Convert a JSON value to a value of this kind. Raises ValueError if that is impossible."""
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
    """A whole number from ``least`` to ``most``; ``zero`` is a hint in the error for 0."""

    least: int
    most: int
    hint: str = ""
    zero: str = ""

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def from_text(self, text: str) -> int:
        return self._checked(_number(int, text), text)

    def from_json(self, value: Any) -> int:
        # 3.0 is the same number as 3 in JSON.
        is_whole = isinstance(value, float) and value.is_integer()
        return self._checked(int(value) if is_whole else value, value)

    def _checked(self, value: Any, given: Any) -> int:
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
        return self._checked(_number(float, text), text)

    def from_json(self, value: Any) -> float:
        return self._checked(value, value)

    def _checked(self, value: Any, given: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and self.least <= value <= self.most:
            return value
        raise ValueError(f"{given!r} is not a number from {self.least} to {self.most}.")


class Rate(Kind):
    """A number of starts per period, as "100/m"."""

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
        return _read(wording.read_moment, text)

    def from_json(self, value: Any) -> datetime | timedelta:
        if isinstance(value, str):
            return time_from_json(value)
        return _seconds(value, "a time with an offset as text, nor a number of seconds from now")


@dataclass(frozen=True)
class Delay(Kind):
    """A duration as a timedelta, ``least`` seconds at least; in JSON a number of seconds."""

    least: float = 0
    hint = "as 90s, 10m, 2h or 1d"

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return _SECONDS | {"minimum": self.least}

    def from_text(self, text: str) -> timedelta:
        value = _read(wording.read_delay, text)
        return _seconds(value.total_seconds(), "a number of seconds", self.least)

    def from_json(self, value: Any) -> timedelta:
        return _seconds(value, "a number of seconds", self.least)


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
        raise ValueError(f"{value!r} is none of {', '.join(self.words)}.{hint}")


class Flag(Kind):
    """True or false."""

    schema = {"type": "boolean"}

    def from_text(self, text: str) -> bool:
        return Choice(("true", "false")).from_text(text) == "true"

    def from_json(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"{value!r} is neither true nor false.")


PRIORITY = WholeNumber(MIN_PRIORITY, MAX_PRIORITY, "higher first")
RETRIES, TIMEOUT = WholeNumber(0, MAX_RETRIES), Delay(SHORTEST_TIMEOUT)


def _number(read: Callable[[str], float], text: str) -> Any:
    """Parse an ASCII number without Python's underscores; return None for any other text."""
    try:
        return read(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def _read(read: Callable[[str], Any], text: str) -> Any:
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
        raise ValueError(f"{text!r} is no time with an offset, as 2030-01-31T18:00:00Z.")
    return time


def _seconds(value: Any, what: str, least: float = 0) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not {what}.")
    if not least <= value <= LONGEST_DELAY:
        raise ValueError(f"{value!r} is not from {least:g} to {LONGEST_DELAY:.0f} seconds.")
    return timedelta(seconds=value)


# The kind of a parameter that states the expected state of a gate.


class GateState(Kind):
    """The state of a gate: a word, or the time since when the gate has been in its state."""

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
                f"{value!r} is neither hold, drop nor open, nor a time with an offset, at which "
                "the gate was last set."
            ) from None


# The kinds of parameters that take the inputs of a handler.


class Inputs(Kind):
    """Keyword arguments of a handler: a JSON object, with tags for types that JSON lacks."""

    schema = {"type": "object", "additionalProperties": {}}
    hint = 'a JSON object, as {"region": "alps"}'

    def from_text(self, text: str) -> dict[str, Any]:
        try:
            value = tagged_json.parse(text)
        except NotSerializable as error:
            raise ValueError(f"This is {error}.") from None
        return self.from_json(value)

    def from_json(self, value: object) -> dict[str, Any]:
        # A tag may stand for the whole: {"$float": "nan"} is an object, and is a number.
        found = tagged_json.from_plain(value)
        if not isinstance(found, dict):
            raise ValueError(f"{shorten(repr(value), 200)} is not a JSON object of arguments.")
        for name in found:
            if not isinstance(name, str):
                raise ValueError(f"An argument is called {name!r}; names are text.")
        return found

    @staticmethod
    def text_of(value: Mapping[str, Any]) -> str:
        """Return a value as text that :meth:`from_text` reads."""
        return json.dumps(json.loads(tagged_json.to_json(value)), ensure_ascii=False)


class Arguments(Kind):
    """Arguments of a handler: a JSON object as in :class:`Inputs`, or a JSON array by position."""

    schema = {"oneOf": [Inputs.schema, {"type": "array", "items": {}}]}

    def from_json(self, value: Any) -> binding.Arguments:
        return binding.arguments(tagged_json.from_plain(value))


# The kind of a text of several lines.


@dataclass(frozen=True)
class Lines(Text):
    """Printable text of any number of lines, and of up to ``most`` characters."""

    most: int

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return {"type": "string", "maxLength": self.most}

    def from_json(self, value: Any) -> str:
        # A browser sends the ends of lines as CRLF.
        value = value.replace("\r\n", "\n") if isinstance(value, str) else value
        check_lines("It", value, self.most)
        return value


# The kind of a parameter that takes a past point in time.


class Past(Moment):
    """A point in time as a datetime; it refuses a delay from now, which lies in the future."""

    schema: Schema = {"type": "string", "format": "date-time"}
    hint = "as 2030-01-31T18:00"

    def from_text(self, text: str) -> datetime:
        time = super().from_text(text)
        if isinstance(time, timedelta):
            raise ValueError(f"{text!r} is a delay from now, and not a time that has passed.")
        return time

    def from_json(self, value: Any) -> datetime:
        time = super().from_json(value) if isinstance(value, str) else None
        if not isinstance(time, datetime):
            raise ValueError(f"{value!r} is no time with an offset, as 2030-01-31T18:00:00Z.")
        return time


# One entry of the table of verbs: a verb with its parameters, as data.

# The permissions to act. Each is needed beside the permission to see what is acted upon.
# To enqueue Instances.
ENQUEUE = "atp.enqueue"
# To act on Instances, graphs and error groups, and to run slots of schedules.
OPERATE = "atp.operate"
# To decide what runs at all: gates, limits, downstreams, schedules, tailers and daemons.
CONTROL = "atp.control"
# To remove Instances for good.
DELETE = "atp.delete_instance"


def always(*_: object) -> bool:
    """Return True: the ``is_allowed`` of verbs that are allowed in any state."""
    return True


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a verb.

    ``field`` is its name in the API, if that differs. With ``can_be_none``, None is a value of its
    own, as "no limit". A parameter that the caller does not give is not passed to ``call``. With
    ``in_forms`` False it is only for programs.
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
    """The outcome of a verb: its return value ``value``, and ``told``, a sentence about it."""

    told: str
    value: object = None


def _nothing(subject: object) -> dict[str, Any]:
    return {}


def _never(subject: object) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One verb. Its subject is an Instance, a scope, a daemon, a schedule, a graph, a downstream, …

    ``call(subject, by=…, **values)`` performs it. ``told(subject, value)`` returns a sentence about
    the value that ``call`` returned. ``current(subject)`` returns the initial values of a form.
    ``asks_first(subject)`` tells whether a person has to confirm first; a verb that ``is_final``
    cannot be undone, and always has to be confirmed.
    ``phrase`` is the label with a place for the subject, where that does not just follow it.
    ``permission`` is needed beside the permission to see the subject, and so is ``permission_too``
    if it is given. ``method`` is its HTTP method: a POST goes to an address below the subject's,
    any other to the address of the subject.
    """

    name: str
    label: str
    explanation: str
    call: Callable[..., Any]
    told: Callable[[Any, Any], str]
    parameters: tuple[Parameter, ...] = ()
    current: Callable[[Any], dict[str, Any]] = _nothing
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

    def said_of(self, subject: str) -> str:
        """Return the label with a subject, as "Run an Instance now"."""
        return (self.phrase or f"{self.label} {{}}").format(subject)

    @property
    def has_page(self) -> bool:
        """Whether a person needs more than a button for it: a form, or a question to confirm."""
        return self.is_final or bool(self.parameters)

    def perform(self, subject: Any, by: str, **values: Any) -> Outcome:
        """Perform the verb; return the :class:`Outcome`. Raises what the verb raises."""
        value = self.call(subject, by=by, **values)
        return Outcome(self.told(subject, value), value)

    def permissions(self, subject: Any) -> tuple[str, ...]:
        """Return the permissions that the verb needs on this subject."""
        return self.needs

    @property
    def needs(self) -> tuple[str, ...]:
        """The permissions that the verb needs on any subject."""
        return (self.permission, *filter(None, [self.permission_too]))
