"""Compute the slots of schedules, from cron expressions or intervals, with jitter and time zones.

A slot is a time in UTC, to the second, at which a schedule should run. All processes compute the
same slots, whether they walk forwards or backwards in time. This module reads neither the database
nor the clock.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property, lru_cache
from itertools import islice, takewhile
from operator import gt, lt
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from cronsim.explain import Expression as CronExplanation

from ..exceptions import LONGEST_DELAY, InvalidSchedule
from ..text import did_you_mean, shorten

SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_INTERVAL = timedelta(seconds=LONGEST_DELAY)
LONGEST_EXPRESSION = 200
# A walk ends if it finds no slot for this many years.
YEARS = 50
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_START = datetime(2000, 1, 1, tzinfo=UTC)
# After this date, each possible date comes within 40 years. The rarest is 29 February on a Sunday,
# around 2100.
_EXPRESSION_START = datetime(2000, 1, 1)
_STEP = re.compile(r"/([0-9]+)$")
# A range of one value before a step. For cronsim the end of the range is open, so 5-5/2 is 5/2.
_RANGE_OF_ONE = re.compile(r"\b(\w+)-\1/")
_ORDINAL = re.compile(r"\b([0-9]*)([123])th\b")
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
# These names mean different time zones on different hosts.
_HOST_ZONES = {"localtime", "Factory"}


# Cron expressions. The package cronsim parses, checks and walks the five fields. ATP gives it only
# wall times, which have no time zone. With time zones, cronsim is wrong at some clock changes
# (docs/design/schedules.md).


@dataclass(frozen=True)
class CronField:
    """One of the five fields of a cron expression.

    ``size`` is the number of values of the field, and ``possible`` describes these values in words.
    """

    name: str
    size: int
    possible: str


CRON_FIELDS = (
    CronField("minute", 60, "0 to 59"),
    CronField("hour", 24, "0 to 23"),
    CronField("day of month", 31, "1 to 31, L (the last day) or LW (the last working day)"),
    CronField("month", 12, "1 to 12 or JAN to DEC"),
    CronField(
        "day of week", 7, "0 to 7 or SUN to SAT, FRI#2 (the second Friday) or 5L (the last one)"
    ),
)
_NAMES = ", ".join(field.name for field in CRON_FIELDS)


@dataclass(frozen=True)
class CronExpression:
    """A valid cron expression; :func:`parse_cron` returns it."""

    fields: str

    @cached_property
    def is_fixed(self) -> bool:
        """True if the expression has fixed times: neither minute nor hour starts with ``*``."""
        minute, hour, *_ = self.fields.split()
        return not minute.startswith("*") and not hour.startswith("*")

    def walls(self, start: datetime, *, backwards: bool = False) -> Iterator[datetime]:
        """Yield the matching wall times after ``start``, or with ``backwards`` those before it.

        A wall time is a datetime without a time zone.
        """
        return CronSim(self.fields, start, reverse=backwards)

    def words(self) -> str:
        """Return the expression in words, for example "at 02:30 every day"."""
        minute, hour, day, month, weekday = _RANGE_OF_ONE.sub(r"\1/", self.fields).split()
        # The words leave out a field that has all its values. If a day has to match only one of the
        # two fields, and one has all its values, they leave out both.
        is_each_day = self._has_each_weekday and not self._needs_both
        is_each_weekday = self._has_each_day and not self._needs_both
        day = "*" if self._has_each_day or is_each_day else day
        weekday = "*" if self._has_each_weekday or is_each_weekday else weekday
        weekday = ",".join(map(_expand_step, weekday.split(",")))
        text = _Explanation([minute, hour, day, month, weekday], self._needs_both).explain()
        return _ORDINAL.sub(_correct_ordinal, text[0].lower() + text[1:])

    def on_both(self) -> str | None:
        """Return the expression changed to match only days that match both of its fields for days.

        Cron runs on days that match either field, unless one of the two fields starts with ``*``.
        Returns None if no cron expression matches exactly these days.
        """
        minute, hour, day, month, weekday = self.fields.split()
        if self._needs_both:
            return self.fields
        if self._has_each_day:
            return f"{minute} {hour} * {month} {weekday}"
        return f"{minute} {hour} {day} {month} *" if self._has_each_weekday else None

    @cached_property
    def _sim(self) -> CronSim:
        return CronSim(self.fields, _EXPRESSION_START)

    @property
    def _needs_both(self) -> bool:
        return self._sim.day_and

    @property
    def _has_each_day(self) -> bool:
        return self._sim.days >= set(range(1, 32))

    @property
    def _has_each_weekday(self) -> bool:
        return {day % 7 for day in self._sim.weekdays if isinstance(day, int)} == set(range(7))


class _Explanation(CronExplanation):
    """Describes a cron expression in words, with "or" if a day has to match only one field.

    The fields are day of month and day of week. The words are from the package cronsim.
    """

    def __init__(self, fields: list[str], needs_both: bool) -> None:
        super().__init__(fields)
        self.day_and = needs_both

    def translate_date(self, allow_every_day: bool) -> str:
        if self.day_and or self.day.star or self.dow.star:
            return super().translate_date(allow_every_day)
        months = "" if self.month.star else f", {self.month}"
        return f"{self.day} or {self.dow}{months}"


def parse_cron(expression: str) -> CronExpression:
    """Parse a cron expression with five fields, or a nickname. Raises InvalidSchedule."""
    if not isinstance(expression, str) or not expression.strip():
        raise _invalid(expression, f"must be a text with five fields ({_NAMES})")
    if len(expression) > LONGEST_EXPRESSION:
        raise _invalid(expression, f"must be at most {LONGEST_EXPRESSION} characters long")
    return _parse(expression)


@lru_cache(maxsize=1000)
def _parse(expression: str) -> CronExpression:
    if expression.strip().startswith("@"):
        parts = _expand_nickname(expression.strip()).split()
    else:
        parts = expression.upper().split()
    if len(parts) == 6:
        raise _invalid(
            expression,
            "has six fields, but a cron expression has no field for seconds. For an interval "
            "below one minute use every=timedelta(seconds=…)",
        )
    if len(parts) != len(CRON_FIELDS):
        raise _invalid(expression, f"has {_count_fields(len(parts))} and must have five: {_NAMES}")
    for number, field in enumerate(CRON_FIELDS):
        _check_field(expression, number, field, parts[number])
    checked = CronExpression(" ".join(parts))
    _check_dates(expression, checked, parts)
    return checked


def _expand_nickname(name: str) -> str:
    if name.lower() == "@reboot":
        raise _invalid(
            name,
            "is not a time, because daemons start and stop at any time, on any number of hosts",
        )
    if name.lower() not in NICKNAMES:
        hint = did_you_mean(name, NICKNAMES)
        raise _invalid(name, f"the nicknames are {', '.join(NICKNAMES)}.{hint}")
    return NICKNAMES[name.lower()]


def _check_field(expression: str, number: int, field: CronField, value: str) -> None:
    """Raise InvalidSchedule if a part of a field is invalid."""
    for part in value.split(","):
        step = _STEP.search(part)
        if step and int(step[1]) > field.size:
            raise _invalid(
                expression,
                f"{part!r} is not a valid {field.name}, because a step can be at most "
                f"{field.size}. For a longer interval use every=timedelta(…)",
            )
        fields = ["*"] * len(CRON_FIELDS)
        fields[number] = part
        try:
            CronSim(" ".join(fields), _EXPRESSION_START)
        except CronSimError:
            raise _invalid(
                expression,
                f"{part!r} is not a valid {field.name}. Valid are {field.possible}; * (each), "
                "lists (1,4), ranges that go up (1-4) and steps (*/2)",
            ) from None


def _check_dates(expression: str, checked: CronExpression, parts: list[str]) -> None:
    """Raise InvalidSchedule if each field is valid, but no date matches all of them."""
    try:
        first = next(checked.walls(_EXPRESSION_START), None)
    except CronSimError:
        first = None
    if first is None:
        raise _invalid(
            expression,
            f"no date has the day of month {parts[2]!r}, the month {parts[3]!r} and the day of "
            f"week {parts[4]!r}",
        )


def _count_fields(number: int) -> str:
    return "one field" if number == 1 else f"{number} fields"


def _expand_step(weekdays: str) -> str:
    """Replace a step in the day of week, such as ``*/3``, by a list of the days.

    The words "every third day of the week" would not say which days are meant.
    """
    if "/" not in weekdays:
        return weekdays
    days = CronSim(f"* * * * {weekdays}", _EXPRESSION_START).weekdays
    return ",".join(map(str, sorted({day % 7 for day in days if isinstance(day, int)})))


def _correct_ordinal(match: re.Match[str]) -> str:
    """Return an ordinal number with the correct ending, for example "21st" for "21th"."""
    tens, ones = match.groups()
    return match[0] if tens.endswith("1") else f"{tens}{ones}{['st', 'nd', 'rd'][int(ones) - 1]}"


def _invalid(expression: object, problem: str) -> InvalidSchedule:
    end = "" if problem.endswith((".", "?")) else "."
    return InvalidSchedule(f"cron={shorten(repr(expression))}: {problem}{end}", parameter="cron")


# The slots of a schedule, from a cron expression or an interval.


@dataclass(frozen=True)
class FutureRun:
    """A future run of a schedule.

    ``slot`` is its slot in UTC, ``local`` is the same time in the schedule's time zone, and
    ``remark`` is a note about a change of the clock, or "".
    """

    slot: datetime
    local: datetime
    remark: str


class Timing(ABC):
    """Computes the slots of a schedule; ``timezone`` is the time zone in which people see them."""

    timezone: str

    def after(self, time: datetime) -> datetime:
        """Return the first slot later than ``time``, which must have a time zone.

        Raises InvalidSchedule if there is no slot in the next 50 years.
        """
        return self._first(time, "after", backwards=False)

    def before(self, time: datetime) -> datetime:
        """Return the last slot earlier than ``time``, which must have a time zone.

        Raises InvalidSchedule if there is no slot in the 50 years before.
        """
        return self._first(time, "before", backwards=True)

    def slots(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Return the first ``most`` slots later than ``after`` up to ``until``, oldest first."""
        until = in_utc(until)
        slots = takewhile(lambda slot: slot <= until, self._walk(in_utc(after)))
        return list(islice(slots, most))

    def newest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Return the last ``most`` slots later than ``after`` up to ``until``, newest first."""
        after = in_utc(after)
        slots = self._walk(in_utc(until) + timedelta.resolution, backwards=True)
        return list(islice(takewhile(lambda slot: slot > after, slots), most))

    def upcoming(self, count: int, after: datetime) -> list[FutureRun]:
        """Return the next ``count`` runs after a time."""
        zone = time_zone(self.timezone)
        slots = islice(self._walk(in_utc(after)), count)
        return [FutureRun(slot, slot.astimezone(zone), self._remark(slot)) for slot in slots]

    @abstractmethod
    def utc_offset(self, time: datetime) -> timedelta:
        """Return the UTC offset at a time, according to the time zone rules that move the slots."""

    @abstractmethod
    def words(self) -> str:
        """Return the timing in words, for example "every 15 minutes"."""

    @abstractmethod
    def _walk(self, time: datetime, *, backwards: bool = False) -> Iterator[datetime]:
        """Yield the slots after a time in UTC, or with ``backwards`` before it, nearest first."""

    def _first(self, time: datetime, where: str, *, backwards: bool) -> datetime:
        for slot in self._walk(in_utc(time), backwards=backwards):
            return slot
        raise InvalidSchedule(f"{self.words()}: there is no slot {where} {time:%Y-%m-%d}.")

    def _remark(self, slot: datetime) -> str:
        """Return a note if the clock of the time zone changes around this slot, otherwise ""."""
        zone = time_zone(self.timezone)
        local = slot.astimezone(zone)
        before, after = offsets(local.replace(tzinfo=None), zone)
        if before <= after:
            return ""
        which = "second" if local.fold else "first"
        return f"the clock goes back: {local:%H:%M} comes twice, this is the {which} time"


@dataclass(frozen=True)
class Cron(Timing):
    """A cron expression in a time zone, with the rules of Debian's cron.

    Raises InvalidSchedule. When the clock changes, an expression with fixed times, such as
    ``30 2 * * *``, differs from an expression whose minute or hour starts with ``*``:

    - If the clock goes forward and skips 02:30, a fixed time runs once, at the end of the gap.
      ``*/20 2 * * *`` does not run in that night.
    - If the clock goes back and shows 02:30 twice, a fixed time runs the first time.
      ``*/20 2 * * *`` runs both times.

    The same rules apply if the change is half an hour (Australia/Lord_Howe), if the offset is not a
    whole number of hours (Pacific/Chatham), and if the clock skips midnight (America/Havana).
    """

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        time_zone(self.timezone)
        if not self._parsed.is_fixed and next(self._walk(_START), None) is None:
            raise InvalidSchedule(
                f"cron={self.expression!r}: never comes in {self.timezone}, because the clock "
                "goes forward and skips this time.",
                parameter="cron",
            )

    def utc_offset(self, time: datetime) -> timedelta:
        return time.astimezone(time_zone(self.timezone)).utcoffset() or timedelta()

    def words(self) -> str:
        return f"{self._parsed.words()}, {self.timezone}"

    @property
    def _parsed(self) -> CronExpression:
        return parse_cron(self.expression)

    def _walk(self, time: datetime, *, backwards: bool = False) -> Iterator[datetime]:
        nearest, is_beyond = time, lt if backwards else gt
        for slot in self._walk_roughly(time, backwards):
            # In a repeated hour the rough walk begins too early; and all times in a gap give the
            # same slot, at its end.
            if is_beyond(slot, nearest):
                nearest = slot
                yield slot

    def _walk_roughly(self, time: datetime, backwards: bool) -> Iterator[datetime]:
        """Yield the slots in order, but first some before ``time``, and some slots repeatedly."""
        zone, is_beyond = time_zone(self.timezone), lt if backwards else gt
        start = time.astimezone(zone).replace(tzinfo=None, fold=0)
        before, after = offsets(start, zone)
        if before > after:  # In a repeated hour: begin outside the hour.
            start += before - after if backwards else after - before
        year = start.year
        # The clock shows all times of a repeated hour once, and then all of them again. The second
        # showings (``backwards``: the first ones) wait here until the walk has passed the others.
        other: deque[datetime] = deque()
        for wall in self._parsed.walls(start, backwards=backwards):
            slots = self._slots(wall, zone)
            if slots:
                year = wall.year
            elif abs(wall.year - year) > YEARS:
                return
            if backwards:
                slots.reverse()
            for slot in slots[:1]:
                while other and is_beyond(slot, other[0]):
                    yield other.popleft()
                yield slot
            other.extend(slots[1:])
        yield from other

    def _slots(self, wall: datetime, zone: ZoneInfo) -> list[datetime]:
        shown = shown_times(wall, zone)
        if self._parsed.is_fixed:
            return shown[:1] or [end_of_gap(wall, zone)]
        return shown

    def _remark(self, slot: datetime) -> str:
        zone = time_zone(self.timezone)
        wall = slot.astimezone(zone).replace(tzinfo=None)
        gap = (slot - SECOND).astimezone(zone).replace(tzinfo=None) + SECOND
        if self._parsed.is_fixed and gap < wall:
            missing = next(self._parsed.walls(wall, backwards=True))
            if missing >= gap:
                return (
                    f"the clock goes forward: {missing:%H:%M} does not exist, runs at {wall:%H:%M}"
                )
        return super()._remark(slot)


@dataclass(frozen=True)
class Every(Timing):
    """An interval of whole seconds, from one second to ten years. Raises InvalidSchedule.

    The slots are multiples of the interval since 1970-01-01 00:00 UTC, plus ``offset``. For
    example, hourly slots are on the hour in UTC. Clock changes do not move the slots.
    """

    interval: timedelta
    offset: timedelta = timedelta()
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        time_zone(self.timezone)
        if not _is_whole(self.interval) or not SECOND <= self.interval <= LONGEST_INTERVAL:
            raise InvalidSchedule(
                f"every={describe_value(self.interval)}: must be whole seconds, from one second "
                f"to {LONGEST_INTERVAL.days} days.",
                parameter="every",
            )
        if not _is_whole(self.offset) or not timedelta() <= self.offset < self.interval:
            raise InvalidSchedule(
                f"offset={self.offset!r}: must be a timedelta of whole seconds, from 0 to less "
                f"than the interval, which is {self.interval}.",
                parameter="offset",
            )

    def utc_offset(self, time: datetime) -> timedelta:
        return timedelta()  # The rules of a zone do not move its slots.

    def words(self) -> str:
        text = _spell_duration(self.interval)
        text = f"every {text if ' and ' in text else text.removeprefix('1 ')}"
        return f"{text}, shifted by {_spell_duration(self.offset)}" if self.offset else text

    def _walk(self, time: datetime, *, backwards: bool = False) -> Iterator[datetime]:
        since = time - EPOCH - self.offset
        if backwards:
            slot, step = time - (since % self.interval or self.interval), -self.interval
        else:
            slot, step = time + self.interval - since % self.interval, self.interval
        while True:
            yield slot
            slot += step


def describe_value(value: object) -> str:
    """Return a duration as text for an error message ("1.5 s"), or any other value as its repr."""
    return f"{value.total_seconds():g} s" if isinstance(value, timedelta) else repr(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, timedelta) and not value % SECOND


def _spell_duration(value: timedelta) -> str:
    """Return a duration in words and without rounding, for example "1 hour and 30 minutes"."""
    seconds, parts = value // SECOND, []
    for name, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def jitter(identifier: str, slot: datetime, seconds: float) -> timedelta:
    """Return the delay of a slot, from 0 to ``seconds``. Raises InvalidSchedule.

    The delay is a hash of the schedule's identifier and the slot. So the delay is predictable and
    the same on each host, and schedules with the same times do not all start at once.
    """
    if not isinstance(seconds, (int, float)) or not 0 <= seconds <= LONGEST_DELAY:
        raise InvalidSchedule(
            f"jitter={seconds!r}: must be from 0 to {LONGEST_DELAY:.0f} seconds.",
            parameter="jitter",
        )
    text = f"{identifier}@{in_utc(slot).isoformat()}"
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    bound = timedelta(seconds=seconds) // timedelta.resolution
    return timedelta(microseconds=number * (bound + 1) >> 64)


# Time zones, and the changes of their clocks.


@cache
def zone_names() -> frozenset[str]:
    """Return the names of the time zones that this host knows."""
    return frozenset(available_timezones() - _HOST_ZONES)


def time_zone(name: str) -> ZoneInfo:
    """Return the time zone with this name. Raises InvalidSchedule."""
    if not isinstance(name, str) or name not in zone_names():
        hint = did_you_mean(shorten(str(name)), sorted(zone_names()))
        hint = hint or ("" if zone_names() else " This host has none: install the package tzdata.")
        raise InvalidSchedule(
            f"timezone={shorten(repr(name))}: no time zone has this name.{hint}",
            parameter="timezone",
        )
    return ZoneInfo(name)


def in_utc(time: datetime) -> datetime:
    """Convert a time to UTC. Raises ValueError if the time has no time zone."""
    if time.utcoffset() is None:
        raise ValueError(f"{time!r} has no time zone")
    return time.astimezone(UTC)


def offsets(wall: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """Return the UTC offsets that a wall time can have, before and after a change of the clock.

    Both offsets are equal if the clock shows the wall time once. The first one is larger if the
    clock goes back and shows the wall time twice; it is smaller if the clock goes forward and skips
    the wall time.
    """
    first = wall.replace(tzinfo=zone, fold=0)
    before, after = first.utcoffset(), first.replace(fold=1).utcoffset()
    assert before is not None
    assert after is not None
    return before, after


def shown_times(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the times in UTC at which the clock shows a wall time: none, one, or two in order."""
    before, after = offsets(wall, zone)
    if before < after:
        return []
    return [_to_utc(wall, offset) for offset in ((before,) if before == after else (before, after))]


def end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the time in UTC at which the clock goes forward and skips this wall time."""
    before, after = offsets(wall, zone)
    earliest = _to_utc(wall, after)

    def has_changed(seconds: int) -> bool:
        return (earliest + seconds * SECOND).astimezone(zone).utcoffset() == after

    return earliest + SECOND * bisect_left(range((after - before) // SECOND), True, key=has_changed)


def _to_utc(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)
