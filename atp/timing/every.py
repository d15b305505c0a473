"""Every: slots at equal intervals, counted from the Unix epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ..exceptions import LONGEST_DELAY, InvalidSchedule
from . import zones
from .timing import Timing

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST = timedelta(seconds=LONGEST_DELAY)
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Every(Timing):
    """An interval of whole seconds, from one second to ten years. Raises InvalidSchedule.

    Slots are at multiples of the interval since 1970-01-01 00:00 UTC, plus ``offset``: hourly is
    on the hour in UTC. Changes of a clock do not move them.
    """

    interval: timedelta
    offset: timedelta = timedelta()
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        zones.zone(self.timezone)
        if not _is_whole(self.interval) or not zones.SECOND <= self.interval <= LONGEST:
            raise InvalidSchedule(
                f"every={shown(self.interval)}: must be whole seconds, from one second "
                f"to {LONGEST.days} days.",
                parameter="every",
            )
        if not _is_whole(self.offset) or not timedelta() <= self.offset < self.interval:
            raise InvalidSchedule(
                f"offset={self.offset!r}: must be a timedelta of whole seconds, from 0 to less "
                f"than the interval, which is {self.interval}.",
                parameter="offset",
            )

    def utc_offset(self, time: datetime) -> timedelta:
        return timedelta()  # no rules of a zone move its slots

    def words(self) -> str:
        text = _spelled(self.interval)
        text = f"every {text if ' and ' in text else text.removeprefix('1 ')}"
        return f"{text}, shifted by {_spelled(self.offset)}" if self.offset else text

    def _walk(self, time: datetime, *, backwards: bool = False) -> Iterator[datetime]:
        since = time - EPOCH - self.offset
        if backwards:
            slot, step = time - (since % self.interval or self.interval), -self.interval
        else:
            slot, step = time + self.interval - since % self.interval, self.interval
        while True:
            yield slot
            slot += step


def shown(value: object) -> str:
    """Return a duration as error messages show it: "1.5 s"; any other value as its repr."""
    return f"{value.total_seconds():g} s" if isinstance(value, timedelta) else repr(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, timedelta) and not value % zones.SECOND


def _spelled(value: timedelta) -> str:
    """Return a duration in words, without rounding: "1 hour and 30 minutes"."""
    seconds, parts = value // zones.SECOND, []
    for name, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
