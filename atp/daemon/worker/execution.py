"""Running a handler: from its inputs to how it ended."""

import logging
from functools import partial

from asgiref.sync import iscoroutinefunction
from django.core.signals import got_request_exception

from ... import signals
from ...authoring.log_text import clean, describe, shorten
from ...authoring.retrying import is_downstreams, why_not
from ...authoring.steps import Asleep
from ...conf import settings
from ...exceptions import (
    CorruptData,
    Defer,
    Fatal,
    Interrupted,
    NotSerializable,
    Retry,
    Throttled,
    Unavailable,
    UnusableResult,
)
from ...graphs.results import TAG, NoResult
from ...middleware import carrying, onion
from ...payload import codec
from ...payload.adapting import fitted
from ...protection import messages as downstream_words
from ...verbs.registry import registry
from ...words import attempt_messages, log_messages
from ...words.raised import Misfit, Unusable, path_of
from ..shared.outcome import DONE, Kind, Outcome
from ..sinks.bounded import own
from . import fingerprints
from .coroutines import CoroutineCall
from .interruption import Never
from .response import respond

# Error reporters that hook logging see a handler's exceptions here.
logger = logging.getLogger("atp.worker")

_NEVER = Never()


def run(claimed, context, transaction=None, interruption=_NEVER, is_left_open=bool):
    """Run the handler of a Task; always returns an :class:`Outcome`.

    With a ``transaction`` what it writes is committed together with its end. The handler
    is entered within ``interruption``, which may raise Interrupted in it. Afterwards
    ``is_left_open()`` tells whether it has left another transaction open.
    """
    signals.handler_started.send_robust(sender=run, context=context, claimed=claimed)
    outcome, error = _outcome(claimed, context, transaction, interruption, is_left_open)
    if error is not None:
        own(_log_raised, claimed, error)
        own(_send_exception, error)
    facts = {"context": context, "claimed": claimed, "exception": error, "outcome": outcome}
    signals.handler_ended.send_robust(sender=run, **facts)
    return outcome


def _outcome(claimed, context, transaction, interruption, is_left_open):
    """Run the handler; returns the Outcome, and the exception to be reported, or None."""
    call = partial(_call, claimed, context, interruption, is_left_open)
    try:
        return (call() if transaction is None else transaction.run(call)), None
    except Asleep as asleep:
        return Outcome(Kind.DEFER, str(asleep), asleep.after), None
    except Interrupted as cut_short:
        message = _words(cut_short) or attempt_messages.interrupted()
        return Outcome(Kind.INTERRUPTED, message, **_cause(claimed, cut_short)), None
    except Retry as asked:
        message = _words(asked) or attempt_messages.asked_retry()
        return Outcome(Kind.RETRY, message, asked.after, **_cause(claimed, asked)), None
    except Defer as asked:
        return _deferred(claimed, asked), None
    except Fatal as refusal:
        message = _words(refusal) or attempt_messages.said_fatal()
        return Outcome(Kind.FATAL, message, **_cause(claimed, refusal)), None
    except Misfit as misfit:
        signature = registry.get(claimed.type).fingerprint
        return Outcome(Kind.MISFIT, _words(misfit), signature=signature), None
    except Unusable as unusable:
        error = unusable.__cause__
        return Outcome(Kind.FATAL, _words(error), **_cause(claimed, error)), error
    except UnusableResult as unusable:
        return Outcome(Kind.FATAL, _words(unusable), **_cause(claimed, unusable)), unusable
    except LeftOpen as left:
        return _raised(claimed, left, str(left)), left
    except BaseException as raised:  # SystemExit too: a handler does not end its worker
        outcome = _raised(claimed, raised)
        return outcome, None if outcome.kind is Kind.UNAVAILABLE else raised


class LeftOpen(Exception):
    """The handler returned with a transaction open."""

    def __init__(self):
        super().__init__(attempt_messages.left_transaction_open())


def _call(claimed, context, interruption, is_left_open):
    task_type = registry.handler_of(claimed.type)
    try:
        inputs = codec.decode(claimed.inputs)
        if _may_have_results(claimed):
            inputs = context.results.resolved(inputs)
        (args, kwargs), why = fitted(task_type.signatures, task_type.adapters, inputs)
    except (CorruptData, NoResult) as error:
        raise Unusable from error
    if why:
        raise Misfit(log_messages.misfit(settings.RELEASE, why))
    handler = task_type.handler
    if iscoroutinefunction(handler):
        handler = CoroutineCall(handler)
        interruption = interruption.by(handler.cancel)
    with interruption, carrying.restored(claimed.carried):
        value = onion.run(context, partial(handler, context, *args, **kwargs))
    if is_left_open():
        raise LeftOpen
    if value is None:
        return DONE
    try:
        return Outcome(Kind.FINISHED, response=respond(value, task_type, claimed))
    except NotSerializable as error:
        raise Unusable from error


def _deferred(claimed, asked):
    """Return the outcome of an attempt that asked to be deferred, or whose downstream refused."""
    if not isinstance(asked, Throttled):
        message = _words(asked) or attempt_messages.asked_defer()
        return Outcome(Kind.DEFER, message, asked.after)
    message = _words(asked) or downstream_words.refused()
    if registry.downstream(claimed.type):
        return Outcome(Kind.THROTTLED, message, asked.asked)
    return Outcome(Kind.DEFER, message, asked.after)


def _raised(claimed, error, message=None):
    """Return the outcome of an attempt that raised: whether its Type wants a retry for that."""
    if registry.downstream(claimed.type) and is_downstreams(registry.get(claimed.type), error):
        return _unavailable(error)
    message = describe(error) if message is None else message
    why = why_not(registry.get(claimed.type), error) if claimed.type in registry else ""
    kind, words = (Kind.LAST, f"{message}\n({why})") if why else (Kind.ERROR, message)
    return Outcome(kind, words, **_cause(claimed, error))


def _cause(claimed, error):
    """Return the facts of an outcome that tell which exception it was, and which cause."""
    return {"raised": path_of(error), "failed": fingerprints.failed(claimed.type, error)}


def _unavailable(error):
    """Return the outcome of an attempt whose downstream failed: nobody is told but the log."""
    if isinstance(error, Unavailable):
        message = _words(error) or downstream_words.failed()
        return Outcome(Kind.UNAVAILABLE, message, error.asked, raised=path_of(error))
    return Outcome(Kind.UNAVAILABLE, describe(error), raised=path_of(error))


def _may_have_results(claimed):
    """Whether results of other nodes of its graph may stand in its inputs."""
    return TAG in claimed.data or claimed.format != codec.JSON


def _log_raised(claimed, error):
    values = {"type": claimed.type, "instance": claimed.uuid, "attempt": claimed.attempt}
    logger.error(
        "%s %s raised",
        claimed.type,
        claimed.uuid,
        exc_info=error,
        extra={"fact": "raised", "values": values},
    )


def _send_exception(error):
    try:
        raise error
    except BaseException:  # receivers look at sys.exc_info()
        got_request_exception.send_robust(sender=run, request=None)


def _words(error):
    return shorten(clean(str(error)))
