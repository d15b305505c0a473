"""Running a handler: from its inputs to how it ended."""

import contextlib
import logging
import sys
from dataclasses import replace
from functools import cache, partial

from asgiref.sync import iscoroutinefunction
from django.core.signals import got_request_exception

from ... import messages, middleware, signals
from ...authoring.logs import clear_variables, describe_exception, exception_trace
from ...conf import settings
from ...exceptions import CorruptData, IncompatibleInputs, NoResult, NotSerializable, Unusable
from ...operations.registry import registry
from ...payload import binding, codec
from ...payload.binding import adapt_arguments
from ..shared.outcome import DONE, Kind, Outcome
from ..sinks.bounded import own
from . import endings
from .coroutines import CoroutineCall
from .interruption import Never
from .response import respond

# Error reporters that hook logging see a handler's exceptions here.
logger = logging.getLogger("atp.worker")

_NEVER = Never()
# Of a function that is asked for with each of its attempts.
_is_coroutine_function = cache(iscoroutinefunction)


def run(claimed, context, transaction=None, interruption=_NEVER, is_left_open=bool):
    """Run the handler of a Task; always returns an :class:`Outcome`.

    With a ``transaction`` what it writes is committed together with its end. The handler
    is entered within ``interruption``, which may raise Interrupted in it. Afterwards
    ``is_left_open()`` tells whether it has left another transaction open.
    """
    if signals.handler_started.receivers:
        _tell(signals.handler_started, context=context, claimed=claimed)
    outcome, error = _ended(
        partial(_call, claimed, context, interruption, is_left_open), transaction
    )
    reported = None
    if error is not None:
        outcome, reported = endings.outcome_of(claimed, error)
        outcome = _without_secrets(outcome, context)
    try:
        if reported is not None:
            own(_log_raised, claimed, context, reported)
            own(_send_exception, reported)
        if signals.handler_ended.receivers:
            facts = {"context": context, "claimed": claimed, "exception": reported}
            _tell(signals.handler_ended, outcome=outcome, **facts)
    finally:
        if error is not None:
            clear_variables(error)
    return outcome


def _ended(call, transaction):
    """Return what the call returned, and the exception that it raised, or None.

    This function is part of the exception's traceback, and that of :func:`run` is not: it
    would keep the exception, and with it all that the handler had, until garbage is collected.
    """
    try:
        return (call() if transaction is None else transaction.run(call)), None
    except BaseException as raised:  # SystemExit too: a handler does not end its worker
        return None, raised


def _call(claimed, context, interruption, is_left_open):
    task_type = registry.handler_of(claimed.type)
    try:
        inputs = codec.decode(claimed.inputs)
        if _may_have_results(claimed):
            inputs = context.results.resolved(inputs)
        (args, kwargs), why = adapt_arguments(
            task_type.signatures, task_type.adapters, inputs, task_type.sensitive
        )
    except (CorruptData, NoResult) as error:
        raise Unusable from error
    if task_type.sensitive:
        context.secrets = binding.sensitive_texts({**kwargs, "*": list(args)}, task_type.sensitive)
    if why:
        raise IncompatibleInputs(messages.incompatible_inputs(settings.RELEASE, why))
    handler = task_type.handler
    if _is_coroutine_function(handler):
        handler = CoroutineCall(handler)
        interruption = interruption.by(handler.cancel)
    call = partial(handler, context, *args, **kwargs)
    # Most carry nothing, and this is done for each attempt.
    run = middleware.run if claimed.own is None else partial(_carried, claimed)
    with interruption:
        value = run(context, call)
    if is_left_open():
        raise endings.LeftOpen
    if value is None:
        return DONE
    try:
        return Outcome(Kind.FINISHED, response=respond(value, task_type, claimed))
    except NotSerializable as error:
        raise Unusable from error


def _without_secrets(outcome, context):
    """Return the outcome of an attempt that raised, with masks for sensitive inputs."""
    if not _has_secrets(context):
        return outcome
    failed = outcome.failed
    if failed is not None:
        failed = failed._replace(title=context.hidden(failed.title))
    return replace(outcome, message=context.hidden(outcome.message), failed=failed)


def _has_secrets(context):
    return context is not None and bool(context.secrets)


def _carried(claimed, context, call):
    with middleware.restore_context(claimed.carried):
        return middleware.run(context, call)


def _may_have_results(claimed):
    """Whether results of other nodes of its graph may stand in its inputs."""
    return codec.may_have_results(claimed.inputs)


def _log_raised(claimed, context, error):
    values = {"type": claimed.type, "instance": claimed.uuid, "attempt": claimed.attempt}
    extra = {"fact": "raised", "values": values}
    if _has_secrets(context):
        told = context.hidden(describe_exception(error))
        logger.error("%s %s raised\n%s", claimed.type, claimed.uuid, told, extra=extra)
        return
    logger.error(
        "%s %s raised",
        claimed.type,
        claimed.uuid,
        exc_info=(type(error), error, exception_trace(error)),
        extra=extra,
    )


def _send_exception(error):
    try:
        raise error
    except BaseException:  # receivers look at sys.exc_info()
        _tell(got_request_exception, request=None)


def _tell(signal, **facts):
    """Send a signal. Receivers look at exceptions of the application, and may raise anything."""
    try:
        signal.send_robust(sender=run, **facts)
    except BaseException:
        with contextlib.suppress(BaseException):
            logger.warning("a receiver raised %s", describe_exception(sys.exception()))
