"""Enqueueing on SQLite: Instances with equal options are written together."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ...models import Instance
from ..common.enqueueing import Enqueueing as ORMEnqueueing
from ..values import Registration, Submission
from .listener import TAKE, TAKERS, is_heard
from .sessions import as_json, as_text

if TYPE_CHECKING:
    from . import SQLiteStore

_TYPE = "SELECT id FROM atp_type WHERE identifier = %(identifier)s"
# Keys are assigned here, so that the tables can be written one after the other. Nobody else
# enqueues meanwhile, and AUTOINCREMENT goes on behind them.
_LAST = "SELECT max(seq) FROM sqlite_sequence WHERE name = 'atp_instance'"
_INSTANCE = """
    INSERT INTO atp_instance (
        id, type_id, uuid, identifier, state, reason, collection, priority, attempt, restarts,
        retries, lost, progress_message, start_before, created_by, created,
        own
    )
    SELECT CAST(key AS integer), %(type)s, value ->> 0, value ->> 1, %(state)s, '',
        %(collection)s, %(priority)s, %(attempt)s, 0, 0, 0, '', %(start_before)s, %(created_by)s,
        %(now)s, %(own)s
    FROM json_each(%(names)s)
"""
_TASK = """
    INSERT INTO atp_task (
        instance_id, type_id, collection, priority, due_at, start_before, daemon_id, attempt,
        request, waits, unique_key
    )
    SELECT CAST(key AS integer), %(type)s, %(collection)s, %(priority)s,
        coalesce(%(due)s, %(now)s), %(start_before)s, %(daemon)s, %(attempt)s, '',
        %(waits)s, %(unique)s
    FROM json_each(%(names)s)
"""
_LOG = """
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT CAST(key AS integer), '', %(now)s, %(event)s, %(state)s, %(attempt)s, 20, %(who)s, ''
    FROM json_each(%(names)s)
"""
_INPUTS = "INSERT INTO atp_inputs (instance_id, format, data) VALUES (%s, %s, %s)"


class Shared(NamedTuple):
    """The options that Instances have in common, as they are written."""

    collection: str
    priority: int
    due: str | None
    start_before: str | None
    created_by: str
    waits: int | None
    own: str | None
    unique: str | None


class Enqueueing(ORMEnqueueing):
    """Inserts all rows of an enqueue by one statement for each table."""

    store: "SQLiteStore"

    def type_id(self, registration: Registration) -> int:
        found = self.store.select(_TYPE, identifier=registration.identifier)
        return found[0][0] if found else super().type_id(registration)

    def _insert(
        self,
        new: Sequence[tuple[Instance, Submission]],
        type_id: int,
        now: datetime,
        who: str,
        is_alone: bool,
    ) -> None:
        if not new:
            return
        last = self.store.select(_LAST)[0][0] or 0
        groups: defaultdict[Shared, dict[int, tuple[str, str | None]]] = defaultdict(dict)
        for key, (instance, submission) in enumerate(new, start=last + 1):
            instance.pk = key
            instance._state.adding = False
            instance._state.db = self.store.alias
            names = instance.uuid.hex, instance.identifier
            groups[_shared(submission)][key] = names
        for shared, names in groups.items():
            given = shared._asdict() | _WAITS
            given |= {"names": as_json(names), "type": type_id, "now": as_text(now)}
            taken = self._take(new[0][1], given) if is_alone else {}
            for statement in (_INSTANCE, _TASK):
                self.store.run(statement, **given | taken)
            self.store.run(_LOG, **given, event="enqueue", who=shared.created_by or who)
            if taken:
                self.store.run(_LOG, **given | taken, event="claim")
                self.store.run(TAKE, daemon=taken["daemon"], key=last + 1)
        self.store.run_many(_INPUTS, [(i.pk, r.inputs.format, r.inputs.data) for i, r in new])

    def _take(self, submission: Submission, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of an Instance handed to an idle daemon; empty if there is none."""
        if self._may_hand(submission):
            wanted = {name: given[name] for name in ("type", "collection", "now")}
            for daemon, name, channel in self.store.select(TAKERS, **wanted):
                if is_heard(self.store.lock_folder, channel):
                    return {"daemon": daemon, "who": name, "state": "SCHEDULED", "attempt": 1}
        return {}


# The columns of an Instance that is not handed over.
_WAITS = {"daemon": None, "state": "ACCEPTED", "attempt": 0}


def _shared(submission: Submission) -> Shared:
    return Shared(
        submission.collection,
        submission.priority,
        as_text(submission.due),
        as_text(submission.start_before),
        submission.created_by,
        submission.waits,
        submission.own,
        submission.unique,
    )
