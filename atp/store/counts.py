"""Counts of events, by minute and Type: added up in memory, and written as rows of Statistic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from ..models import Statistic
from ..rows.statistic import BUCKETS, COUNTS, HISTOGRAMS, Span, bucket, failed
from ..states import Event, Reason

COLUMNS = {
    Event.START: "started",
    Event.FINISH: "finished",
    Event.RETRY: "retried",
    Event.DEFER: "deferred",
    Event.EXPIRE: "lost",
}
# The kinds of LogRecords that are counted.
COUNTED = frozenset({*COLUMNS, Event.FAIL})
# A handler has ended with these, or with a failure for these reasons: its time is counted.
_RUNS = frozenset({"finished", "retried", "deferred", failed(Reason.ERROR), failed(Reason.FATAL)})
_FAILED = {str(reason): failed(reason) for reason in Reason}
_MINUTE, _MICROSECOND = timedelta(minutes=1), timedelta(microseconds=1)


class Cell:
    """The counts of one Type in one minute."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self.wait, self.run = [0] * BUCKETS, [0] * BUCKETS

    def add(self, other: Statistic | Cell) -> None:
        """Add another cell, or a row."""
        for name in COUNTS:
            more = other.counts.get(name, 0) if isinstance(other, Cell) else getattr(other, name)
            if more:
                self.counts[name] += more
        for name in HISTOGRAMS:
            own = getattr(self, name)
            for place, number in enumerate(getattr(other, name)):
                own[place] += number

    def row(self, span: Span, start: datetime, type: str) -> Statistic:
        """Return a row of these counts, which is not saved."""
        told = {name: getattr(self, name) for name in HISTOGRAMS if any(getattr(self, name))}
        return Statistic(span=span, start=start, type=type, **self.counts, **told)


class Counts:
    """Cells by minute and Type."""

    def __init__(self) -> None:
        self._minutes: dict[datetime, dict[str, Cell]] = {}
        # Most events are of the minute of the last one.
        self._from = self._until = datetime(1, 1, 1, tzinfo=UTC)
        self._cells: dict[str, Cell] = {}

    def __bool__(self) -> bool:
        return bool(self._minutes)

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

        ``reason`` is that of a failure, ``began`` the start of the attempt that has ended
        with it, and ``waited`` for how many seconds the one was due that has started.
        """
        cell = self._cell(time, type)
        column = COLUMNS.get(event) or _FAILED[reason]  # type: ignore[call-overload]
        cell.counts[column] += 1
        if began is not None and column in _RUNS:
            took = (time - began) // _MICROSECOND
            cell.counts["wall_us"] += took
            cell.run[bucket(took)] += 1
        elif waited is not None:
            cell.wait[bucket(int(1e6 * waited))] += 1

    def add_run(self, type: str, began: datetime, time: datetime, waited: float) -> None:
        """Count the start and the finish of an attempt.

        Two calls of :meth:`add` do the same in twice the time. Most attempts are counted
        here, by the thread that gives workers their tasks.
        """
        if not self._from <= began <= time < self._until or type not in self._cells:
            self.add(type, Event.START, began, waited=waited)
            self.add(type, Event.FINISH, time, began=began)
            return
        cell = self._cells[type]
        counts, took = cell.counts, (time - began) // _MICROSECOND
        counts["started"] += 1
        counts["finished"] += 1
        counts["wall_us"] += took
        cell.wait[bucket(int(1e6 * waited))] += 1
        cell.run[bucket(took)] += 1

    def merge(self, other: Counts) -> None:
        """Add all that is counted there."""
        for minute, cells in other._minutes.items():
            for type, cell in cells.items():
                self._cell(minute, type).add(cell)

    def rows(self) -> Iterator[Statistic]:
        """Return rows of all that is counted here, which are not saved."""
        for minute, cells in self._minutes.items():
            for type, cell in cells.items():
                yield cell.row(Span.MINUTE, minute, type)

    def _cell(self, time: datetime, type: str) -> Cell:
        if not self._from <= time < self._until:
            self._from = time.astimezone(UTC).replace(second=0, microsecond=0)
            self._until = self._from + _MINUTE
            self._cells = self._minutes.setdefault(self._from, {})
        cell = self._cells.get(type)
        if cell is None:
            cell = self._cells[type] = Cell()
        return cell
