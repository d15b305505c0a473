"""The states of an Instance and the one table of legal transitions.

The six states are those of RFC 14, figure 1. Only :data:`TRANSITIONS` says which transitions are
legal, and what each of them does. The stores, the daemon, the documentation and the tests read this
table instead of repeating it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from django.db.models import TextChoices


class State(TextChoices):
    """The state of an Instance (RFC 14)."""

    ACCEPTED = "ACCEPTED", "accepted"
    SCHEDULED = "SCHEDULED", "scheduled"
    RUNNING = "RUNNING", "running"
    PAUSED = "PAUSED", "paused"
    FINISHED = "FINISHED", "finished"
    FAILED = "FAILED", "failed"


#: The states in which an Instance has ended.
TERMINAL = frozenset({State.FINISHED, State.FAILED})
#: The states in which an Instance has not ended.
LIVE = frozenset(State) - TERMINAL
#: The states in which a daemon holds the Task of an Instance.
CLAIMED = frozenset({State.SCHEDULED, State.RUNNING, State.PAUSED})


class Reason(TextChoices):
    """The reason why an Instance is FAILED."""

    ERROR = "ERROR", "the handler raised and its retries are used up"
    FATAL = "FATAL", "the handler raised an error that no retry can mend"
    STALE = "STALE", "its attempts were lost more often than allowed"
    CANCELLED = "CANCELLED", "somebody cancelled it"
    DROPPED = "DROPPED", "a gate dropped it"
    MISSED = "MISSED", "not started before its start_before"
    UPSTREAM = "UPSTREAM", "a node that it waited for has FAILED"


#: The reasons of dead letters: Instances that may succeed after a redrive.
DEAD_LETTER = frozenset({Reason.ERROR, Reason.FATAL, Reason.STALE})
#: An Instance that FAILED for one of these reasons might not have been running.
NOT_RUNNING = frozenset({Reason.MISSED, Reason.DROPPED, Reason.UPSTREAM, Reason.CANCELLED})


class Event(TextChoices):
    """An event that moves an Instance from one state to another.

    Its label continues the sentence "attempt 3 …".
    """

    ENQUEUE = "enqueue", "was enqueued"
    CLAIM = "claim", "was claimed"
    START = "start", "started"
    PAUSE = "pause", "was paused"
    RESUME = "resume", "went on after a pause"
    FINISH = "finish", "finished"
    RETRY = "retry", "asked to be tried again"
    DEFER = "defer", "asked to be deferred"
    RELEASE = "release", "was handed back"
    EXPIRE = "expire", "was lost"
    FAIL = "fail", "failed"
    REDRIVE = "redrive", "was redriven"


class Actor(Enum):
    """Who may cause an event."""

    ANYONE = "anyone allowed to"
    DAEMON = "a daemon with a live lease"
    HOLDER = "the daemon that holds the Task"
    SWEEPER = "any daemon, once the holder's lease is over"


class Row(Enum):
    """The effect of an event on the Task row."""

    CREATED = "created"
    HELD = "held by the daemon"
    KEPT = "unchanged"
    FREED = "freed"
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True)
class Transition:
    """One row of the table: an event, its source states, its target state and its effects.

    ``counts`` names the counters of the Instance that the event increments by one, ``resets`` those
    that it sets to zero. ``sources`` is empty for the event that creates the Instance.
    ``statistic`` names the column of Statistic that counts the event, "" if none does.
    """

    event: Event
    sources: frozenset[State]
    target: State
    actors: frozenset[Actor]
    row: Row
    counts: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()
    statistic: str = ""

    @property
    def is_holders(self) -> bool:
        """True if the daemon that holds the Task may cause this transition."""
        return Actor.HOLDER in self.actors

    @property
    def continues(self) -> bool:
        """True if the holder's attempt continues after this transition."""
        return self.is_holders and self.row is Row.KEPT

    @property
    def ends(self) -> bool:
        """True if this transition ends the holder's attempt."""
        return self.is_holders and not self.continues

    @property
    def is_outcome(self) -> bool:
        """True if this transition records how the handler ended; it always starts from RUNNING."""
        return self.ends and self.sources == {State.RUNNING}

    @property
    def puts_back(self) -> bool:
        """True if this transition returns a claimed Instance to the queue."""
        return self.row is Row.FREED

    @property
    def is_plain(self) -> bool:
        """True if the holder causes it, and it changes no counter except ``retries``."""
        return self.is_holders and set(self.counts) <= {"retries"} and not self.resets

    @property
    def loses(self) -> bool:
        """True if this transition records a lost attempt.

        If too many attempts are lost, the Instance becomes FAILED (STALE) instead.
        """
        return "lost" in self.counts


def _row(
    event: Event,
    sources: Iterable[State],
    target: State,
    actors: Iterable[Actor],
    row: Row,
    counts: tuple[str, ...] = (),
    resets: tuple[str, ...] = (),
    statistic: str = "",
) -> Transition:
    return Transition(
        event=event,
        sources=frozenset(sources),
        target=target,
        actors=frozenset(actors),
        row=row,
        counts=counts,
        resets=resets,
        statistic=statistic,
    )


_S, _E, _A, _R = State, Event, Actor, Row

#: All legal transitions.
TRANSITIONS = (
    _row(_E.ENQUEUE, [], _S.ACCEPTED, [_A.ANYONE], _R.CREATED),
    _row(_E.CLAIM, [_S.ACCEPTED], _S.SCHEDULED, [_A.DAEMON], _R.HELD, ("attempt",)),
    _row(_E.START, [_S.SCHEDULED], _S.RUNNING, [_A.HOLDER], _R.KEPT, statistic="started"),
    _row(_E.PAUSE, [_S.RUNNING], _S.PAUSED, [_A.HOLDER], _R.KEPT),
    _row(_E.RESUME, [_S.PAUSED], _S.RUNNING, [_A.HOLDER], _R.KEPT),
    _row(_E.FINISH, [_S.RUNNING], _S.FINISHED, [_A.HOLDER], _R.DELETED, statistic="finished"),
    _row(
        _E.RETRY,
        [_S.RUNNING],
        _S.ACCEPTED,
        [_A.HOLDER],
        _R.FREED,
        ("retries",),
        statistic="retried",
    ),
    _row(_E.DEFER, [_S.RUNNING], _S.ACCEPTED, [_A.HOLDER], _R.FREED, statistic="deferred"),
    _row(_E.RELEASE, CLAIMED, _S.ACCEPTED, [_A.HOLDER], _R.FREED),
    _row(
        _E.EXPIRE,
        [_S.SCHEDULED],
        _S.ACCEPTED,
        [_A.HOLDER, _A.SWEEPER],
        _R.FREED,
        ("lost",),
        statistic="lost",
    ),
    _row(
        _E.EXPIRE,
        [_S.RUNNING, _S.PAUSED],
        _S.ACCEPTED,
        [_A.HOLDER, _A.SWEEPER],
        _R.FREED,
        ("lost", "restarts"),
        statistic="lost",
    ),
    # Statistic has a column for each reason of a failure.
    _row(_E.FAIL, [_S.RUNNING], _S.FAILED, [_A.HOLDER], _R.DELETED),
    _row(_E.FAIL, [_S.ACCEPTED], _S.FAILED, [_A.ANYONE], _R.DELETED),
    _row(
        _E.REDRIVE,
        [_S.FAILED],
        _S.ACCEPTED,
        [_A.ANYONE],
        _R.CREATED,
        resets=("restarts", "retries", "lost"),
    ),
)

_BY_EVENT_AND_SOURCE = {
    (transition.event, source): transition
    for transition in TRANSITIONS
    for source in (transition.sources or {None})
}


def transition(event: Event, source: State | None) -> Transition | None:
    """Return the :class:`Transition` for ``event`` from ``source``, or None if it is illegal."""
    return _BY_EVENT_AND_SOURCE.get((event, source))


def events(fact: Callable[[Transition], bool]) -> frozenset[Event]:
    """Return the events of the transitions for which ``fact(transition)`` is true."""
    return frozenset(row.event for row in TRANSITIONS if fact(row))


def plain_transitions() -> dict[Event, Transition]:
    """Return the plain transition of each event for which it is the only one of the holder.

    The stores record these with one statement, and any other event with more.
    """
    of_holder = [row for row in TRANSITIONS if row.is_holders]
    events = [row.event for row in of_holder]
    return {row.event: row for row in of_holder if row.is_plain and events.count(row.event) == 1}


def allowed_events(source: State, actor: Actor | None = None) -> list[Event]:
    """Return the events that are legal from ``source``, in the order of the table.

    With ``actor``, return only those that this :class:`Actor` may cause.
    """
    return [
        row.event
        for row in TRANSITIONS
        if source in row.sources and (actor is None or actor in row.actors)
    ]


# If an attempt is lost before ATP saw it running, this is not the handler's fault. But such losses
# must not repeat for ever: ATP gives up an Instance after this many losses beyond ``max_restarts``.
UNEXPLAINED_LOSSES = 10


def is_stale(*, restarts: int, lost: int, max_restarts: int) -> bool:
    """Return True if more attempts of an Instance were lost than allowed.

    RFC 14: "once the allowed restart's count is exceeded the task is marked as FAILED".
    """
    return restarts > max_restarts or lost > max_restarts + UNEXPLAINED_LOSSES
