"""Cron expressions: five fields, parsed, checked and walked by cronsim.

A wall time is a datetime without a zone. :mod:`atp.timing.cron` handles zones: ATP never asks
cronsim about them, because its answers are wrong at some changes of a clock
(docs/design/schedules.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache

from cronsim import CronSim, CronSimError
from cronsim.explain import Expression as Sentence

from ..exceptions import InvalidSchedule
from ..words.hints import did_you_mean
from ..words.wording import shorten

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LONGEST = 200
# Each possible date comes within 40 years; the rarest is 29 February on a Sunday, around 2100.
_START = datetime(2000, 1, 1)
_STEP = re.compile(r"/([0-9]+)$")
# The range of one value before a step, which cronsim takes as open: 5-5/2 as 5/2.
_RANGE_OF_ONE = re.compile(r"\b(\w+)-\1/")
_ORDINAL = re.compile(r"\b([0-9]*)([123])th\b")


@dataclass(frozen=True)
class Field:
    """One of the five fields: its name, the number of its values, and these values in words."""

    name: str
    size: int
    possible: str


FIELDS = (
    Field("minute", 60, "0 to 59"),
    Field("hour", 24, "0 to 23"),
    Field("day of month", 31, "1 to 31, L (the last day) or LW (the last working day)"),
    Field("month", 12, "1 to 12 or JAN to DEC"),
    Field("day of week", 7, "0 to 7 or SUN to SAT, FRI#2 (the second Friday) or 5L (the last one)"),
)
_NAMES = ", ".join(field.name for field in FIELDS)


@dataclass(frozen=True)
class Expression:
    """A checked cron expression, made by :func:`parse`."""

    fields: str

    @cached_property
    def is_fixed(self) -> bool:
        """Whether it has fixed times of the day: neither minute nor hour starts with ``*``."""
        minute, hour, *_ = self.fields.split()
        return not minute.startswith("*") and not hour.startswith("*")

    def walls(self, start: datetime, *, backwards: bool = False) -> Iterator[datetime]:
        """Yield the wall times of the expression after ``start``, or backwards those before it."""
        return CronSim(self.fields, start, reverse=backwards)

    def words(self) -> str:
        """Return the expression in words: "at 02:30 every day"."""
        minute, hour, day, month, weekday = _RANGE_OF_ONE.sub(r"\1/", self.fields).split()
        # A field with all its values is left out; where either field is enough, so is the other.
        is_each_day = self._has_each_weekday and not self._needs_both
        is_each_weekday = self._has_each_day and not self._needs_both
        day = "*" if self._has_each_day or is_each_day else day
        weekday = "*" if self._has_each_weekday or is_each_weekday else weekday
        weekday = ",".join(map(_named, weekday.split(",")))
        text = _Sentence([minute, hour, day, month, weekday], self._needs_both).explain()
        return _ORDINAL.sub(_ordinal, text[0].lower() + text[1:])

    def on_both(self) -> str | None:
        """Return the fields of an expression for the days that match both of its fields for days.

        Cron runs on days that match either, unless one of the two fields starts with ``*``. None
        if no expression has these days.
        """
        minute, hour, day, month, weekday = self.fields.split()
        if self._needs_both:
            return self.fields
        if self._has_each_day:
            return f"{minute} {hour} * {month} {weekday}"
        return f"{minute} {hour} {day} {month} *" if self._has_each_weekday else None

    @cached_property
    def _sim(self) -> CronSim:
        return CronSim(self.fields, _START)

    @property
    def _needs_both(self) -> bool:
        return self._sim.day_and

    @property
    def _has_each_day(self) -> bool:
        return self._sim.days >= set(range(1, 32))

    @property
    def _has_each_weekday(self) -> bool:
        return {day % 7 for day in self._sim.weekdays if isinstance(day, int)} == set(range(7))


class _Sentence(Sentence):
    """The sentence of cronsim, but with "or" where the day of month or of the week is enough."""

    def __init__(self, fields: list[str], needs_both: bool) -> None:
        super().__init__(fields)
        self.day_and = needs_both

    def translate_date(self, allow_every_day: bool) -> str:
        if self.day_and or self.day.star or self.dow.star:
            return super().translate_date(allow_every_day)
        months = "" if self.month.star else f", {self.month}"
        return f"{self.day} or {self.dow}{months}"


def parse(expression: str) -> Expression:
    """Parse a cron expression of five fields, or a nickname. Raises InvalidSchedule."""
    if not isinstance(expression, str) or not expression.strip():
        raise _invalid(expression, f"must be text of five fields ({_NAMES})")
    if len(expression) > LONGEST:
        raise _invalid(expression, f"must be at most {LONGEST} characters long")
    return _parse(expression)


@lru_cache(maxsize=1000)
def _parse(expression: str) -> Expression:
    if expression.strip().startswith("@"):
        parts = _of_nickname(expression.strip()).split()
    else:
        parts = expression.upper().split()
    if len(parts) == 6:
        raise _invalid(
            expression,
            "has six fields, and a cron expression has no seconds. For less than a minute say "
            "every=timedelta(seconds=…)",
        )
    if len(parts) != len(FIELDS):
        raise _invalid(expression, f"has {_count(len(parts))} and must have five: {_NAMES}")
    for number, field in enumerate(FIELDS):
        _check(expression, number, field, parts[number])
    checked = Expression(" ".join(parts))
    _check_dates(expression, checked, parts)
    return checked


def _of_nickname(name: str) -> str:
    if name.lower() == "@reboot":
        raise _invalid(
            name, "is no time: daemons start and stop at any time, on any number of hosts"
        )
    if name.lower() not in NICKNAMES:
        hint = did_you_mean(name, NICKNAMES)
        raise _invalid(name, f"nicknames are {', '.join(NICKNAMES)}.{hint}")
    return NICKNAMES[name.lower()]


def _check(expression: str, number: int, field: Field, given: str) -> None:
    """Raise InvalidSchedule for the first invalid part of a field."""
    for part in given.split(","):
        step = _STEP.search(part)
        if step and int(step[1]) > field.size:
            raise _invalid(
                expression,
                f"{part!r} is no {field.name}: a step is at most {field.size}. "
                "For a longer interval say every=timedelta(…)",
            )
        alone = ["*"] * len(FIELDS)
        alone[number] = part
        try:
            CronSim(" ".join(alone), _START)
        except CronSimError:
            raise _invalid(
                expression,
                f"{part!r} is no {field.name}. Possible are {field.possible}; * (each), "
                "lists (1,4), ranges that go up (1-4) and steps (*/2)",
            ) from None


def _check_dates(expression: str, checked: Expression, parts: list[str]) -> None:
    """Raise InvalidSchedule if each field is valid, but no date fits all of them."""
    try:
        found = next(checked.walls(_START), None)
    except CronSimError:
        found = None
    if found is None:
        raise _invalid(
            expression,
            f"no date has the day of month {parts[2]!r}, the month {parts[3]!r} and the day of "
            f"week {parts[4]!r}",
        )


def _count(number: int) -> str:
    return "one field" if number == 1 else f"{number} fields"


def _named(weekdays: str) -> str:
    """Return a part of the day of week without a step: nobody knows each third day of a week."""
    if "/" not in weekdays:
        return weekdays
    days = CronSim(f"* * * * {weekdays}", _START).weekdays
    return ",".join(map(str, sorted({day % 7 for day in days if isinstance(day, int)})))


def _ordinal(match: re.Match[str]) -> str:
    """Correct the ending of an ordinal number: 21st for 21th."""
    tens, ones = match.groups()
    return match[0] if tens.endswith("1") else f"{tens}{ones}{['st', 'nd', 'rd'][int(ones) - 1]}"


def _invalid(expression: object, problem: str) -> InvalidSchedule:
    end = "" if problem.endswith((".", "?")) else "."
    return InvalidSchedule(f"cron={shorten(repr(expression))}: {problem}{end}", parameter="cron")
