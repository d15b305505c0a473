"""Cron: the slots of a cron expression in a time zone, by the rules of Debian's cron.

A change of the clock has different effects on an expression with fixed times, as ``30 2 * * *``,
and on one whose minute or hour starts with ``*``:

- The clock goes forward and skips 02:30. A fixed time runs once, at the end of the gap.
  ``*/20 2 * * *`` does not run in that night.
- The clock goes back and shows 02:30 twice. A fixed time runs the first time.
  ``*/20 2 * * *`` runs both times.

The same holds if the change is half an hour (Australia/Lord_Howe), if the offset is not a
whole hour (Pacific/Chatham), and if midnight is skipped (America/Havana).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import gt, lt
from zoneinfo import ZoneInfo

from ..exceptions import InvalidSchedule
from . import zones
from .expression import Expression, parse
from .timing import Timing

# A walk ends where no slot was found for so many years.
YEARS = 50
_START = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Cron(Timing):
    """A cron expression in a time zone. Raises InvalidSchedule."""

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        zones.zone(self.timezone)
        if not self._parsed.is_fixed and next(self._walk(_START), None) is None:
            raise InvalidSchedule(
                f"cron={self.expression!r}: never comes in {self.timezone}: the clock goes "
                "forward then and leaves it out.",
                parameter="cron",
            )

    def utc_offset(self, time: datetime) -> timedelta:
        return time.astimezone(zones.zone(self.timezone)).utcoffset() or timedelta()

    def words(self) -> str:
        return f"{self._parsed.words()}, {self.timezone}"

    @property
    def _parsed(self) -> Expression:
        return parse(self.expression)

    def _walk(self, time: datetime, *, backwards: bool = False) -> Iterator[datetime]:
        nearest, is_beyond = time, lt if backwards else gt
        for slot in self._showings(time, backwards):
            # The guard: in a repeated hour the showings begin too early, and the times of a gap
            # are all at its end.
            if is_beyond(slot, nearest):
                nearest = slot
                yield slot

    def _showings(self, time: datetime, backwards: bool) -> Iterator[datetime]:
        """Yield the slots from about a time on, in order; a few come too early, some repeatedly."""
        zone, is_beyond = zones.zone(self.timezone), lt if backwards else gt
        start = time.astimezone(zone).replace(tzinfo=None, fold=0)
        before, after = zones.offsets(start, zone)
        if before > after:  # In a repeated hour: begin outside it.
            start += before - after if backwards else after - before
        year = start.year
        # In a repeated hour all first showings come, then all second ones, or the other way.
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
        shown = zones.shown(wall, zone)
        if self._parsed.is_fixed:
            return shown[:1] or [zones.end_of_gap(wall, zone)]
        return shown

    def _remark(self, slot: datetime) -> str:
        zone = zones.zone(self.timezone)
        wall = slot.astimezone(zone).replace(tzinfo=None)
        gap = (slot - zones.SECOND).astimezone(zone).replace(tzinfo=None) + zones.SECOND
        if self._parsed.is_fixed and gap < wall:
            missing = next(self._parsed.walls(wall, backwards=True))
            if missing >= gap:
                return (
                    f"the clock goes forward: {missing:%H:%M} does not exist, runs at {wall:%H:%M}"
                )
        return super()._remark(slot)
