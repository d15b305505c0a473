"""The outcome of an attempt: the worker reports it, and the dispatcher turns it into a Move."""

import logging
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from .. import messages, states
from ..authoring import retrying
from ..conf import settings
from ..models import MAX_DETAIL, incompatible_detail
from ..operations.registry import registry
from ..states import Event, Reason
from ..store.common.incompatible import FIRST_MISFIT
from ..store.failures import TIMEOUT
from ..store.values import Attempt, Failed, Move, ResponseData
from ..text import as_timedelta

# An attempt that has lost its connection to the database is tried again after CUT_DELAY; the
# delay grows with each attempt.
CUT_DELAY, LONGEST_CUT_DELAY = timedelta(seconds=1), timedelta(seconds=30)
# A Task that a downstream has refused waits at least this long, so that it does not spin.
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
    # A coroutine that was cancelled in its loop after its time-out.
    TIMED_OUT = "timed out"
    # For transactional Types alone. CONCLUDED: the worker has committed the end. GONE: the
    # Task was taken away. CUT: the connection was lost, perhaps during the commit.
    # SHUT_OUT: there was no connection, so the handler was not entered.
    CONCLUDED = "concluded"
    GONE = "gone"
    CUT = "cut"
    SHUT_OUT = "shut out"


# The outcomes that the worker itself has settled with the database.
WORKERS_OWN = frozenset({Kind.CONCLUDED, Kind.GONE, Kind.CUT, Kind.SHUT_OUT})

# The outcomes that report trouble of a downstream, which decides when the attempt is due again.
DOWNSTREAMS = frozenset({Kind.THROTTLED, Kind.UNAVAILABLE})

# The outcomes of a handler that wants to be called again.
PUT_OFF = frozenset({Kind.RETRY, Kind.DEFER}) | DOWNSTREAMS

# The possible outcomes of an interrupted handler: it or a library may turn the exception into
# another error.
CUT_SHORT = frozenset({Kind.INTERRUPTED, Kind.TIMED_OUT, Kind.ERROR, Kind.LAST})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt. ``after`` is the delay in seconds that the handler asked for.

    ``raised`` is the dotted path of the class of the handler's exception, if it raised one.
    ``signature`` is the signature of a handler that does not accept the inputs. ``failed`` is
    the cause to be recorded for the exception if the Instance fails with it.
    """

    kind: Kind
    message: str = ""
    after: float | None = None
    response: ResponseData | None = None
    raised: str = ""
    signature: str = ""
    failed: Failed | None = None


# The outcome of a handler that returned None.
DONE = Outcome(Kind.FINISHED)


def move(outcome: Outcome, attempt: Attempt, **facts: Any) -> Move:
    """Return the :class:`Move` for an outcome; whether it retries depends on the retries left.

    ``facts`` are the Move's time, started and who.
    """
    facts |= _facts(attempt)
    if outcome.kind in (Kind.FINISHED, Kind.CONCLUDED, Kind.GONE):
        kept = registry.keeps(attempt.type)
        return Move(event=Event.FINISH, response=outcome.response, kept=kept, **facts)
    if outcome.kind in (Kind.CUT, Kind.SHUT_OUT):
        return _cut(outcome, attempt, facts)
    if outcome.kind is Kind.TIMED_OUT:
        return Move(
            event=Event.EXPIRE,
            message=outcome.message,
            level=logging.WARNING,
            detail=TIMEOUT,
            **facts,
        )
    if outcome.kind is Kind.DEFER:
        delay = timedelta(seconds=outcome.after)  # type: ignore[arg-type]
        return Move(event=Event.DEFER, message=outcome.message, delay=delay, **facts)
    if outcome.kind in DOWNSTREAMS:
        told: dict[str, Any] = {"message": outcome.message, "level": logging.WARNING}
        delay = max(LEAST_DELAY, timedelta(seconds=outcome.after or 0.0))
        return Move(event=Event.DEFER, detail=outcome.kind.value, delay=delay, **told, **facts)
    if outcome.kind is Kind.MISFIT:
        # The store reads the Instance's log, and makes the delay longer or fails the Instance.
        detail = incompatible_detail(outcome.signature)
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
    if outcome.kind is not Kind.LAST and attempt.retries < attempt.max_retries:
        return Move(
            event=Event.RETRY,
            message=outcome.message,
            level=logging.WARNING,
            delay=_delay(outcome, attempt),
            detail=outcome.raised[:MAX_DETAIL],
            **facts,
        )
    return Move(
        event=Event.FAIL,
        reason=Reason.ERROR,
        message=outcome.message + _why_no_more(outcome, attempt),
        level=logging.ERROR,
        detail=outcome.raised[:MAX_DETAIL],
        failed=outcome.failed,
        **facts,
    )


def cancelled(why: str, attempt: Attempt, outcome: Outcome | None = None, **facts: Any) -> Move:
    """Return the :class:`Move` of an attempt that ends because somebody asked it to end.

    If its handler raised an error of its own, the message has that error too.
    """
    if outcome is not None and outcome.kind in (Kind.ERROR, Kind.LAST):
        why = f"{why}\n{outcome.message}"
    facts |= _facts(attempt)
    return Move(
        event=Event.FAIL, reason=Reason.CANCELLED, message=why, level=logging.WARNING, **facts
    )


def killed(asked: str, why: str, attempt: Attempt, left: int) -> str:
    """Return the message of an attempt whose worker died after the attempt was asked to end.

    ``asked`` is the reason for the ask, ``why`` the reason for the death. ``left`` is the
    number of processes that the worker had started and that were killed with it.
    """
    grace = cancel_grace(attempt.type)
    how = messages.killed_after_grace(grace) if why == asked else why
    if left:
        how += f", {messages.with_processes(left)}"
    return f"{asked}: {how}"


def cancel_grace(identifier: str) -> float:
    """Return the grace of a cancelled attempt, in seconds: that of its Type or of the setting."""
    given = registry.get(identifier).cancel_grace if identifier in registry else None
    return settings.CANCEL_GRACE if given is None else as_timedelta(given).total_seconds()


def lost(why: str, attempt: Attempt, **facts: Any) -> Move:
    """Return the :class:`Move` of an attempt whose worker died; its detail is the cause."""
    facts |= _facts(attempt)
    return Move(event=Event.EXPIRE, message=why, level=logging.WARNING, **facts)


def _facts(attempt: Attempt) -> dict[str, Any]:
    return {
        "instance": attempt.instance,
        "attempt": attempt.number,
        "transactional": registry.is_transactional(attempt.type),
    }


def _cut(outcome: Outcome, attempt: Attempt, facts: dict[str, Any]) -> Move:
    """Return the Move of an attempt without a connection: DEFER, or EXPIRE after too many."""
    delay = min(CUT_DELAY * attempt.number, LONGEST_CUT_DELAY)
    facts |= {"message": outcome.message, "level": logging.WARNING, "delay": delay}
    often = attempt.number > attempt.parameters.max_restarts + states.UNEXPLAINED_LOSSES
    if often and outcome.kind is Kind.CUT:
        return Move(event=Event.EXPIRE, **facts)
    return Move(event=Event.DEFER, **facts)


def _why_no_more(outcome: Outcome, attempt: Attempt) -> str:
    if outcome.kind is Kind.LAST:
        return ""  # its message says that
    if attempt.max_retries:
        return " " + messages.retries_used_up(attempt.retries, attempt.max_retries)
    # The message mentions that no retry is allowed only if the handler asked for one.
    return f" {messages.no_retries()}" if outcome.kind is Kind.RETRY else ""


def _delay(outcome: Outcome, attempt: Attempt) -> timedelta:
    if outcome.after is not None:
        return timedelta(seconds=outcome.after)
    steps = registry.backoff_steps(attempt.type)
    if steps:
        return retrying.step_delay(attempt.retries + 1, steps)
    allowed = attempt.parameters
    return retrying.retry_delay(
        attempt.retries + 1, first=allowed.backoff, maximum=allowed.backoff_max
    )
