"""Counts of events, by minute and Type: added up in memory, and written as rows of Statistic.

With them goes what the workers of a daemon did, which is written as rows of Usage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from ..models import (
    ALL_TYPES,
    BUCKETS,
    COUNTS,
    HISTOGRAMS,
    Span,
    Statistic,
    Usage,
    bucket_of,
    failure_column,
)
from ..states import TRANSITIONS, Event, Reason

COLUMNS = {row.event: row.statistic for row in TRANSITIONS if row.statistic}
# The kinds of LogRecords that Statistic counts.
COUNTED = frozenset({*COLUMNS, Event.FAIL})
# The events after which a handler has ended: only for these its running time is counted.
_RUNS = frozenset(
    {
        *(row.statistic for row in TRANSITIONS if row.statistic and row.is_outcome),
        *(failure_column(Reason.ERROR), failure_column(Reason.FATAL)),
    }
)
_FAILED = {str(reason): failure_column(reason) for reason in Reason}
_MINUTE, _MICROSECOND = timedelta(minutes=1), timedelta(microseconds=1)


class Cell:
    """The counts of one Type in one minute."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self.wait, self.run = [0] * BUCKETS, [0] * BUCKETS

    def add(self, other: Statistic | Cell) -> None:
        """Add the counts of another cell, or of a row of Statistic."""
        for name in COUNTS:
            more = other.counts.get(name, 0) if isinstance(other, Cell) else getattr(other, name)
            if more:
                self.counts[name] += more
        for name in HISTOGRAMS:
            own = getattr(self, name)
            for place, number in enumerate(getattr(other, name)):
                own[place] += number

    def add_runs(self, number: int, wall_us: int) -> None:
        """Count so many finished attempts that took so many microseconds in all."""
        for name, more in (("started", number), ("finished", number), ("wall_us", wall_us)):
            self.counts[name] += more

    def row(self, span: Span, start: datetime, type: str) -> Statistic:
        """Return an unsaved row of Statistic with these counts."""
        told = {name: getattr(self, name) for name in HISTOGRAMS if any(getattr(self, name))}
        return Statistic(span=span, start=start, type=type, **self.counts, **told)


@dataclass(frozen=True, kw_only=True)
class UsagePeriod:
    """What a daemon's workers did in a part of the minute ``start``, in the units of Usage."""

    start: datetime
    name: str
    capacity_us: int
    busy_us: int
    ended: int
    memory: int

    def row(self, daemon: UUID) -> Usage:
        """Return an unsaved row of Usage with these numbers."""
        return Usage(
            span=Span.MINUTE,
            start=self.start,
            daemon=daemon,
            name=self.name,
            capacity_us=self.capacity_us,
            busy_us=self.busy_us,
            ended=self.ended,
            memory=self.memory,
        )


class Counts:
    """The cells of all minutes and Types; and in ``usage`` the periods of the daemon's workers."""

    def __init__(self) -> None:
        self.usage: list[UsagePeriod] = []
        self._minutes: dict[datetime, dict[str, Cell]] = {}
        # The minute of the last event, and its cells: most events belong to the same minute.
        self._from = self._until = datetime(1, 1, 1, tzinfo=UTC)
        self._cells: dict[str, Cell] = {}

    def __bool__(self) -> bool:
        return bool(self._minutes or self.usage)

    def add(
        self,
        type: str,
        event: str,
        time: datetime,
        *,
        reason: str = "",
        began: datetime | None = None,
        waited: float | None = None,
    ) -> None:
        """Count an event of :data:`COUNTED`.

        ``reason`` is the reason of a failure. ``began`` is the start of the attempt that this event
        ends. ``waited`` is the number of seconds for which a started Task had been due.
        """
        cell = self._cell(time, type)
        column = COLUMNS.get(event) or _FAILED[reason]  # type: ignore[call-overload]
        cell.counts[column] += 1
        if began is not None and column in _RUNS:
            took = (time - began) // _MICROSECOND
            cell.counts["wall_us"] += took
            cell.run[bucket_of(took)] += 1
        elif waited is not None:
            cell.wait[bucket_of(round(1e6 * waited))] += 1

    def add_runs(self, runs: Iterable[tuple[str, datetime, datetime, float]]) -> None:
        """Count the starts and the finishes of attempts.

        Each run is the Type, the start, the end, and the number of seconds for which the Task had
        been due at its start. Two calls of :meth:`add` for each take several times as long. The
        thread that hands out tasks counts most attempts here.
        """
        last, number, wall = Cell(), 0, 0
        for type, began, time, waited in runs:
            cell = self._cells.get(type)
            if cell is None or not self._from <= began <= time < self._until:
                self.add(type, Event.START, began, waited=waited)
                self.add(type, Event.FINISH, time, began=began)
                continue
            if cell is not last:
                last.add_runs(number, wall)
                last, number, wall = cell, 0, 0
            ran = time - began
            took = 1_000_000 * ran.seconds + ran.microseconds  # both times are of one minute
            number += 1
            wall += took
            cell.wait[bucket_of(round(1e6 * waited))] += 1
            cell.run[bucket_of(took)] += 1
        last.add_runs(number, wall)

    def merge(self, other: Counts) -> None:
        """Add all counts and periods of another object."""
        self.usage += other.usage
        for minute, cells in other._minutes.items():
            for type, cell in cells.items():
                self._cell(minute, type).add(cell)

    def rows(self) -> Iterator[Statistic]:
        """Yield unsaved rows of Statistic with all these counts.

        Each minute has one row for each Type, and one row of :data:`ALL_TYPES` that adds them up.
        """
        for minute, cells in self._minutes.items():
            whole = Cell()
            for type, cell in cells.items():
                whole.add(cell)
                yield cell.row(Span.MINUTE, minute, type)
            yield whole.row(Span.MINUTE, minute, ALL_TYPES)

    def _cell(self, time: datetime, type: str) -> Cell:
        if not self._from <= time < self._until:
            self._from = time.astimezone(UTC).replace(second=0, microsecond=0)
            self._until = self._from + _MINUTE
            self._cells = self._minutes.setdefault(self._from, {})
        cell = self._cells.get(type)
        if cell is None:
            cell = self._cells[type] = Cell()
        return cell
