"""An attempt to read a source, until it has no more records for now."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..exceptions import ATPError, Fatal, IllegalSchedule, QueueFull, UnknownSchedule
from ..sources import Note, Reader, Record
from ..sources.base import BATCH_BYTES
from ..store import get_store
from ..store.values import CursorMove, Settled
from ..verbs.enqueueing import enqueue_prepared
from ..verbs.schedules import pause_schedule
from ..words import wording
from ..words.options import MAX_IDENTIFIER
from .mapping import Mapped, mapped, rejected
from .tailer import Tailer

if TYPE_CHECKING:
    from ..authoring.context import Context

# An attempt reads for at most so long, in seconds; the schedule starts the next one.
LONGEST = 60.0
# The number of records in a row that may be put aside before the attempt fails.
MOST_REJECTED = 100
# The number of records that are mapped one at a time after an attempt has died: the second
# attempt maps half as many, the third a third of them.
CAREFUL = 100
# How long the cursor of a shard is kept that is missing from its source.
MEMORY = timedelta(days=7)


# The lines of this logger are in the daemon's log, as facts.
logger = logging.getLogger("atp.worker")


class CursorMoved(Exception):
    """Another attempt, or an operator, has moved a cursor since this attempt has read it."""


class Reading:
    """One attempt: it reads in batches, and settles each batch in one transaction."""

    def __init__(self, context: Context, tailer: Tailer) -> None:
        self._context, self._tailer = context, tailer
        self._until = time.monotonic() + LONGEST
        self._counts = {"records": 0, "enqueued": 0, "rejected": 0}
        # Those rejected since one was mapped, also by earlier attempts.
        self._in_a_row = 0

    def run(self) -> dict[str, Any]:
        """Read and settle; return how many records, Instances and rejected records there were.

        ``behind`` is the number of records that are left, None if the source does not tell. A Fatal
        pauses the schedule of the tailer: each further attempt would raise it again.
        """
        try:
            return self._run()
        except Fatal as error:
            self._pause(error)
            raise

    def _pause(self, error: Fatal) -> None:
        told = "".join(each if each.isprintable() else " " for each in str(error))
        told = " ".join(told.split())
        get_store().tailers.stop(self._tailer.identifier, told)
        with suppress(UnknownSchedule, IllegalSchedule):
            pause_schedule(
                self._tailer.identifier,
                reason=wording.shorten(told, MAX_IDENTIFIER),
                by=self._context.worker,
            )

    def _run(self) -> dict[str, Any]:
        store, name = get_store().tailers, self._tailer.identifier
        source, notes = self._tailer.source, list[Note]()
        self._in_a_row = store.begin(name, source=str(source))
        with source.open(store.positions(name)) as reader:
            try:
                self._jump(reader)
                self._read(reader)
            except QueueFull as full:
                notes.append(_waiting(f"the source waits: {full}"))
            except CursorMoved:
                notes.append(_waiting("a cursor was moved meanwhile: the next look goes on there"))
            notes += reader.notes()
            behind, missing = reader.behind(), reader.missing()
        self._leave(notes, behind)
        if missing is not None:
            store.miss(name, *missing, for_=MEMORY)
        return {**self._counts, "behind": behind}

    def _next(self, reader: Reader, limit: int) -> Sequence[Record]:
        records = reader.read(limit)
        # A source may have to move many cursors before it comes to the next record.
        while not records and reader.jumps() and self._goes_on():
            self._jump(reader)
            records = reader.read(limit)
        self._jump(reader)
        return records

    def _jump(self, reader: Reader) -> None:
        """Commit the moves that no record makes."""
        moves = reader.jumps()
        if moves:
            with self._context.transaction():
                self._advance(moves, Settled(records=0))
            reader.jumped()
            self._tell_moved(moves)

    def _leave(self, notes: Sequence[Note], behind: int | None) -> None:
        """Write how the source is left. The Instance, and its log, are removed if all is well."""
        is_news = get_store().tailers.look(
            self._tailer.identifier,
            source=str(self._tailer.source),
            behind=behind,
            notes=notes,
            who=self._context.worker,
        )
        for note in notes:
            self._context.log(note.message, logging.WARNING)
            if is_news:
                self._log("source_left", note)

    def _tell_moved(self, moves: Sequence[CursorMove]) -> None:
        """Log what these moves have passed over; the database has counted it."""
        for move in moves:
            for note in move.notes:
                self._context.log(note.message, logging.WARNING)
                self._log("source_passed_over", note, shard=move.shard)

    def _log(self, fact: str, note: Note, **values: Any) -> None:
        name = self._tailer.identifier
        values |= {"tailer": name, "kind": note.kind, "count": note.count}
        told = {"fact": fact, "values": values}
        level = logging.INFO if note.kind == "waiting" else logging.WARNING
        logger.log(level, "%s %s: %s", name, note.kind, note.message, extra=told)

    def _advance(self, moves: Sequence[CursorMove], settled: Settled) -> None:
        """Move cursors, in the caller's transaction. Raises CursorMoved."""
        name, who = self._tailer.identifier, self._context.worker
        if not get_store().tailers.advance(name, moves, settled, who=who):
            raise CursorMoved

    def _read(self, reader: Reader) -> None:
        if self._context.restarts:
            self._read_carefully(reader)
            return
        while self._goes_on():
            records = self._next(reader, self._tailer.batch)
            if not records:
                return
            for found in self._mapped(records):
                self._settle(reader, found)

    def _mapped(self, records: Sequence[Record]) -> Iterator[list[Mapped]]:
        """Map records; yield what is settled together, which has about BATCH_BYTES at most."""
        found: list[Mapped] = []
        size = 0
        for record in records:
            found.append(mapped(self._tailer, record))
            size += found[-1].size
            if size >= BATCH_BYTES:
                yield found
                found, size = [], 0
        if found:
            yield found

    def _read_carefully(self, reader: Reader) -> None:
        """Read some records one at a time: an attempt that was lost may have died of one of them.

        A record to which an earlier attempt came, and which was not settled, is put aside
        unmapped. The next Instance reads in batches again.
        """
        for _ in range(1 + CAREFUL // self._context.restarts):
            records = self._next(reader, 1)
            if not records or not self._goes_on():
                return
            [record] = records
            if self._came_before(record):
                found = rejected(self._tailer, record, "an attempt ended while it was mapped")
            else:
                found = mapped(self._tailer, record)
            self._settle(reader, [found])

    def _came_before(self, record: Record) -> bool:
        """Whether the attempt before has died of this record, and not just ended at it."""
        begun: list[bool] = []
        ended = self._context.attempt - self._context.restarts
        named = f"{ended}\n{record.shard}\n{record.position}"
        key = hashlib.sha256(named.encode()).hexdigest()[:32]
        self._context.step("map", begun.append, True, key=key)
        return not begun

    def _goes_on(self) -> bool:
        self._context.check()
        return time.monotonic() < self._until

    def _settle(self, reader: Reader, found: Sequence[Mapped]) -> None:
        """Settle records in one transaction; put aside a record whose calls are refused."""
        for each in found:
            if each.is_left:
                reader.leave(each.record)
        found = [each for each in found if not each.is_left]
        if not found:
            return
        try:
            self._commit(reader, found)
        except QueueFull:
            raise
        except ATPError as error:
            if len(found) == 1 and found[0].is_rejected:
                raise
            if len(found) == 1:
                told = f"{type(error).__name__}: {error}"
                found = [rejected(self._tailer, found[0].record, told)]
                self._settle(reader, found)
                return
            half = len(found) // 2
            self._settle(reader, found[:half])
            self._settle(reader, found[half:])

    def _row_of_rejected(self, found: Sequence[Mapped]) -> int:
        """Return how many in a row are rejected with these. Raises Fatal beyond MOST_REJECTED."""
        in_a_row = self._in_a_row
        for each in found:
            in_a_row = in_a_row + 1 if each.is_rejected else 0
            if in_a_row > MOST_REJECTED:
                raise Fatal(
                    f"More than {MOST_REJECTED} records in a row cannot be mapped. The others stay "
                    f"in the source, from {each.record} on.",
                    fingerprint="all rejected",
                )
        return in_a_row

    def _commit(self, reader: Reader, found: Sequence[Mapped]) -> None:
        by_record = {id(each.record): each for each in found}
        with self._context.transaction():
            records = reader.take([each.record for each in found])
            taken = [by_record[id(record)] for record in records]
            made = enqueue_prepared([call for each in taken for call in each.calls])
            rejected = sum(each.is_rejected for each in taken)
            enqueued = sum(instance.is_new for instance in made) - rejected
            in_a_row = self._row_of_rejected(taken)
            settled = Settled(
                records=len(taken),
                enqueued=enqueued,
                rejected=rejected,
                rejected_in_a_row=in_a_row if taken else None,
            )
            moves = reader.moves(records)
            self._advance(moves, settled)
        reader.settled(records)
        self._tell_moved(moves)
        self._in_a_row = in_a_row
        for count, value in zip(self._counts, (len(taken), enqueued, rejected), strict=True):
            self._counts[count] += value


def _waiting(message: str) -> Note:
    return Note(kind="waiting", count=None, message=message)
