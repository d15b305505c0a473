"""The outcome of an attempt that raised: the class of the exception decides."""

from ... import messages
from ...authoring import logs, retrying
from ...authoring.logs import describe_exception, exception_message
from ...authoring.steps import Asleep
from ...exceptions import (
    Defer,
    Fatal,
    IncompatibleInputs,
    Interrupted,
    Retry,
    Throttled,
    Unavailable,
    Unusable,
    UnusableResult,
    dotted_path,
)
from ...operations.registry import registry
from ..shared.outcome import Kind, Outcome
from . import fingerprints

# The delay, in seconds, of a Defer without one: a subclass may not call Defer's constructor.
DEFERRED = 60.0


class LeftOpen(Exception):
    """The handler returned with a transaction open."""

    def __init__(self):
        super().__init__(messages.left_transaction_open())


def outcome_of(claimed, error):
    """Return the Outcome of an attempt that raised, and the exception to be reported, or None.

    To read the exception's attributes may run code of the application. So only its class
    decides, and attributes that cannot be read are left out.
    """
    spoken = logs.deciding_exception(error)
    for kind, ending in _ENDINGS.items():
        if logs.is_a(spoken, kind):
            return ending(claimed, spoken)
    outcome = _raised(claimed, error)
    return outcome, None if outcome.kind is Kind.UNAVAILABLE else error


def _asleep(claimed, asleep):
    return Outcome(Kind.DEFER, exception_message(asleep), asleep.after), None


def _interrupted(claimed, cut_short):
    message = exception_message(cut_short) or messages.interrupted()
    return Outcome(Kind.INTERRUPTED, message, **_cause(claimed, cut_short)), None


def _retried(claimed, asked):
    message = exception_message(asked) or messages.raised_retry()
    return Outcome(Kind.RETRY, message, logs.exception_delay(asked), **_cause(claimed, asked)), None


def _throttled(claimed, asked):
    """Return THROTTLED, or DEFER if the Type has no downstream."""
    if not registry.downstream(claimed.type):
        return _deferred(claimed, asked, messages.downstream_refused())
    message = exception_message(asked) or messages.downstream_refused()
    return Outcome(Kind.THROTTLED, message, logs.exception_delay(asked, "asked")), None


def _deferred(claimed, asked, default=None):
    message = exception_message(asked) or default or messages.raised_defer()
    after = logs.exception_delay(asked, is_from_zero=False)
    return Outcome(Kind.DEFER, message, DEFERRED if after is None else after), None


def _refused(claimed, refusal):
    message = exception_message(refusal) or messages.raised_fatal()
    return Outcome(Kind.FATAL, message, **_cause(claimed, refusal)), None


def _misfit(claimed, misfit):
    signature = registry.get(claimed.type).fingerprint
    return Outcome(Kind.MISFIT, exception_message(misfit), signature=signature), None


def _unusable(claimed, unusable):
    error = logs.exception_cause(unusable)
    return Outcome(Kind.FATAL, exception_message(error), **_cause(claimed, error)), error


def _unusable_result(claimed, unusable):
    return Outcome(Kind.FATAL, exception_message(unusable), **_cause(claimed, unusable)), unusable


def _left_open(claimed, left):
    return _raised(claimed, left, str(left)), left


# The first class that an exception is an instance of decides.
_ENDINGS = {
    Asleep: _asleep,
    Interrupted: _interrupted,
    Retry: _retried,
    Throttled: _throttled,
    Defer: _deferred,
    Fatal: _refused,
    IncompatibleInputs: _misfit,
    Unusable: _unusable,
    UnusableResult: _unusable_result,
    LeftOpen: _left_open,
}


def _raised(claimed, error, message=None):
    """Return the outcome of an unexpected exception; its Type decides whether to retry."""
    task_type = registry.get(claimed.type) if claimed.type in registry else None
    if registry.downstream(claimed.type) and retrying.is_downstream_failure(task_type, error):
        return _unavailable(error)
    message = describe_exception(error) if message is None else message
    why = retrying.why_not_retried(task_type, error) if task_type is not None else ""
    kind, text = (Kind.LAST, f"{message}\n({why})") if why else (Kind.ERROR, message)
    return Outcome(kind, text, **_cause(claimed, error))


def _cause(claimed, error):
    """Return the values of an Outcome that identify the exception and its cause."""
    return {"raised": dotted_path(error), "failed": fingerprints.failed(claimed.type, error)}


def _unavailable(error):
    """Return the outcome of an attempt whose downstream failed, which only the log reports."""
    spoken = logs.unwrap_single(error)
    if logs.is_a(spoken, Unavailable):
        message = exception_message(spoken) or messages.downstream_failed()
        after = logs.exception_delay(spoken, "asked")
        return Outcome(Kind.UNAVAILABLE, message, after, raised=dotted_path(spoken))
    return Outcome(Kind.UNAVAILABLE, describe_exception(error), raised=dotted_path(error))
