"""The decorator `@tailer`, and what one attempt of a tailer does.

An attempt reads records, maps them to calls, enqueues the calls together with the new position, and
rejects records that cannot be mapped.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, TypeAlias

from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError

from .. import text
from ..authoring import logs
from ..authoring.logs import exception_message
from ..authoring.task_type import TaskType, task_type
from ..conf import settings
from ..exceptions import (
    ATPError,
    Defer,
    Fatal,
    IllegalSchedule,
    Interrupted,
    InvalidType,
    QueueFull,
    Retry,
    UnknownSchedule,
)
from ..operations.enqueueing import (
    Call,
    PreparedCall,
    enqueue_calls,
    enqueue_prepared,
    prepare_call,
)
from ..options import MAX_IDENTIFIER
from ..schedules.declaring import check_schedule, timing
from ..schedules.declaring import declared_schedules as schedules
from ..schedules.operations import pause_schedule
from ..sources import Note, Reader, Record, Source
from ..sources import base as sources
from ..sources.base import BATCH_BYTES
from ..store import get_store
from ..store.values import CursorMove, Settled

if TYPE_CHECKING:
    from ..authoring.context import Context

# What a tailer's function may return.
Mapped: TypeAlias = Call | Iterable[Call] | None
Function: TypeAlias = Callable[[Any], Mapped]

# Declaring.
MOST_IN_BATCH = 10_000
# The options that a tailer passes on to both of its Types.
PASSED_ON = ("collection", "max_memory", "owner", "priority", "runbook")
# A tailer runs before the Types that it enqueues.
PRIORITY = 50
REJECTED = ".rejected"
# A record that kills its worker costs the reading attempt two restarts.
MOST_RESTARTS = 50
MOST_RETRIES = 20
MAX_BACKOFF = timedelta(minutes=1)

# Mapping.
# These exceptions say nothing about the record: they end the attempt, and the record stays.
ENDS_ATTEMPT = (Interrupted, Retry, Defer, OperationalError, InterfaceError)
MAX_ERROR = 500
# How much of a record's data is kept if the record is too large for inputs, in bytes.
KEPT = 1000
# The approximate size of a prepared call besides its inputs, in bytes.
CALL = 1000

# Reading.
# The longest time that an attempt reads, in seconds; the schedule starts the next one.
LONGEST = 60.0
# The number of records in a row that may be rejected before the attempt fails.
MOST_REJECTED = 100
# The number of records that are mapped one at a time after an attempt has died: the second
# attempt maps half as many, the third a third as many.
CAREFUL = 100
# How long the cursor of a shard is kept after the shard has gone from its source.
MEMORY = timedelta(days=7)

# The lines of this logger are in the daemon log, as facts.
logger = logging.getLogger("atp.worker")


# Declared tailers.


@dataclass(frozen=True, kw_only=True, eq=False)
class Tailer:
    """A declared tailer: its source, and the function that maps a record to calls.

    An attempt of ``type`` reads the source. An attempt of ``rejected`` maps one rejected record
    again. A test can call the tailer with a record to run its function.
    """

    identifier: str
    source: Source
    function: Function
    batch: int
    type: TaskType[[], dict[str, Any]]
    rejected: TaskType[..., int]

    do_not_call_in_templates = True

    def __call__(self, record: Record) -> list[Call]:
        """Return the calls to which the function maps a record. Raises TypeError."""
        returned = self.function(record)
        if returned is None:
            return []
        if isinstance(returned, Call):
            return [returned]
        calls = list(returned) if isinstance(returned, Iterable) else [returned]
        for call in calls:
            if not isinstance(call, Call):
                raise TypeError(
                    f"Tailer {self.identifier!r} returned {call!r}. It must return calls, such "
                    "as hillshade.call(path=…), or None."
                )
        return calls

    def __str__(self) -> str:
        return self.identifier


class Tailers:
    """The tailers that this process declares, by identifier."""

    def __init__(self) -> None:
        self._tailers: dict[str, Tailer] = {}

    def __iter__(self) -> Iterator[Tailer]:
        return iter(list(self._tailers.values()))

    def add(self, tailer: Tailer) -> None:
        """Add a tailer, or add the same tailer once more.

        The identifier cannot belong to another tailer, because declaring its Type would have
        failed.
        """
        self._tailers[tailer.identifier] = tailer
        sources.declared[tailer.identifier] = tailer.source

    def remove(self, identifier: str) -> None:
        """Remove the tailer with this identifier, if it exists."""
        self._tailers.pop(identifier, None)
        sources.declared.pop(identifier, None)


declared = Tailers()


# Declaring tailers: ``@tailer("scenes", Directory("/srv/scenes"))``.


def tailer(
    identifier: str,
    source: Source,
    *,
    every: timedelta | float | None = 5,
    batch: int = 500,
    timeout: timedelta | float = 300,
    **options: Any,
) -> Callable[[Function], Tailer]:
    """Declare a tailer, which reads a source. The decorated function maps its records to calls.

    The function gets a :class:`~atp.sources.Record` and returns a call, such as
    ``hillshade.call(path=…)``, a list of calls, or None if there is nothing to do. The calls for up
    to ``batch`` records are enqueued in one transaction, together with the new position in the
    source. If the function raises, the record is rejected: it becomes an Instance of the Type
    ``<identifier>.rejected``.

    A schedule with the same identifier starts an attempt every ``every`` seconds (or timedelta). If
    ``every`` is None, there is no schedule, and ``.type.enqueue()`` starts an attempt. ``timeout``
    limits one attempt, in seconds or as a timedelta. ``collection``, ``priority``, ``max_memory``,
    ``owner`` and ``runbook`` apply to both Types of the tailer.

    Raises InvalidType, InvalidOption or InvalidSchedule.
    """
    label = f"tailer({identifier!r})"
    if not isinstance(source, Source):
        raise InvalidType(f"{label}: {source!r} is not a source, such as Directory(path).")
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MOST_IN_BATCH:
        raise InvalidType(f"{label}: batch={batch!r} must be from 1 to {MOST_IN_BATCH}.")
    for name in options:
        if name not in PASSED_ON:
            raise InvalidType(f"{label} has no parameter {name!r}.")

    if every is not None:
        timing(every=every)  # raises InvalidSchedule

    def declare(function: Function) -> Tailer:
        declared_tailer: Tailer | None = None

        @wraps(function)
        def read(context: Any) -> dict[str, Any]:
            return Reading(context, declared_tailer).run()  # type: ignore[arg-type]

        @wraps(function)
        def map_rejected(context: Any, *, record: dict[str, Any], error: str) -> int:
            return map_rejected_again(declared_tailer, record)  # type: ignore[arg-type]

        read.is_tailer = True  # type: ignore[attr-defined]
        _set_signature(read)
        _set_signature(map_rejected, "record", "error")
        shared: dict[str, Any] = {"timeout": timeout} | options
        for_reading: dict[str, Any] = {"priority": PRIORITY} | shared
        reading = task_type(
            identifier,
            retention=0,
            max_restarts=MOST_RESTARTS,
            max_retries=MOST_RETRIES,
            backoff=1,
            backoff_max=MAX_BACKOFF,
            **for_reading,
        )(read)
        alias = settings.DATABASE
        rejected = task_type(
            identifier + REJECTED,
            transactional=alias if alias != DEFAULT_DB_ALIAS else True,
            max_restarts=0,
            max_retries=0,
            **shared,
        )(map_rejected)
        if every is not None:
            spec = check_schedule(identifier, reading, every=every, overlap="skip")
            schedules.add(spec, reading, getattr(function, "__globals__", {}).get("__spec__"))
        declared_tailer = Tailer(
            identifier=identifier,
            source=source,
            function=function,
            batch=batch,
            type=reading,
            rejected=rejected,
        )
        declared.add(declared_tailer)
        return declared_tailer

    return declare


def _set_signature(handler: Callable[..., Any], *names: str) -> None:
    """Set the signature of a handler, in place of the one that ``wraps()`` copied."""
    first = Parameter("context", Parameter.POSITIONAL_ONLY)
    others = [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
    handler.__signature__ = Signature([first, *others])  # type: ignore[attr-defined]
    handler.__annotations__ = {}


# Mapping records to calls, and rejecting those that cannot be mapped.


@dataclass(frozen=True)
class MappedRecord:
    """A record with its prepared calls.

    ``is_rejected`` is true if the call enqueues the record as rejected. ``is_left`` is true if the
    record can neither be mapped nor rejected, so that it stays in the source.
    """

    record: Record
    calls: tuple[PreparedCall, ...] = ()
    is_rejected: bool = False
    is_left: bool = False

    @property
    def size(self) -> int:
        """The approximate size of the calls in memory, in bytes."""
        return sum(CALL + len(each.submission.inputs.data) for each in self.calls)


def map_record(tailer: Tailer, record: Record) -> MappedRecord:
    """Map a record; reject it if the tailer's function raises, or returns invalid calls."""
    try:
        return MappedRecord(record, tuple(prepare_call(call) for call in tailer(record)))
    except ENDS_ATTEMPT:
        raise
    except Exception as error:
        return reject_record(
            tailer, record, f"{logs.exception_name(error)}: {exception_message(error)}"
        )


def reject_record(tailer: Tailer, record: Record, error: str) -> MappedRecord:
    """Prepare the call that enqueues a rejected record as an Instance of its own Type.

    If the record is too large for inputs, the call has only the record's position and beginning.
    But if the source removes its records, such a record stays in the source.
    """
    error = error if len(error) <= MAX_ERROR else error[: MAX_ERROR - 1] + "…"
    try:
        call = prepare_call(tailer.rejected.call(record=tailer.source.pack(record), error=error))
    except ENDS_ATTEMPT:
        raise
    except Exception:  # the project's own values and sources may raise anything here
        if tailer.source.removes:
            return MappedRecord(record, is_left=True)
        cut = {"shard": record.shard, "position": record.position, "data": record.data[:KEPT]}
        call = prepare_call(tailer.rejected.call(record={**cut, "is_cut": True}, error=error))
    return MappedRecord(record, (call,), is_rejected=True)


def map_rejected_again(tailer: Tailer, packed: Mapping[str, Any]) -> int:
    """Map a rejected record again and enqueue its calls; return their number. Raises Fatal."""
    if packed.get("is_cut"):
        raise Fatal(
            f"The record in shard {packed['shard']!r} at position {packed['position']!r} cannot be "
            "stored as inputs, so only its beginning was stored. The source has the whole record.",
            fingerprint="cut",
        )
    return len(enqueue_calls(tailer(tailer.source.unpack(packed))))


# One attempt to read a source, until it has no more records for now.


class CursorMoved(Exception):
    """Another attempt, or an operator, has moved a cursor since this attempt read it."""


class Reading:
    """One attempt of a tailer: it reads in batches, and commits each batch in one transaction."""

    def __init__(self, context: Context, tailer: Tailer) -> None:
        self._context, self._tailer = context, tailer
        self._until = time.monotonic() + LONGEST
        self._counts = {"records": 0, "enqueued": 0, "rejected": 0}
        # The number of records rejected since one was last mapped, also by earlier attempts.
        self._in_a_row = 0

    def run(self) -> dict[str, Any]:
        """Read the source; return the counts "records", "enqueued", "rejected" and "behind".

        ``behind`` is the number of records still to be read, None if the source cannot count them.
        A Fatal pauses the tailer's schedule, because each further attempt would raise it again.
        """
        try:
            return self._run()
        except Fatal as error:
            self._pause_schedule(error)
            raise

    def _pause_schedule(self, error: Fatal) -> None:
        reason = "".join(each if each.isprintable() else " " for each in str(error))
        reason = " ".join(reason.split())
        get_store().tailers.stop(self._tailer.identifier, reason)
        with suppress(UnknownSchedule, IllegalSchedule):
            pause_schedule(
                self._tailer.identifier,
                reason=text.shorten(reason, MAX_IDENTIFIER),
                by=self._context.worker,
            )

    def _run(self) -> dict[str, Any]:
        store, name = get_store().tailers, self._tailer.identifier
        source, notes = self._tailer.source, list[Note]()
        self._in_a_row = store.begin(name, source=str(source))
        with source.open(store.positions(name)) as reader:
            try:
                self._commit_jumps(reader)
                self._read(reader)
            except QueueFull as full:
                notes.append(_waiting_note(f"the source waits: {full}"))
            except CursorMoved:
                why = "a cursor was moved during this attempt; the next attempt goes on there"
                notes.append(_waiting_note(why))
            notes += reader.notes()
            behind, missing = reader.behind(), reader.missing()
        self._record_notes(notes, behind)
        if missing is not None:
            store.miss(name, *missing, for_=MEMORY)
        return {**self._counts, "behind": behind}

    def _read_next(self, reader: Reader, limit: int) -> Sequence[Record]:
        records = reader.read(limit)
        # A source may have to move many cursors before it comes to the next record.
        while not records and reader.jumps() and self._has_time():
            self._commit_jumps(reader)
            records = reader.read(limit)
        self._commit_jumps(reader)
        return records

    def _commit_jumps(self, reader: Reader) -> None:
        """Commit the moves of cursors that belong to no record, such as a move over a gap."""
        moves = reader.jumps()
        if moves:
            with self._context.transaction():
                self._advance(moves, Settled(records=0))
            reader.jumped()
            self._log_skipped(moves)

    def _record_notes(self, notes: Sequence[Note], behind: int | None) -> None:
        """Write the state of the source to the tailer's row, and log what is new.

        The news also goes to the daemon log, because the FINISHED Instance of this attempt is
        removed with its own log.
        """
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
                self._log_fact("source_left", note)

    def _log_skipped(self, moves: Sequence[CursorMove]) -> None:
        """Log the records that these moves skipped. The store has counted them with the moves."""
        for move in moves:
            for note in move.notes:
                self._context.log(note.message, logging.WARNING)
                self._log_fact("source_passed_over", note, shard=move.shard)

    def _log_fact(self, fact: str, note: Note, **values: Any) -> None:
        name = self._tailer.identifier
        values |= {"tailer": name, "kind": note.kind, "count": note.count}
        extra = {"fact": fact, "values": values}
        level = logging.INFO if note.kind == "waiting" else logging.WARNING
        logger.log(level, "%s %s: %s", name, note.kind, note.message, extra=extra)

    def _advance(self, moves: Sequence[CursorMove], settled: Settled) -> None:
        """Move cursors and add to the counts, in the caller's transaction. Raises CursorMoved."""
        name, who = self._tailer.identifier, self._context.worker
        if not get_store().tailers.advance(name, moves, settled, who=who):
            raise CursorMoved

    def _read(self, reader: Reader) -> None:
        if self._context.restarts:
            self._read_carefully(reader)
            return
        while self._has_time():
            records = self._read_next(reader, self._tailer.batch)
            if not records:
                return
            for batch in self._map_batches(records):
                self._commit_or_reject(reader, batch)

    def _map_batches(self, records: Sequence[Record]) -> Iterator[list[MappedRecord]]:
        """Map records; yield them in lists to commit together, of about BATCH_BYTES at most."""
        batch: list[MappedRecord] = []
        size = 0
        for record in records:
            batch.append(map_record(self._tailer, record))
            size += batch[-1].size
            if size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _read_carefully(self, reader: Reader) -> None:
        """Read some records one at a time, because one of them may have killed the last attempt.

        If an earlier attempt began to map a record, but did not commit it, the record is rejected
        without being mapped again. The next Instance reads in batches again.
        """
        for _ in range(1 + CAREFUL // self._context.restarts):
            records = self._read_next(reader, 1)
            if not records or not self._has_time():
                return
            [record] = records
            if self._killed_previous_attempt(record):
                mapped = reject_record(
                    self._tailer, record, "an attempt was lost while it mapped this record"
                )
            else:
                mapped = map_record(self._tailer, record)
            self._commit_or_reject(reader, [mapped])

    def _killed_previous_attempt(self, record: Record) -> bool:
        """Return True if a lost attempt had begun to map this record.

        A checkpoint marks the beginning. Its key counts the attempts that were not lost, so that
        the marks from before a retry do not count after it.
        """
        begun: list[bool] = []
        ended = self._context.attempt - self._context.restarts
        name = f"{ended}\n{record.shard}\n{record.position}"
        key = hashlib.sha256(name.encode()).hexdigest()[:32]
        self._context.step("map", begun.append, True, key=key)
        return not begun

    def _has_time(self) -> bool:
        self._context.check()
        return time.monotonic() < self._until

    def _commit_or_reject(self, reader: Reader, batch: Sequence[MappedRecord]) -> None:
        """Commit records in one transaction; if the queue refuses a call, halve the batch.

        If the queue refuses the calls of a single record, that record is rejected.
        """
        for each in batch:
            if each.is_left:
                reader.leave(each.record)
        batch = [each for each in batch if not each.is_left]
        if not batch:
            return
        try:
            self._commit(reader, batch)
        except QueueFull:
            raise
        except ATPError as error:
            if len(batch) == 1 and batch[0].is_rejected:
                raise
            if len(batch) == 1:
                why = f"{type(error).__name__}: {error}"
                rejected = reject_record(self._tailer, batch[0].record, why)
                self._commit_or_reject(reader, [rejected])
                return
            half = len(batch) // 2
            self._commit_or_reject(reader, batch[:half])
            self._commit_or_reject(reader, batch[half:])

    def _count_rejected_in_a_row(self, batch: Sequence[MappedRecord]) -> int:
        """Return the number of records rejected in a row, up to the end of a batch.

        Raises Fatal if more than MOST_REJECTED records in a row were rejected.
        """
        in_a_row = self._in_a_row
        for each in batch:
            in_a_row = in_a_row + 1 if each.is_rejected else 0
            if in_a_row > MOST_REJECTED:
                raise Fatal(
                    f"More than {MOST_REJECTED} records in a row cannot be mapped. The records "
                    f"from {each.record} on stay in the source.",
                    fingerprint="all rejected",
                )
        return in_a_row

    def _commit(self, reader: Reader, batch: Sequence[MappedRecord]) -> None:
        """Enqueue the calls for a batch and commit its position, in one transaction."""
        by_record = {id(each.record): each for each in batch}
        with self._context.transaction():
            records = reader.take([each.record for each in batch])
            taken = [by_record[id(record)] for record in records]
            instances = enqueue_prepared([call for each in taken for call in each.calls])
            rejected = sum(each.is_rejected for each in taken)
            enqueued = sum(instance.is_new for instance in instances) - rejected
            in_a_row = self._count_rejected_in_a_row(taken)
            settled = Settled(
                records=len(taken),
                enqueued=enqueued,
                rejected=rejected,
                rejected_in_a_row=in_a_row if taken else None,
            )
            moves = reader.moves(records)
            self._advance(moves, settled)
        reader.settled(records)
        self._log_skipped(moves)
        self._in_a_row = in_a_row
        for count, value in zip(self._counts, (len(taken), enqueued, rejected), strict=True):
            self._counts[count] += value


def _waiting_note(message: str) -> Note:
    return Note(kind="waiting", count=None, message=message)
