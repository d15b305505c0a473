"""`@tailer`, and one attempt: read, map records to calls, commit the position, reject what cannot
be mapped.
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
from ..authoring.logs import words
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
from ..operations.enqueueing import Call, Prepared, enqueue_calls, enqueue_prepared, prepare
from ..options import MAX_IDENTIFIER
from ..schedules.declaring import declared as schedules
from ..schedules.declaring import spec_of, timing
from ..schedules.operations import pause_schedule
from ..sources import Note, Reader, Record, Source
from ..sources import base as sources
from ..sources.base import BATCH_BYTES
from ..store import get_store
from ..store.values.steps import CursorMove, Settled

if TYPE_CHECKING:
    from ..authoring.context import Context


# Tailer: a declared source with the function that maps its records, and the list of them.

Mapped: TypeAlias = Call | Iterable[Call] | None
Function: TypeAlias = Callable[[Any], Mapped]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tailer:
    """A declared tailer: its source, and the function that maps a record to calls.

    An attempt of ``type`` reads the source. An attempt of ``rejected`` maps one record that was
    put aside. Calling a tailer calls its function, for tests.
    """

    identifier: str
    source: Source
    function: Function
    batch: int
    type: TaskType[[], dict[str, Any]]
    rejected: TaskType[..., int]

    do_not_call_in_templates = True

    def __call__(self, record: Record) -> list[Call]:
        """Return the calls that the function makes of a record. Raises TypeError."""
        found = self.function(record)
        if found is None:
            return []
        if isinstance(found, Call):
            return [found]
        calls = list(found) if isinstance(found, Iterable) else [found]
        for call in calls:
            if not isinstance(call, Call):
                raise TypeError(
                    f"Tailer {self.identifier!r} returned {call!r}: it must return calls, as "
                    "hillshade.call(path=…), or None."
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
        """Add a tailer, or the same one again. Its Type has refused another of its name."""
        self._tailers[tailer.identifier] = tailer
        sources.declared[tailer.identifier] = tailer.source

    def remove(self, identifier: str) -> None:
        """Remove a tailer; no error if there is none."""
        self._tailers.pop(identifier, None)
        sources.declared.pop(identifier, None)


declared = Tailers()


# Declaring tailers: ``@tailer("scenes", Directory("/srv/scenes"))``.

MOST_IN_BATCH = 10_000
# The options that a tailer passes on to its two Types.
PASSED_ON = ("collection", "max_memory", "owner", "priority", "runbook")
# A tailer reads ahead of what it enqueues.
PRIORITY = 50
REJECTED = ".rejected"
# A record that kills its worker costs the reading attempt two restarts.
MOST_RESTARTS = 50
MOST_RETRIES = 20
LONGEST_BACKOFF = timedelta(minutes=1)


def tailer(
    identifier: str,
    source: Source,
    *,
    every: timedelta | float | None = 5,
    batch: int = 500,
    timeout: timedelta | float = 300,
    **options: Any,
) -> Callable[[Function], Tailer]:
    """Declare a tailer: it reads a source, and the decorated function maps records to calls.

    The function gets a :class:`~atp.sources.Record` and returns a call, as
    ``hillshade.call(path=…)``, a list of calls, or None if there is nothing to do. The calls of
    up to ``batch`` records are enqueued in one transaction, together with the new position in the
    source. A record for which the function raises is put aside, as an Instance of the Type
    ``<identifier>.rejected``.

    A schedule of the same identifier starts to read ``every`` so many seconds; with None there is
    no schedule, and ``.type.enqueue()`` reads. ``timeout`` limits one attempt to read, in seconds
    or as a timedelta. ``collection``, ``priority``, ``max_memory``, ``owner`` and ``runbook`` are
    those of its Types.

    Raises InvalidType, InvalidOption or InvalidSchedule.
    """
    told = f"tailer({identifier!r})"
    if not isinstance(source, Source):
        raise InvalidType(f"{told}: {source!r} is no source, as Directory(path).")
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MOST_IN_BATCH:
        raise InvalidType(f"{told}: batch={batch!r} must be from 1 to {MOST_IN_BATCH}.")
    for name in options:
        if name not in PASSED_ON:
            raise InvalidType(f"{told} has no parameter {name!r}.")

    if every is not None:
        timing(every=every)  # raises InvalidSchedule

    def declare(function: Function) -> Tailer:
        made: Tailer | None = None

        @wraps(function)
        def read(context: Any) -> dict[str, Any]:
            return Reading(context, made).run()  # type: ignore[arg-type]

        @wraps(function)
        def map_rejected(context: Any, *, record: dict[str, Any], error: str) -> int:
            return map_again(made, record)  # type: ignore[arg-type]

        read.is_tailer = True  # type: ignore[attr-defined]
        _sign(read)
        _sign(map_rejected, "record", "error")
        shared: dict[str, Any] = {"timeout": timeout} | options
        of_reading: dict[str, Any] = {"priority": PRIORITY} | shared
        reading = task_type(
            identifier,
            retention=0,
            max_restarts=MOST_RESTARTS,
            max_retries=MOST_RETRIES,
            backoff=1,
            backoff_max=LONGEST_BACKOFF,
            **of_reading,
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
            spec = spec_of(identifier, reading, every=every, overlap="skip")
            schedules.add(spec, reading, getattr(function, "__globals__", {}).get("__spec__"))
        made = Tailer(
            identifier=identifier,
            source=source,
            function=function,
            batch=batch,
            type=reading,
            rejected=rejected,
        )
        declared.add(made)
        return made

    return declare


def _sign(handler: Callable[..., Any], *names: str) -> None:
    """Give a handler the signature that its Type is to have, instead of the function's."""
    first = Parameter("context", Parameter.POSITIONAL_ONLY)
    others = [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
    handler.__signature__ = Signature([first, *others])  # type: ignore[attr-defined]
    handler.__annotations__ = {}


# Mapping records to calls, and putting aside those that cannot be mapped.

# These say nothing of the record: the attempt ends, and the record stays where it is.
OF_THE_ATTEMPT = (Interrupted, Retry, Defer, OperationalError, InterfaceError)
MAX_ERROR = 500
# The size up to which the data of a record is kept that is too large for inputs, in bytes.
KEPT = 1000
# About what a prepared call takes beside its inputs, in bytes.
CALL = 1000


@dataclass(frozen=True)
class MappedRecord:
    """A record with its prepared calls; ``is_rejected`` if they put it aside.

    ``is_left`` tells that it can neither be mapped nor put aside: it stays in the source.
    """

    record: Record
    calls: tuple[Prepared, ...] = ()
    is_rejected: bool = False
    is_left: bool = False

    @property
    def size(self) -> int:
        """About how many bytes of memory the calls take."""
        return sum(CALL + len(each.submission.inputs.data) for each in self.calls)


def mapped(tailer: Tailer, record: Record) -> MappedRecord:
    """Map a record; put it aside if the tailer's function raises, or its calls are invalid."""
    try:
        return MappedRecord(record, tuple(prepare(call) for call in tailer(record)))
    except OF_THE_ATTEMPT:
        raise
    except Exception as error:
        return rejected(tailer, record, f"{logs.exception_name(error)}: {words(error)}")


def rejected(tailer: Tailer, record: Record, error: str) -> MappedRecord:
    """Put a record aside: an Instance of its own maps it again.

    If the source keeps the record, its position is enough. Otherwise all of it has to be kept.
    """
    error = error if len(error) <= MAX_ERROR else error[: MAX_ERROR - 1] + "…"
    try:
        call = prepare(tailer.rejected.call(record=tailer.source.pack(record), error=error))
    except OF_THE_ATTEMPT:
        raise
    except Exception:  # its values are the project's own, and so is their serialization
        if tailer.source.removes:
            return MappedRecord(record, is_left=True)
        kept = {"shard": record.shard, "position": record.position, "data": record.data[:KEPT]}
        call = prepare(tailer.rejected.call(record={**kept, "is_cut": True}, error=error))
    return MappedRecord(record, (call,), is_rejected=True)


# An attempt to read a source, until it has no more records for now.

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
                reason=text.shorten(told, MAX_IDENTIFIER),
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

    def _mapped(self, records: Sequence[Record]) -> Iterator[list[MappedRecord]]:
        """Map records; yield what is settled together, which has about BATCH_BYTES at most."""
        found: list[MappedRecord] = []
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

    def _settle(self, reader: Reader, found: Sequence[MappedRecord]) -> None:
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

    def _row_of_rejected(self, found: Sequence[MappedRecord]) -> int:
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

    def _commit(self, reader: Reader, found: Sequence[MappedRecord]) -> None:
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


# Mapping a record again that was put aside.


def map_again(tailer: Tailer, packed: Mapping[str, Any]) -> int:
    """Map a packed record and enqueue its calls; return their number. Raises Fatal."""
    if packed.get("is_cut"):
        raise Fatal(
            f"The record of shard {packed['shard']!r} whose position is {packed['position']!r} "
            "cannot be kept as inputs, so only its beginning is here. The source has the whole.",
            fingerprint="cut",
        )
    return len(enqueue_calls(tailer(tailer.source.unpack(packed))))
