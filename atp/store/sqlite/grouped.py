"""Groups of moves that are written together: they differ only in Instance and times."""

import logging
from datetime import timedelta
from typing import NamedTuple

from ... import states
from ...commands import CANCEL
from ...states import DEAD_LETTER, Event, Reason, Row, State
from ..misfits import is_misfit
from ..values import Failed
from .base import as_json, as_text

# The events that holders record most. An expiry is not among them: it may end in FAILED, which
# the portable store decides.
PLAIN = states.plain_transitions()

# %(times)s is a JSON object: by the Instance's key, the time at which the attempt was started, if
# that is recorded too, and the time of the event.
_INSTANCE = """
    UPDATE atp_instance SET
        state = %(target)s,
        reason = %(reason)s,
        retries = retries + %(retries)s,
        started = coalesce(given.started, atp_instance.started),
        finished = CASE WHEN %(is_terminal)s THEN given.time END,
        progress = CASE
            WHEN %(target)s = 'FINISHED' THEN 1.0 WHEN given.started IS NULL THEN progress
        END,
        progress_message = CASE WHEN given.started IS NULL THEN progress_message ELSE '' END
    FROM (
        SELECT CAST(key AS integer) AS id, value ->> 0 AS started, value ->> 1 AS time
        FROM json_each(%(times)s)
    ) given
    WHERE atp_instance.id = given.id AND state IN (SELECT value FROM json_each(%(sources)s))
"""

# The statement on Tasks for each effect, for Tasks that the daemon holds under this attempt.
_TASK = {
    Row.DELETED: "DELETE FROM atp_task",
    Row.FREED: """
        UPDATE atp_task SET daemon_id = NULL, due_at = coalesce(%(due)s, due_at),
            request = '',
            start_before = CASE
                WHEN (SELECT started IS NULL FROM atp_instance WHERE id = instance_id)
                THEN start_before
            END
    """,
    Row.KEPT: "SELECT count(*) FROM atp_task",
}
# Tasks are found by key, since a daemon may hold many more. A Task that goes back to the queue
# and is to be cancelled is left to the portable store.
_FENCED = """
    WHERE instance_id IN (SELECT CAST(key AS integer) FROM json_each(%(times)s))
      AND attempt = %(attempt)s
      AND +daemon_id = (SELECT id FROM atp_daemon WHERE uuid = %(daemon)s)
      AND NOT (%(is_freed)s AND request = %(cancel)s)
      AND (waits IS NULL OR NOT %(is_alone)s)
"""

_LOG = """
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message, detail)
    SELECT CAST(key AS integer), '', value ->> %(place)s, %(event)s, %(state)s, %(attempt)s,
        %(level)s, %(who)s, %(message)s, %(detail)s
    FROM json_each(%(times)s)
"""


# For dead letters: their error group, and a row of Failure each, which a chore counts later.
_ERROR = """
    UPDATE atp_instance SET error_id = %(group)s
    WHERE id IN (SELECT CAST(key AS integer) FROM json_each(%(times)s))
"""
_FAILURE = """
    INSERT INTO atp_failure
        ("group", type, fingerprint, version, exception, title, instance, time)
    SELECT %(group)s, %(type)s, %(fingerprint)s, %(version)s, %(exception)s, %(title)s,
        instance.uuid, value ->> 1
    FROM json_each(%(times)s) JOIN atp_instance instance ON instance.id = CAST(key AS integer)
"""


class Refused(Exception):
    """Not all moves of a group are legal."""


class Kind(NamedTuple):
    """The values that all moves of a group share."""

    event: Event
    has_start: bool
    attempt: int | None
    who: str
    message: str
    level: int
    reason: Reason | str
    delay: timedelta | None
    kept: bool
    detail: str = ""
    failed: Failed | None = None

    @property
    def transition(self):
        return PLAIN[self.event]

    @property
    def sources(self):
        return PLAIN[Event.START].sources if self.has_start else self.transition.sources

    @property
    def start(self):
        """The kind of the starts that are recorded with these moves."""
        return Kind(Event.START, False, self.attempt, self.who, "", logging.INFO, "", None, True)


def is_plain(move):
    """Return whether a move can be part of a group."""
    transition = PLAIN.get(move.event)
    if transition is None or is_misfit(move):
        return False
    if move.reason in DEAD_LETTER and move.failed is None:
        return False
    return move.started is None or State.RUNNING in transition.sources


class Group:
    """A group of moves; ``times`` are pairs (start, event) by Instance.

    ``store`` executes the statements.
    """

    def __init__(self, store, kind, times):
        self._store = store
        self._kind = kind
        self._given = times
        self._times = as_json(times)

    def write(self, daemon, now, *, settles):
        """Write the moves as the daemon's. Raises Refused if one of them is not legal.

        It also raises Refused for an end with consequences, unless the caller ``settles`` it.
        """
        count = len(self._given)
        if self._move() != count or self._fence(daemon, now, settles) != count:
            raise Refused
        if self._kind.event == Event.FINISH and not self._kind.kept:
            left = self._store.remove_finished(list(self._given))
            if not left:
                return
            self._times = as_json({key: self._given[key] for key in left})
        if self._kind.has_start:
            self._log(self._kind.start, 0)
        self._log(self._kind, 1)
        if self._kind.failed is not None:
            given = self._kind.failed._asdict()
            self._store.run(_ERROR, times=self._times, group=given["group"])
            self._store.run(_FAILURE, times=self._times, **given)

    def _move(self):
        """Move the Instances; returns how many were in a state that allows the event."""
        transition = self._kind.transition
        is_terminal = transition.target in states.TERMINAL
        return self._store.run(
            _INSTANCE,
            times=self._times,
            sources=as_json(sorted(self._kind.sources)),
            target=transition.target.value,
            reason=str(self._kind.reason) if is_terminal else "",
            is_terminal=is_terminal,
            retries=transition.counts.count("retries"),
        )

    def _fence(self, daemon, now, settles):
        """Apply the event's effect to the Tasks; returns how many of them the daemon held."""
        effect, delay = self._kind.transition.row, self._kind.delay
        given = {
            "times": self._times,
            "attempt": self._kind.attempt,
            "daemon": daemon.hex,
            "due": None if delay is None else as_text(now + delay),
            "is_freed": effect is Row.FREED,
            "is_alone": effect is Row.DELETED and not settles,
            "cancel": CANCEL,
        }
        if effect is Row.KEPT:
            return self._store.select(_TASK[effect] + _FENCED, **given)[0][0]
        return self._store.run(_TASK[effect] + _FENCED, **given)

    def _log(self, kind, place):
        self._store.run(
            _LOG,
            times=self._times,
            place=place,
            event=kind.event.value,
            state=kind.transition.target.value,
            attempt=kind.attempt,
            level=kind.level,
            who=kind.who,
            message=kind.message,
            detail=kind.detail,
        )
