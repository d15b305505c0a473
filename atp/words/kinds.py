"""The kinds of parameters of verbs. Each kind parses text, parses JSON, and has a schema.

The shell and the forms of the pages give text, the API gives JSON. :meth:`Kind.from_text` and
:meth:`Kind.from_json` refuse the same values, with a ValueError that has the same sentence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from ..exceptions import LONGEST_DELAY
from . import rates, wording
from .hints import did_you_mean
from .options import (
    MAX_IDENTIFIER,
    MAX_PRIORITY,
    MAX_RETRIES,
    MIN_PRIORITY,
    SHORTEST_TIMEOUT,
    check_text,
)

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

    schema = {"type": "string", "pattern": rates.PATTERN}
    hint = "as 50/s, 100/min or 5/10s"

    def from_text(self, text: str) -> str:
        return self.from_json(text)

    def from_json(self, value: Any) -> str:
        rates.per_second(value)
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
