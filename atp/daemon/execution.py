"""Running a handler: from its inputs to how it ended."""

import logging
from contextlib import nullcontext
from functools import partial

from django.core.signals import got_request_exception

from .. import binding, codec, signals
from ..context import clean, describe, shorten
from ..exceptions import CorruptData, Defer, Fatal, Interrupted, NotSerializable, Retry
from ..registry import registry
from .outcome import DONE, Kind, Outcome
from .response import respond

# Error reporters that hook logging see a handler's exceptions here.
logger = logging.getLogger("atp.worker")

_NEVER = nullcontext()


def run(claimed, context, transaction=None, interruption=_NEVER):
    """Run the handler of a Task; always returns an :class:`Outcome`.

    With a ``transaction`` what it writes is committed together with its end. The handler
    is entered within ``interruption``, which may raise Interrupted in it.
    """
    signals.handler_started.send_robust(sender=run, context=context)
    error = None
    try:
        if transaction is None:
            return _call(claimed, context, interruption)
        return transaction.run(partial(_call, claimed, context, interruption))
    except Interrupted:
        return Outcome(Kind.INTERRUPTED, "the handler was interrupted")
    except Retry as asked:
        return Outcome(Kind.RETRY, _words(asked) or "the handler asked to try again", asked.after)
    except Defer as asked:
        return Outcome(Kind.DEFER, _words(asked) or "the handler asked to be deferred", asked.after)
    except Fatal as refusal:
        return Outcome(Kind.FATAL, _words(refusal) or "the handler said Fatal")
    except _Unusable as unusable:
        error = unusable.__cause__
        return Outcome(Kind.FATAL, _words(error))
    except BaseException as raised:  # SystemExit too: a handler does not end its worker
        error = raised
        return Outcome(Kind.ERROR, describe(raised))
    finally:
        if error is not None:
            _tell_error_reporters(claimed, error)
        signals.handler_ended.send_robust(sender=run, context=context, exception=error)


class _Unusable(Exception):
    """Inputs that cannot be read, or a response that cannot be stored: the same next time."""


def _call(claimed, context, interruption):
    task_type = registry.handler_of(claimed.type)
    try:
        args, kwargs = binding.unbind(codec.decode(claimed.inputs))
    except CorruptData as error:
        raise _Unusable from error
    with interruption:
        value = task_type.handler(context, *args, **kwargs)
    if value is None:
        return DONE
    try:
        return Outcome(Kind.FINISHED, response=respond(value, task_type, claimed))
    except NotSerializable as error:
        raise _Unusable from error


def _tell_error_reporters(claimed, error):
    values = {"type": claimed.type, "instance": claimed.uuid, "attempt": claimed.attempt}
    logger.error(
        "%s %s raised",
        claimed.type,
        claimed.uuid,
        exc_info=error,
        extra={"fact": "raised", "values": values},
    )
    try:
        raise error
    except BaseException:  # receivers look at sys.exc_info()
        got_request_exception.send_robust(sender=run, request=None)


def _words(error):
    return shorten(clean(str(error)))
