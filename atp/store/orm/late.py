"""The ledger of late writes: what the fence refuses is kept (G4)."""

import logging
from collections import Counter
from datetime import timedelta

from django.db.models import F, Q

from ...models import Instance, LogRecord, Task, Type
from ...states import Event, Reason
from ..values import ROLLED_BACK, Change
from .base import ORMBase

# The events by which an attempt ends; the first are its own word.
_OWN_WORD = frozenset({Event.FINISH, Event.FAIL, Event.RETRY, Event.DEFER})
_ENDS = _OWN_WORD | {Event.RELEASE, Event.EXPIRE}
# What is said of an attempt whose daemon has ended it: nothing more happened.
_ENDED = {Event.RELEASE: "was handed back", Event.EXPIRE: "was lost"}
# What is said of an attempt that has concluded, where that was not known.
_DOUBTFUL = frozenset({*_ENDED, Event.DEFER})
_DID = {
    Event.START: "started",
    Event.PAUSE: "was put on hold",
    Event.RESUME: "went on after a pause",
    Event.FINISH: "finished",
    Event.FAIL: "failed",
    Event.RETRY: "asked to be tried again",
    Event.DEFER: "asked to be deferred",
    **_ENDED,
}
_SAID = "reported progress, messages or files"
# What a time may lose on its way through the database.
_ROUNDING = timedelta(milliseconds=1)
TWICE = "its effects may have happened twice"


class Late(ORMBase):
    def keep_late(self, refused):
        if not refused:
            return []
        keys = {entry.instance for entry in refused}
        types = dict(self.rows(Instance).filter(pk__in=keys).values_list("pk", "type_id"))
        held = dict(self.rows(Task).claimed().filter(pk__in=keys).values_list("pk", "attempt"))
        logs = _Logs(self.rows(LogRecord).filter(instance__in=keys).order_by("pk"))
        now = self.now()
        late, records = [], {}
        for entry in refused:
            if logs.has(entry):
                continue
            late.append(entry)
            # One that still is held, if only by another identity of its daemon, is not late.
            if entry.instance in types and held.get(entry.instance) != entry.attempt:
                message = logs.words(entry)
                # Told again because an acknowledgement got lost, it is the same refusal.
                if message and not logs.says(entry, message):
                    records[entry.instance, entry.attempt, message] = entry
        self._keep(records, types, now, logs)
        return late

    def _keep(self, records, types, now, logs):
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=key,
                    time=now,
                    attempt=attempt,
                    level=logging.WARNING,
                    who=entry.who,
                    message=message,
                )
                for (key, attempt, message), entry in records.items()
            ]
        )
        # An attempt counts once, and that its own daemon took it away does not.
        attempts = {(key, attempt) for key, attempt, message in records if _is_counted(message)}
        counted = Counter(types[key] for key, attempt in attempts - logs.counted)
        for type_id, count in counted.items():
            self.rows(Type).filter(pk=type_id).update(late_writes=F("late_writes") + count)


class _Logs:
    """What the logs say of the attempts that were refused something."""

    def __init__(self, logs):
        self._ends, self._written, self._said = {}, {}, set()
        # Attempts that have been counted as late.
        self.counted = set()
        # Only what is kept of refusals has no state: what handlers have said is not read.
        own = Q(event="", state="", level=logging.WARNING)
        names = ("instance_id", "attempt", "event", "who", "time", "message")
        for row in logs.filter(Q(event__gt="") | own).values_list(*names, named=True):
            key = row.instance_id, row.attempt
            if not row.event:
                self._said.add((*key, row.message))
                if _is_counted(row.message):
                    self.counted.add(key)
                continue
            self._written[*key, row.event, row.who] = row.time
            if row.event in _ENDS:
                self._ends[key] = row

    def has(self, entry):
        """Whether this very change is written."""
        if not isinstance(entry, Change) or entry.time is None:
            return False
        written = self._written.get((entry.instance, entry.attempt, str(entry.event), entry.who))
        return written is not None and abs(written - entry.time) < _ROUNDING

    def says(self, entry, message):
        return (entry.instance, entry.attempt, message) in self._said

    def words(self, entry):
        """What is to be kept of a refused entry; nothing if the attempt had its say before."""
        event = entry.event if isinstance(entry, Change) else None
        is_doubtful = event is None or event in _DOUBTFUL or entry.reason == Reason.CANCELLED
        end = self._ends.get((entry.instance, entry.attempt))
        if end is None:
            return ""  # there was no such attempt, or nobody has ended it
        if end.event in _OWN_WORD and is_doubtful:
            return ""
        did = f"attempt {entry.attempt} {_DID.get(event, f'asked for {event}') if event else _SAID}"
        if end.event in _OWN_WORD:
            return f"{did} after it had ended: refused"
        told = _when(entry, end)
        if event in _ENDED:
            return f"{did} {told}"
        said = getattr(entry, "message", "")
        effects = ROLLED_BACK if entry.transactional else TWICE
        return f"{did} {told}; {effects}" + (f"\n{said}" if said else "")


def _is_counted(message):
    """Whether a refusal that is told in these words is one of the Type's late writes."""
    return TWICE in message or ROLLED_BACK in message


def _when(entry, end):
    time = getattr(entry, "time", None)
    if time is None:
        return "after its Task was taken away"
    seconds = (time - end.time).total_seconds()
    if seconds < 0:
        return "and could not tell it before its Task was taken away"
    return f"{seconds:.{0 if seconds >= 10 else 1}f} s after its Task was taken away"
