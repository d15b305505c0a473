"""Late writes: events and notes that the fence refuses are kept in the log (G4)."""

import logging
from collections import Counter
from datetime import timedelta

from django.db.models import F

from ... import messages
from ...models import Instance, Kind, LogRecord, Task, Type
from ...states import Event, Reason, events
from ..values import Move, Refused
from .base import ORMBase

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


class Late(ORMBase):
    def keep_late(self, refused):
        if not refused:
            return []
        keys = {entry.instance for entry in refused}
        types = dict(self.rows(Instance).filter(pk__in=keys).values_list("pk", "type_id"))
        held = dict(self.rows(Task).claimed().filter(pk__in=keys).values_list("pk", "attempt"))
        logs = _Logs(self.rows(LogRecord).filter(instance__in=keys).order_by("pk"))
        now = self.now()
        late, records = Refused(), {}
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

    def _keep(self, records, types, logs):
        self.rows(LogRecord).bulk_create(records)
        # An attempt counts once; it does not count if its own daemon took it away.
        late = {(r.instance_id, r.attempt) for r in records if r.kind == Kind.LATE}
        counted = Counter(types[key] for key, attempt in late - logs.late)
        for type_id, count in counted.items():
            self.rows(Type).filter(pk=type_id).update(late_writes=F("late_writes") + count)


class _Logs:
    """The logs of the attempts that had an entry refused."""

    def __init__(self, logs):
        self._ends, self._written, self._refusals = {}, {}, set()
        self._keys = {}
        # The attempts that have been counted as late before.
        self.late = set()
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

    def has(self, entry):
        """Return whether exactly this move is in the log."""
        if not isinstance(entry, Move) or entry.time is None:
            return False
        written = self._written.get((entry.instance, entry.attempt, str(entry.event), entry.who))
        return written is not None and abs(written - entry.time) < _ROUNDING

    def known(self, entry):
        """Return a pair for a move in the log: (Instance, attempt, event), and its record's key."""
        key = entry.instance, entry.attempt, str(entry.event)
        return key, self._keys[key]

    def has_refusal(self, record):
        return _identity(record) in self._refusals

    def refusal(self, entry, now):
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


def _identity(record):
    """Return a key that two records of the same refusal share."""
    return record.instance_id, record.attempt, record.kind, record.detail
