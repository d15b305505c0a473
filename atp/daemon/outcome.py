"""How an attempt ended: said by the worker, turned into a change by the dispatcher."""

import logging
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from .. import backoff, states
from ..conf import seconds, settings
from ..registry import registry
from ..states import Event, Reason
from ..store.values import Change, ResponseData

# An attempt that has lost its connection to the database is tried again after this, and
# ever later.
CUT_DELAY, LONGEST_CUT_DELAY = timedelta(seconds=1), timedelta(seconds=30)


class Kind(Enum):
    FINISHED = "finished"
    RETRY = "retry"
    DEFER = "defer"
    ERROR = "error"
    FATAL = "fatal"
    INTERRUPTED = "interrupted"
    # Of transactional Types: its worker has committed the end; its Task was taken
    # away; its connection was lost, and whether it was committed may be unknown; or
    # there was none to begin with, so that its handler was not entered.
    CONCLUDED = "concluded"
    GONE = "gone"
    CUT = "cut"
    SHUT_OUT = "shut out"


# What a worker decides with the database itself.
WORKERS_OWN = frozenset({Kind.CONCLUDED, Kind.GONE, Kind.CUT, Kind.SHUT_OUT})

# How a handler ends that was interrupted, whatever it or a library made of that.
CUT_SHORT = frozenset({Kind.INTERRUPTED, Kind.ERROR})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a handler ended. ``after`` is the delay in seconds that was asked for."""

    kind: Kind
    message: str = ""
    after: float | None = None
    response: ResponseData | None = None


# A handler that returned, and nothing.
DONE = Outcome(Kind.FINISHED)


def change(outcome, claimed, **facts):
    """Return the :class:`Change` that follows from an outcome and the Instance's budget.

    ``facts`` are the Change's time, started and who.
    """
    facts |= _facts(claimed)
    if outcome.kind in (Kind.FINISHED, Kind.CONCLUDED, Kind.GONE):
        return Change(event=Event.FINISH, response=outcome.response, **facts)
    if outcome.kind in (Kind.CUT, Kind.SHUT_OUT):
        return _cut(outcome, claimed, facts)
    if outcome.kind is Kind.DEFER:
        delay = timedelta(seconds=outcome.after)
        return Change(event=Event.DEFER, message=outcome.message, delay=delay, **facts)
    if outcome.kind is Kind.FATAL:
        return Change(
            event=Event.FAIL,
            reason=Reason.FATAL,
            message=outcome.message,
            level=logging.ERROR,
            **facts,
        )
    if claimed.retries < claimed.parameters.max_retries:
        return Change(
            event=Event.RETRY,
            message=outcome.message,
            level=logging.WARNING,
            delay=_delay(outcome, claimed),
            **facts,
        )
    return Change(
        event=Event.FAIL,
        reason=Reason.ERROR,
        message=outcome.message + _why_no_more(outcome, claimed),
        level=logging.ERROR,
        **facts,
    )


def cancelled(why, claimed, outcome=None, **facts):
    """Return the :class:`Change` of an attempt that ends because somebody asked for that.

    Where its handler said something else instead of being interrupted, that is told too.
    """
    if outcome is not None and outcome.kind is Kind.ERROR:
        why = f"{why}\n{outcome.message}"
    facts |= _facts(claimed)
    return Change(
        event=Event.FAIL, reason=Reason.CANCELLED, message=why, level=logging.WARNING, **facts
    )


def killed(asked, why, claimed, left):
    """Return what is told of an attempt that was ``asked`` to end, and whose worker died.

    ``why`` it died; so many processes that it had ``left`` were ended with it.
    """
    grace = cancel_grace(claimed.type)
    how = f"it did not end in its grace of {grace:g} s, and was killed" if why == asked else why
    if left:
        how += f", with {left} process{'es' if left > 1 else ''} that it had started"
    return f"{asked}: {how}"


def cancel_grace(identifier):
    """Return how long one that is cancelled gets, in seconds: what its Type or the setting says."""
    given = registry.get(identifier).cancel_grace if identifier in registry else None
    return settings.CANCEL_GRACE if given is None else seconds(given).total_seconds()


def lost(why, claimed, **facts):
    """Return the :class:`Change` of an attempt whose worker died."""
    facts |= _facts(claimed)
    return Change(event=Event.EXPIRE, message=why, level=logging.WARNING, **facts)


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
        return Change(event=Event.EXPIRE, **facts)
    return Change(event=Event.DEFER, **facts)


def _why_no_more(outcome, claimed):
    if claimed.parameters.max_retries:
        return f" (retries used up: {claimed.retries} of {claimed.parameters.max_retries})"
    # To ask for a retry where none is allowed is worth a word; to raise is not.
    return " (its Type allows no retries: max_retries is 0)" if outcome.kind is Kind.RETRY else ""


def _delay(outcome, claimed):
    if outcome.after is not None:
        return timedelta(seconds=outcome.after)
    allowed = claimed.parameters
    return backoff.delay(claimed.retries + 1, first=allowed.backoff, maximum=allowed.backoff_max)
