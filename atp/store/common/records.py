"""Recording transitions and progress of attempts; writes that come too late."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeGuard, TypeVar
from uuid import UUID

from django.db import IntegrityError
from django.db.models import F, Value
from django.db.models.functions import Replace

from ... import messages
from ...commands import STACK_MARK
from ...exceptions import TaskGone
from ...models import Daemon, Instance, Kind, LogRecord, Response, Task, Type
from ...querysets import LogQuerySet
from ...states import Actor, Event, Reason, State, events
from ..values import Delivered, Move, ProgressUpdate, Refused, count_kept_messages
from .base import Part
from .enqueueing import ATTEMPTS
from .transitions import Mover

Entry = TypeVar("Entry", bound=Move | ProgressUpdate)
# An Instance and an attempt.
_Attempt = tuple[int, int | None]

# Late writes: events and notes that the fence refuses are kept in the log (G4).

# The outcomes of a handler, and all events that end an attempt.
_OUTCOMES = events(lambda row: row.is_outcome)
_ENDS = events(lambda row: row.ends)
# Ends that a daemon causes: they carry no outcome of the handler.
_ENDED_BY_DAEMON = _ENDS - _OUTCOMES
# After an attempt has concluded, these add nothing: whoever sent them did not know of the end.
_DOUBTFUL = frozenset({*_ENDED_BY_DAEMON, Event.DEFER})
_REFUSALS = (Kind.LATE, Kind.REFUSED)
# Storing a time in the database may round it by this much.
_ROUNDING = timedelta(milliseconds=1)


class _Logs:
    """The logs of the attempts that had an entry refused."""

    def __init__(self, logs: LogQuerySet) -> None:
        self._ends: dict[_Attempt, Any] = {}
        self._written: dict[tuple[int, int | None, str, str], datetime] = {}
        self._refusals: set[tuple[Any, ...]] = set()
        self._keys: dict[tuple[int, int | None, str], int] = {}
        # The attempts that have been counted as late before.
        self.late: set[_Attempt] = set()
        names = ("pk", "instance_id", "attempt", "kind", "who", "time", "detail")
        # Leave out the handlers' messages, which may be many.
        for row in logs.filter(kind__in=[*Event, *_REFUSALS]).values_list(*names, named=True):
            key = row.instance_id, row.attempt
            if row.kind in _REFUSALS:
                self._refusals.add(_identity(row))
                if row.kind == Kind.LATE:
                    self.late.add(key)
                continue
            self._written[*key, row.kind, row.who] = row.time
            self._keys[*key, row.kind] = row.pk
            if row.kind in _ENDS:
                self._ends[key] = row

    def has(self, entry: Move | ProgressUpdate) -> TypeGuard[Move]:
        """Return whether exactly this move is in the log."""
        if not isinstance(entry, Move) or entry.time is None:
            return False
        written = self._written.get((entry.instance, entry.attempt, str(entry.event), entry.who))
        return written is not None and abs(written - entry.time) < _ROUNDING

    def known(self, entry: Move) -> tuple[tuple[int, int | None, str], int]:
        """Return a pair for a move in the log: (Instance, attempt, event), and its record's key."""
        key = entry.instance, entry.attempt, str(entry.event)
        return key, self._keys[key]

    def has_refusal(self, record: LogRecord) -> bool:
        return _identity(record) in self._refusals

    def refusal(self, entry: Any, now: datetime) -> LogRecord | None:
        """Return the LogRecord of a refused entry; None if it adds nothing."""
        event = entry.event if isinstance(entry, Move) else None
        is_doubtful = event is None or event in _DOUBTFUL or entry.reason == Reason.CANCELLED
        end = self._ends.get((entry.instance, entry.attempt))
        if end is None:
            return None  # there was no such attempt, or nobody has ended it
        if end.kind in _OUTCOMES and is_doubtful:
            return None
        time = getattr(entry, "time", None)
        seconds = None if time is None else (time - end.time).total_seconds()
        kind = Kind.REFUSED
        if end.kind in _OUTCOMES:
            message = messages.refused_after_end(entry.attempt, event)
        elif event in _ENDED_BY_DAEMON:
            message = messages.attempt_refused(entry.attempt, event, seconds)
        else:
            kind = Kind.LATE
            message = messages.late_result(
                entry.attempt, event, seconds, transactional=entry.transactional
            )
            if said := getattr(entry, "message", ""):
                message = f"{message}\n{said}"
        return LogRecord(
            instance_id=entry.instance,
            time=now,
            kind=kind,
            attempt=entry.attempt,
            level=logging.WARNING,
            who=entry.who,
            message=message,
            detail=" ".join(filter(None, [event or "note", time and time.isoformat()])),
        )


def _identity(record: Any) -> tuple[Any, ...]:
    """Return a key that two records of the same refusal share."""
    return record.instance_id, record.attempt, record.kind, record.detail


class Records(Part):
    """Recording the moves and notes of attempts."""

    def keep_late(self, refused: Sequence[Entry]) -> list[Entry]:
        if not refused:
            return []
        keys = {entry.instance for entry in refused}
        types = dict(self.rows(Instance).filter(pk__in=keys).values_list("pk", "type_id"))
        held = dict(self.rows(Task).claimed().filter(pk__in=keys).values_list("pk", "attempt"))
        logs = _Logs(self.rows(LogRecord).filter(instance__in=keys).order_by("pk"))
        now = self.store.now()
        late = Refused()
        records: dict[tuple[Any, ...], LogRecord] = {}
        for entry in refused:
            if logs.has(entry):
                late.known.append(logs.known(entry))
                continue
            late.append(entry)
            # An attempt that is still held, even by another identity of its daemon, is not late.
            if entry.instance in types and held.get(entry.instance) != entry.attempt:
                record = logs.refusal(entry, now)
                # If an acknowledgement got lost, the same refusal comes twice.
                if record is not None and not logs.has_refusal(record):
                    records[_identity(record)] = record
        self._keep(records.values(), types, logs)
        return late

    def _keep(self, records: Collection[LogRecord], types: Mapping[int, int], logs: _Logs) -> None:
        self.rows(LogRecord).bulk_create(records)
        # An attempt counts once; it does not count if its own daemon took it away.
        late: set[Any] = {(r.instance_id, r.attempt) for r in records if r.kind == Kind.LATE}
        counted = Counter(types[key] for key, attempt in late - logs.late)
        for type_id, count in counted.items():
            self.rows(Type).filter(pk=type_id).update(late_writes=F("late_writes") + count)

    # Recording moves and notes of attempts.

    def deliver(
        self,
        entries: Sequence[Move] | Sequence[ProgressUpdate],
        *,
        daemon: UUID,
        careful: bool = False,
    ) -> Delivered:
        write: Callable[..., Sequence[Any]] = (
            self.record if isinstance(entries[0], Move) else self.note
        )
        return Delivered(refused=write(entries, daemon=daemon))

    def record(self, moves: Sequence[Move], *, daemon: UUID | None = None) -> list[Move]:
        if not moves:
            return []
        for remaining in reversed(range(ATTEMPTS)):
            try:
                with self.store.atomic():
                    return self._record(moves, daemon)
            except IntegrityError:
                # Since we looked, another session took the unique key of a redriven Instance.
                if not remaining or all(move.event != Event.REDRIVE for move in moves):
                    raise
        raise AssertionError("unreachable")

    def _record(self, moves: Sequence[Move], daemon: UUID | None) -> list[Move]:
        keys = sorted({move.instance for move in moves})
        counts = daemon is None
        mover = Mover(self.store, self.store.now(), counts=counts)
        mover.load(keys, revives=daemon is None)
        actor, holder = Actor.ANYONE, None
        if daemon is not None:
            actor, holder = Actor.HOLDER, self._key(daemon)
        ordered = mover.in_order(moves)
        refused = [m for m in ordered if not mover.apply(m, actor=actor, holder=holder)]
        mover.write()
        return refused if daemon is None else self.keep_late(refused)

    def _key(self, daemon: UUID) -> int:
        """Return the key of the daemon's row; 0, which holds nothing, if the row is gone."""
        return self.rows(Daemon).filter(uuid=daemon).values_list("pk", flat=True).first() or 0

    def conclude(self, move: Move, *, note: ProgressUpdate | None = None) -> None:
        # Always by the plain ORM, since the connection is the application's.
        with self.store.atomic():
            # Lock its node first, as all code that ends nodes does. Most Instances are no nodes.
            self.store.graph_ends.lock([move.instance])
            held = self.rows(Task).select_for_update(of=("self",)).claimed()
            task = held.filter(pk=move.instance, attempt=move.attempt).first()
            if task is None:
                raise TaskGone(f"The Task of attempt {move.attempt} was taken away.")
            if note is not None:
                self._say([note], {move.instance: State.RUNNING})
            mover = Mover(self.store, self.store.now()).load([move.instance])
            if not mover.apply(move, actor=Actor.HOLDER, holder=task.daemon_id):
                raise TaskGone(f"Attempt {move.attempt} is not {State.RUNNING} any more.")
            mover.write()

    def note(self, notes: Sequence[ProgressUpdate], *, daemon: UUID) -> list[ProgressUpdate]:
        if not notes:
            return []
        with self.store.atomic():
            locked = self.rows(Task).select_for_update(of=("self",)).held_by(daemon).order_by("pk")
            held = dict(
                locked.filter(pk__in=[n.instance for n in notes]).values_list("pk", "attempt")
            )
            # Of a note that may have been written before, take the part that is missing.
            pairs = [(note, self._unsaid(note) if note.again else note) for note in notes]
            accepted = [unsaid for note, unsaid in pairs if held.get(note.instance) == note.attempt]
            states = dict(
                self.rows(Instance)
                .filter(pk__in=[n.instance for n in accepted])
                .values_list("pk", "state")
            )
            self._say(accepted, states)
            late = [
                note
                for note, unsaid in pairs
                if held.get(note.instance) != note.attempt and (not note.again or unsaid.messages)
            ]
            self.keep_late(late)
            return late

    def _unsaid(self, note: ProgressUpdate) -> ProgressUpdate:
        """Return the note without the messages and files that have been stored already."""
        said = set(self._own_messages(note, Kind.STACK).values_list("time", "message"))
        response = self.rows(Response).filter(instance=note.instance).first()
        stored = {file["path"] for file in response.files} if response is not None else ()
        return replace(
            note,
            messages=tuple(m for m in note.messages if (m.time, m.text) not in said),
            files=tuple(file for file in note.files if file["path"] not in stored),
        )

    def _say(self, notes: Sequence[ProgressUpdate], states: Mapping[int, str]) -> None:
        self._write_progress(notes)
        self._write_messages(notes, states)
        self._answer_stacks(notes)
        self._leave_out(notes)
        self._write_files(notes)

    def _write_progress(self, notes: Iterable[ProgressUpdate]) -> None:
        for note in notes:
            said: dict[str, Any] = {}
            if note.progress is not None or note.progress_message is not None:
                said["progress"] = note.progress
            if note.progress_message is not None:
                said["progress_message"] = note.progress_message
            if said:
                self.rows(Instance).filter(pk=note.instance).update(**said)

    def _write_messages(self, notes: Iterable[ProgressUpdate], states: Mapping[int, str]) -> None:
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=note.instance,
                    time=message.time,
                    kind=message.kind,
                    state=states[note.instance],
                    attempt=note.attempt,
                    level=message.level,
                    who=note.who,
                    message=message.text,
                    detail=message.detail,
                )
                for note in notes
                for message in note.messages
            ]
        )

    def _answer_stacks(self, notes: Iterable[ProgressUpdate]) -> None:
        """Remove the command for the stack from the Tasks of these notes that bring one."""
        keys = [n.instance for n in notes if any(m.kind is Kind.STACK for m in n.messages)]
        if keys:
            answered = Replace("request", Value(STACK_MARK), Value(""))
            self.rows(Task).filter(pk__in=keys).update(request=answered)

    def _leave_out(self, notes: Iterable[ProgressUpdate]) -> None:
        """Delete the middle messages of attempts that wrote more than are kept."""
        first, last = count_kept_messages()
        for note in notes:
            if not note.left_out:
                continue
            own = self._own_messages(note)
            keys = own.values_list("pk", flat=True)
            # The first message to go becomes the record that says how many are missing.
            oldest_gone = keys.order_by("pk")[first : first + 1]
            oldest_kept = keys.order_by("-pk")[last - 1 : last]
            ends = [*oldest_gone, *oldest_kept]
            if len(ends) == 2 and ends[0] < ends[1]:
                own.filter(pk__gt=ends[0], pk__lt=ends[1]).delete()
                own.filter(pk=ends[0]).update(
                    kind=Kind.LEFT_OUT,
                    level=logging.WARNING,
                    message=messages.messages_left_out(note.left_out),
                    detail=str(note.left_out),
                )

    def _own_messages(self, note: ProgressUpdate, *kinds: Kind) -> LogQuerySet:
        """Return the records of an attempt's messages, and the one that says some were left out.

        Include the records of these other ``kinds``.
        """
        return self.rows(LogRecord).filter(
            instance=note.instance,
            attempt=note.attempt,
            kind__in=(Kind.MESSAGE, Kind.LEFT_OUT, *kinds),
            who=note.who,
        )

    def _write_files(self, notes: Iterable[ProgressUpdate]) -> None:
        for note in notes:
            if note.files:
                response, _ = self.rows(Response).get_or_create(instance_id=note.instance)
                response.files = [*response.files, *note.files]
                response.save(using=self.store.alias, update_fields=["files"])
