"""The outcome of an attempt. The worker says it, the dispatcher turns it into a move."""

import logging
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from ... import states
from ...conf import settings
from ...rows.log import MAX_DETAIL, misfit
from ...states import Event, Reason
from ...store.misfits import FIRST_MISFIT
from ...store.values import Failed, Move, ResponseData
from ...verbs.registry import registry
from ...words import attempt_messages, backoff
from ...words.hints import seconds

# An attempt that has lost its connection to the database is tried again after this, and
# ever later.
CUT_DELAY, LONGEST_CUT_DELAY = timedelta(seconds=1), timedelta(seconds=30)
# What a downstream has refused is due no sooner, or it would go round and round.
LEAST_DELAY = timedelta(seconds=0.5)


class Kind(Enum):
    FINISHED = "finished"
    RETRY = "retry"
    DEFER = "defer"
    # The downstream of the Type refuses calls, or fails.
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    ERROR = "error"
    # An error for which the Type wants no retry.
    LAST = "last"
    FATAL = "fatal"
    # The inputs do not fit the handler here: another daemon may have one that takes them.
    MISFIT = "misfit"
    INTERRUPTED = "interrupted"
    # Only for transactional Types: its worker has committed the end; its Task was taken
    # away; its connection was lost, and it may be unknown whether it was committed; or
    # there was no connection to begin with, so that its handler was not entered.
    CONCLUDED = "concluded"
    GONE = "gone"
    CUT = "cut"
    SHUT_OUT = "shut out"


# The outcomes that a worker decides with the database itself.
WORKERS_OWN = frozenset({Kind.CONCLUDED, Kind.GONE, Kind.CUT, Kind.SHUT_OUT})

# The outcomes that tell of a downstream; it says when the attempt is due again.
DOWNSTREAMS = frozenset({Kind.THROTTLED, Kind.UNAVAILABLE})

# The outcomes of a handler that wants to be called again.
PUT_OFF = frozenset({Kind.RETRY, Kind.DEFER}) | DOWNSTREAMS

# The outcomes of an interrupted handler, whatever it or a library made of the exception.
CUT_SHORT = frozenset({Kind.INTERRUPTED, Kind.ERROR, Kind.LAST})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a handler. ``after`` is the delay in seconds that was asked for.

    ``raised`` is the dotted path of the class of the exception that it raised, if any;
    ``signature`` is that of a handler that does not take the inputs, ``failed`` is the cause
    that the exception stands for, should the Instance end with it.
    """

    kind: Kind
    message: str = ""
    after: float | None = None
    response: ResponseData | None = None
    raised: str = ""
    signature: str = ""
    failed: Failed | None = None


# A handler that returned, and nothing.
DONE = Outcome(Kind.FINISHED)


def move(outcome, claimed, **facts):
    """Return the :class:`Move` that follows from an outcome and the Instance's budget.

    ``facts`` are the Move's time, started and who.
    """
    facts |= _facts(claimed)
    if outcome.kind in (Kind.FINISHED, Kind.CONCLUDED, Kind.GONE):
        kept = registry.keeps(claimed.type)
        return Move(event=Event.FINISH, response=outcome.response, kept=kept, **facts)
    if outcome.kind in (Kind.CUT, Kind.SHUT_OUT):
        return _cut(outcome, claimed, facts)
    if outcome.kind is Kind.DEFER:
        delay = timedelta(seconds=outcome.after)
        return Move(event=Event.DEFER, message=outcome.message, delay=delay, **facts)
    if outcome.kind in DOWNSTREAMS:
        told = {"message": outcome.message, "level": logging.WARNING}
        delay = max(LEAST_DELAY, timedelta(seconds=outcome.after or 0.0))
        return Move(event=Event.DEFER, detail=outcome.kind.value, delay=delay, **told, **facts)
    if outcome.kind is Kind.MISFIT:
        # The store makes the delay longer, or fails it, by what its log tells.
        detail = misfit(outcome.signature)
        told = {"message": outcome.message, "level": logging.WARNING, "detail": detail}
        return Move(event=Event.DEFER, delay=FIRST_MISFIT, **told, **facts)
    if outcome.kind is Kind.FATAL:
        return Move(
            event=Event.FAIL,
            reason=Reason.FATAL,
            message=outcome.message,
            level=logging.ERROR,
            detail=outcome.raised[:MAX_DETAIL],
            failed=outcome.failed,
            **facts,
        )
    if outcome.kind is not Kind.LAST and claimed.retries < claimed.max_retries:
        return Move(
            event=Event.RETRY,
            message=outcome.message,
            level=logging.WARNING,
            delay=_delay(outcome, claimed),
            detail=outcome.raised[:MAX_DETAIL],
            **facts,
        )
    return Move(
        event=Event.FAIL,
        reason=Reason.ERROR,
        message=outcome.message + _why_no_more(outcome, claimed),
        level=logging.ERROR,
        detail=outcome.raised[:MAX_DETAIL],
        failed=outcome.failed,
        **facts,
    )


def cancelled(why, claimed, outcome=None, **facts):
    """Return the :class:`Move` of an attempt that ends because somebody asked for that.

    Where its handler said something else instead of being interrupted, that is told too.
    """
    if outcome is not None and outcome.kind in (Kind.ERROR, Kind.LAST):
        why = f"{why}\n{outcome.message}"
    facts |= _facts(claimed)
    return Move(
        event=Event.FAIL, reason=Reason.CANCELLED, message=why, level=logging.WARNING, **facts
    )


def killed(asked, why, claimed, left):
    """Return the message of an attempt that was ``asked`` to end, and whose worker died.

    ``why`` is the reason of that death; ``left`` is the number of processes that it had
    started and that were ended with it.
    """
    grace = cancel_grace(claimed.type)
    how = attempt_messages.killed_after_grace(grace) if why == asked else why
    if left:
        how += f", {attempt_messages.with_processes(left)}"
    return f"{asked}: {how}"


def cancel_grace(identifier):
    """Return how long one that is cancelled gets, in seconds: what its Type or the setting says."""
    given = registry.get(identifier).cancel_grace if identifier in registry else None
    return settings.CANCEL_GRACE if given is None else seconds(given).total_seconds()


def lost(why, claimed, **facts):
    """Return the :class:`Move` of an attempt whose worker died; its detail is the cause."""
    facts |= _facts(claimed)
    return Move(event=Event.EXPIRE, message=why, level=logging.WARNING, **facts)


def _facts(claimed):
    return {
        "instance": claimed.instance,
        "attempt": claimed.attempt,
        "transactional": registry.is_transactional(claimed.type),
    }


def _cut(outcome, claimed, facts):
    """A lost connection is nobody's fault, unless it goes on for ever."""
    delay = min(CUT_DELAY * claimed.attempt, LONGEST_CUT_DELAY)
    facts |= {"message": outcome.message, "level": logging.WARNING, "delay": delay}
    often = claimed.attempt > claimed.parameters.max_restarts + states.UNEXPLAINED_LOSSES
    if often and outcome.kind is Kind.CUT:
        return Move(event=Event.EXPIRE, **facts)
    return Move(event=Event.DEFER, **facts)


def _why_no_more(outcome, claimed):
    if outcome.kind is Kind.LAST:
        return ""  # its message says that
    if claimed.max_retries:
        return " " + attempt_messages.retries_used_up(claimed.retries, claimed.max_retries)
    # To ask for a retry where none is allowed is worth a word; to raise is not.
    return f" {attempt_messages.no_retries()}" if outcome.kind is Kind.RETRY else ""


def _delay(outcome, claimed):
    if outcome.after is not None:
        return timedelta(seconds=outcome.after)
    steps = registry.backoff_steps(claimed.type)
    if steps:
        return backoff.step(claimed.retries + 1, steps)
    allowed = claimed.parameters
    return backoff.delay(claimed.retries + 1, first=allowed.backoff, maximum=allowed.backoff_max)
