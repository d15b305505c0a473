"""Transitions with equal values, written together."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ... import states
from ...commands import CANCEL
from ...states import DEAD_LETTER, Event, Reason, Row, State, Transition
from ..common.incompatible import is_misfit
from ..common.records import Records as ORMRecords
from ..values import Failed, Move, ProgressUpdate
from .sessions import as_json, as_text

if TYPE_CHECKING:
    from . import SQLiteStore

# Groups of moves that are written together: they differ only in Instance and times.

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


# For dead letters: their error group, and a row of Failure each, which a job counts later.
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
    def transition(self) -> Transition:
        return PLAIN[self.event]

    @property
    def sources(self) -> frozenset[State]:
        return PLAIN[Event.START].sources if self.has_start else self.transition.sources

    @property
    def start(self) -> "Kind":
        """The kind of the starts that are recorded with these moves."""
        return Kind(Event.START, False, self.attempt, self.who, "", logging.INFO, "", None, True)


def is_plain(move: Move) -> bool:
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

    def __init__(
        self, store: "SQLiteStore", kind: Kind, times: Mapping[int, tuple[str | None, str]]
    ) -> None:
        self._store = store
        self._kind = kind
        self._given = times
        self._times = as_json(times)

    def write(self, daemon: UUID, now: datetime, *, settles: bool) -> None:
        """Write the moves as the daemon's. Raises Refused if one of them is not legal.

        It also raises Refused for an end with consequences, unless the caller ``settles`` it.
        """
        count = len(self._given)
        if self._move() != count or self._fence(daemon, now, settles) != count:
            raise Refused
        if self._kind.event == Event.FINISH and not self._kind.kept:
            left = self._store.removal.remove_finished(list(self._given))
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

    def _move(self) -> int:
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

    def _fence(self, daemon: UUID, now: datetime, settles: bool) -> int:
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

    def _log(self, kind: Kind, place: int) -> None:
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


# Recording on SQLite: moves with equal values are written together.

_RESPONSE = """
    INSERT INTO atp_response (instance_id, content_type, data, file, size, files)
    VALUES (%s, %s, %s, %s, %s, '[]')
    ON CONFLICT (instance_id) DO UPDATE
    SET content_type = excluded.content_type, data = excluded.data,
        file = excluded.file, size = excluded.size
"""
_GRAPHS = "SELECT 1 FROM atp_graph WHERE ended IS NULL AND id > 0 LIMIT 1"
_LINES = "SELECT 1 FROM atp_node WHERE graph_id IS NULL LIMIT 1"
_SETTLED = """
    SELECT instance_id FROM atp_task
    WHERE instance_id IN (SELECT value FROM json_each(%(keys)s)) AND waits IS NOT NULL
"""
_PROGRESS = """
    UPDATE atp_instance SET progress = %s, progress_message = coalesce(%s, progress_message)
    WHERE id = %s
"""


class Records(ORMRecords):
    """Writes moves with equal values together. All others are left to the portable store."""

    store: "SQLiteStore"

    def record(self, moves: Sequence[Move], *, daemon: UUID | None = None) -> list[Move]:
        if daemon is None or not moves:
            return super().record(moves, daemon=daemon)
        plain, rest = _sorted_out(moves)
        # Instances with hooks are looked for if the last batch had some. If not, they are refused,
        # and a second try looks for them.
        for looks in (True,) if self._meets_hooks else (False, True):
            try:
                with self.store.atomic():
                    self._record_plain(plain, daemon, looks)
                    return super().record(rest, daemon=daemon)
            except Refused:
                continue
        # Nothing of it was written. The portable store finds out which moves are legal.
        return super().record(moves, daemon=daemon)

    # Whether the last batch had Instances with hooks.
    _meets_hooks = False

    def _record_plain(self, plain: list[Move], daemon: UUID, looks: bool) -> None:
        now = self.store.now()
        looks = looks or bool(self.store.select(_GRAPHS) or self.store.select(_LINES))
        settled = self._settled(plain) if looks else ()
        if settled:
            # A node is kept whole until its graph has ended, an Instance with hooks for some time.
            plain = [m._replace(kept=True) if m.instance in settled else m for m in plain]
        for kind, times in _grouped(plain, now).items():
            Group(self.store, kind, times).write(daemon, now, settles=looks)
        self._respond(plain)
        if settled:
            self._settle([move for move in plain if move.instance in settled])

    def _settled(self, moves: Iterable[Move]) -> set[int]:
        """Return the keys of Instances whose end has consequences: nodes, and those with hooks."""
        found = self.store.select(_SETTLED, keys=as_json([move.instance for move in moves]))
        self._meets_hooks = bool(found)
        return {key for (key,) in found}

    def _settle(self, moves: Sequence[Move]) -> None:
        ended = {
            move.instance: transition.target
            for move in moves
            if (transition := PLAIN[move.event]).row is Row.DELETED
        }
        if ended:
            self.store.graph_ends.settle(ended, who=moves[0].who)

    def _respond(self, moves: Iterable[Move]) -> None:
        responses = [
            (move.instance, answer.content_type, answer.data, answer.file, answer.size)
            for move in moves
            if move.kept and (answer := move.response) is not None
        ]
        if responses:
            self.store.run_many(_RESPONSE, responses)

    def _write_progress(self, notes: Iterable[ProgressUpdate]) -> None:
        said = [
            (note.progress, note.progress_message, note.instance)
            for note in notes
            if note.progress is not None or note.progress_message is not None
        ]
        if said:
            self.store.run_many(_PROGRESS, said)


def _sorted_out(moves: Sequence[Move]) -> tuple[list[Move], list[Move]]:
    """Return one plain move for each Instance that has a single one, and all other moves."""
    of_instance: defaultdict[int, list[Move]] = defaultdict(list)
    for move in moves:
        of_instance[move.instance].append(move)
    single = [own[0] if len(own) == 1 else _merged(*own) for own in of_instance.values()]
    plain = [move for move in single if move is not None and is_plain(move)]
    if len(plain) == len(of_instance):
        return plain, []
    taken = {move.instance for move in plain}
    return plain, [move for move in moves if move.instance not in taken]


def _merged(first: Move, second: Move, *more: Move) -> Move | None:
    """Return the start of an attempt and the next move as one move; None if that is impossible."""
    start = second._replace(
        event=Event.START, time=first.time, reason="", delay=None, response=None,
        message="", level=logging.INFO, detail="", failed=None,
    )  # fmt: skip
    if more or first.time is None or first != start or second.started is not None:
        return None
    return second._replace(started=first.time)


def _grouped(moves: Iterable[Move], now: datetime) -> dict[Kind, dict[int, tuple[str | None, str]]]:
    """Return the pairs (start, event) of times, by :class:`Kind` and Instance."""
    now = as_text(now)
    groups: dict[Kind, dict[int, tuple[str | None, str]]] = {}
    last: tuple[Any, ...] | None = None
    has_start, times = False, {}
    for move in moves:
        started, time = as_text(move.started), as_text(move.time) or now
        shared = _shared(move)
        # Mostly as that of the last move. To make a Kind of each takes several times as long.
        if shared != last or has_start is (started is None):
            last, has_start = shared, started is not None
            times = groups.setdefault(Kind(shared[0], has_start, *shared[1:]), {})
        times[move.instance] = (time if move.event == Event.START else started), time
    return groups


# The values of a move that its Kind has, without has_start.
_shared = attrgetter(*(name for name in Kind._fields if name != "has_start"))
