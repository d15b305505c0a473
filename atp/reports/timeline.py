"""Read the history of an Instance, attempt by attempt, from its log."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

from .. import text
from ..models import ASKED, Instance, Kind, LogRecord
from ..states import NOT_RUNNING, TERMINAL, Event, State, events
from .documents import Document

# The maximum number of records that are read: an Instance may have very many attempts.
MOST = 400
# Events after which the attempt continues.
_CONTINUING = events(lambda transition: transition.continues)


@dataclass(frozen=True, kw_only=True)
class StateSpan:
    """A period in which an Instance was in ``state``; ``end`` is None if the period continues."""

    state: str
    begin: datetime
    end: datetime | None


@dataclass(frozen=True, kw_only=True)
class PastAttempt:
    """One attempt of an Instance, with the times of its claim, its start and its end.

    ``started`` is None if the attempt did not start. ``ended``, ``event``, ``state`` and
    ``message`` describe the transition that ended the attempt; the first three are None while the
    attempt continues. ``who`` is the daemon that claimed the Instance. ``paused`` is the total time
    of the pauses.
    """

    number: int
    claimed: datetime
    who: str
    started: datetime | None = None
    ended: datetime | None = None
    event: str | None = None
    state: str | None = None
    message: str = ""
    paused: timedelta = timedelta()

    @property
    def ran(self) -> timedelta | None:
        """The run time without pauses; None if the attempt has not started or not ended."""
        if self.started is None or self.ended is None:
            return None
        return self.ended - self.started - self.paused


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The history of an Instance: periods without gaps, and attempts, both oldest first.

    ``is_whole`` is True if the history begins with the enqueue, and False if older transitions were
    too many to read.
    """

    spans: tuple[StateSpan, ...]
    attempts: tuple[PastAttempt, ...]
    is_whole: bool


def run_time_without_pauses(line: Timeline, now: datetime) -> timedelta | None:
    """Return the run time of the last attempt without pauses; None if the attempt never paused."""
    last = line.attempts[-1] if line.attempts else None
    pauses = [span for span in line.spans if span.state == State.PAUSED]
    if last is None or last.started is None or not pauses:
        return None
    until = last.ended or now
    paused = sum(
        ((p.end or until) - p.begin for p in pauses if p.begin >= last.started), timedelta()
    )
    return until - last.started - paused if paused else None


def attempt_duration(instance: Document, now: datetime) -> timedelta | None:
    """Return how long the last attempt of an Instance document ran, or has run so far.

    Return None if this is unknown, for example because the Instance waits.
    """
    started = instance["started"]
    waits = instance["state"] in (State.ACCEPTED, State.SCHEDULED)
    if started is None or waits or instance["reason"] in NOT_RUNNING:
        return None
    return max((instance["finished"] or now) - started, timedelta())


def read_history(instance: Instance) -> list[LogRecord]:
    """Return the newest transitions, hooks and stacks of an Instance, newest first, up to MOST + 1.

    If there are more than MOST, the history is not whole.
    """
    records = LogRecord.objects.using(instance._state.db).of_instance(instance)
    kinds = [*Event.values, Kind.HOOK, Kind.STACK]
    return list(records.filter(kind__in=kinds).reverse()[: MOST + 1])


def timeline(instance: Instance, history: Sequence[LogRecord] | None = None) -> Timeline:
    """Return the :class:`Timeline` of an Instance.

    ``history`` is what :func:`read_history` returns, or the whole log, newest first, if it is
    shorter.
    """
    latest = read_history(instance) if history is None else history
    transitions = [record for record in latest[:MOST] if record.event][::-1]
    return Timeline(
        spans=tuple(_spans(transitions)),
        attempts=tuple(_attempts(transitions)),
        is_whole=len(latest) <= MOST,
    )


def _spans(transitions: Sequence[LogRecord]) -> Iterator[StateSpan]:
    for record, following in zip_longest(transitions, transitions[1:]):
        if following is not None:
            yield StateSpan(state=record.state, begin=record.time, end=following.time)
        elif record.state not in TERMINAL:
            yield StateSpan(state=record.state, begin=record.time, end=None)


def _attempts(transitions: Sequence[LogRecord]) -> Iterator[PastAttempt]:
    """Yield each attempt from its claim to the transition that ended the attempt, if any."""
    facts: Any = None
    since: Any = None
    for before, record in zip([None, *transitions], transitions, strict=False):
        if record.event == Event.CLAIM:
            if facts is not None:
                yield PastAttempt(**facts)
            facts = {"number": record.attempt, "claimed": record.time, "who": record.who}
            facts["paused"] = timedelta()
        elif facts is None or record.attempt != facts["number"] or "ended" in facts:
            continue
        elif record.event == Event.START:
            facts["started"] = record.time
        elif record.event == Event.PAUSE:
            since = record.time
        elif record.event == Event.RESUME:
            facts["paused"] += record.time - since
        elif record.event not in _CONTINUING:
            if before is not None and before.event == Event.PAUSE:
                facts["paused"] += record.time - since
            facts |= {
                "ended": record.time,
                "event": record.event,
                "state": record.state,
                "message": record.message,
            }
    if facts is not None:
        yield PastAttempt(**facts)


# The stacks of attempts in the log: the newest one of an Instance, for a page or a terminal.

# A stack of a running attempt that is younger is shown; others are folded.
_FRESH = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class ShownStack:
    """A stack from the log.

    ``facts`` are sentences about the process and its database sessions. ``frames`` is the text of
    faulthandler without the frames of ATP around the handler; it is empty if the stack could not be
    taken. ``is_fresh`` is True if the stack may still say where the Instance stands.
    ``is_before_kill`` is True if the stack was taken before its worker was killed, and False if
    somebody asked for it.
    """

    time: datetime
    attempt: int | None
    facts: list[str]
    frames: str
    is_fresh: bool
    is_before_kill: bool


def newest_stack(
    instance: Instance, history: Iterable[LogRecord], now: datetime
) -> ShownStack | None:
    """Return the newest stack in the log of an Instance, or None.

    ``history`` is what :func:`read_history` returns, or the whole log, newest first.
    """
    found = next((record for record in history if record.kind == Kind.STACK), None)
    return None if found is None else show_stack(found, instance, now)


def show_stack(record: LogRecord, instance: Instance, now: datetime) -> ShownStack:
    """Return the stack in a LogRecord of kind STACK."""
    facts, _, frames = record.message.partition("\n\n")
    is_current = record.attempt == instance.attempt and instance.is_under_way
    return ShownStack(
        time=record.time,
        attempt=record.attempt,
        facts=facts.splitlines(),
        frames=text.handler_frames(frames),
        is_fresh=is_current and now - record.time < _FRESH,
        is_before_kill=record.detail != ASKED,
    )
