"""Time zones, and the changes of their clocks."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from ..exceptions import InvalidSchedule
from ..words.hints import did_you_mean
from ..words.wording import shorten

SECOND = timedelta(seconds=1)
# These names stand for different zones on different hosts.
_OF_HOST = {"localtime", "Factory"}


@cache
def names() -> frozenset[str]:
    """Return the names of the time zones that this host knows."""
    return frozenset(available_timezones() - _OF_HOST)


def zone(name: str) -> ZoneInfo:
    """Return the time zone with this name. Raises InvalidSchedule."""
    if not isinstance(name, str) or name not in names():
        hint = did_you_mean(shorten(str(name)), sorted(names()))
        hint = hint or ("" if names() else " This host has none: install the package tzdata.")
        raise InvalidSchedule(
            f"timezone={shorten(repr(name))}: no time zone has this name.{hint}",
            parameter="timezone",
        )
    return ZoneInfo(name)


def in_utc(time: datetime) -> datetime:
    """Return an aware time in UTC. Raises ValueError for a naive time."""
    if time.utcoffset() is None:
        raise ValueError(f"{time!r} has no time zone")
    return time.astimezone(UTC)


def offsets(wall: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """Return the offsets from UTC of a wall time, by the clock before and after a change.

    They are equal if the clock shows the time once. The first is larger if the clock goes back and
    shows the time twice, and smaller if the clock goes forward and skips it.
    """
    first = wall.replace(tzinfo=zone, fold=0)
    before, after = first.utcoffset(), first.replace(fold=1).utcoffset()
    assert before is not None
    assert after is not None
    return before, after


def shown(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the times in UTC at which the clock shows a wall time: one, two in order, or none."""
    before, after = offsets(wall, zone)
    if before < after:
        return []
    return [_utc(wall, offset) for offset in ((before,) if before == after else (before, after))]


def end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the time in UTC at which the clock goes forward and skips this wall time."""
    before, after = offsets(wall, zone)
    earliest = _utc(wall, after)

    def has_changed(seconds: int) -> bool:
        return (earliest + seconds * SECOND).astimezone(zone).utcoffset() == after

    return earliest + SECOND * bisect_left(range((after - before) // SECOND), True, key=has_changed)


def _utc(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)
