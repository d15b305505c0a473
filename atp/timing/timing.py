"""Timing: the slots of a schedule, from a cron expression or an interval.

A slot is a time in UTC, to the second, at which a schedule is to run. The slots do not depend on
the direction of the walk or on the process that computes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile

from ..exceptions import InvalidSchedule
from . import zones


@dataclass(frozen=True)
class Run:
    """A future run: its slot in UTC, the same time in its zone, and a remark on its clock."""

    slot: datetime
    local: datetime
    remark: str


class Timing(ABC):
    """The slots of a schedule. ``timezone`` is the zone in which they are shown to people."""

    timezone: str

    def after(self, time: datetime) -> datetime:
        """Return the first slot that is later than an aware time.

        Raises InvalidSchedule if there is none in the next 50 years.
        """
        return self._first(time, "after", backwards=False)

    def before(self, time: datetime) -> datetime:
        """Return the last slot earlier than an aware time. Raises as :meth:`after` does."""
        return self._first(time, "before", backwards=True)

    def slots(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Return the first ``most`` slots later than ``after``, up to ``until``, oldest first."""
        until = zones.in_utc(until)
        found = takewhile(lambda slot: slot <= until, self._walk(zones.in_utc(after)))
        return list(islice(found, most))

    def newest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Return the last ``most`` slots later than ``after``, up to ``until``, newest first."""
        after = zones.in_utc(after)
        found = self._walk(zones.in_utc(until) + timedelta.resolution, backwards=True)
        return list(islice(takewhile(lambda slot: slot > after, found), most))

    def upcoming(self, count: int, after: datetime) -> list[Run]:
        """Return the next ``count`` runs after a time."""
        zone = zones.zone(self.timezone)
        slots = islice(self._walk(zones.in_utc(after)), count)
        return [Run(slot, slot.astimezone(zone), self._remark(slot)) for slot in slots]

    @abstractmethod
    def utc_offset(self, time: datetime) -> timedelta:
        """Return the offset from UTC at this time, by the rules that move the slots."""

    @abstractmethod
    def words(self) -> str:
        """Return the timing in words: "every 15 minutes"."""

    @abstractmethod
    def _walk(self, time: datetime, *, backwards: bool = False) -> Iterator[datetime]:
        """Yield the slots after a time in UTC, or backwards those before it, the nearest first."""

    def _first(self, time: datetime, where: str, *, backwards: bool) -> datetime:
        for slot in self._walk(zones.in_utc(time), backwards=backwards):
            return slot
        raise InvalidSchedule(f"{self.words()}: never {where} {time:%Y-%m-%d}.")

    def _remark(self, slot: datetime) -> str:
        """Return a remark if the zone's clock is changed around this slot, otherwise ""."""
        zone = zones.zone(self.timezone)
        local = slot.astimezone(zone)
        before, after = zones.offsets(local.replace(tzinfo=None), zone)
        if before <= after:
            return ""
        which = "second" if local.fold else "first"
        return f"the clock goes back: {local:%H:%M} comes twice, this is the {which} time"
