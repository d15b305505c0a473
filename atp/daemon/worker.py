"""A worker: takes one Task after another from its channel and runs the handler."""

import logging
import os
import shutil
import time

from django.core.signals import got_request_exception
from django.db import connections, reset_queries

from .. import binding, codec, signals
from ..conf import settings
from ..context import Context, LogCapture, clean, describe, shorten
from ..exceptions import CorruptData, Fatal, Interrupted, NotSerializable, Retry
from ..registry import registry
from . import processes
from .channel import Closed
from .outcome import Kind, Outcome
from .page import NEVER, Running
from .response import respond
from .surroundings import Surroundings

# Error reporters that hook logging see a handler's exceptions here.
logger = logging.getLogger("atp.worker")


class Worker:
    """The loop of one worker process. ``slot`` is its place in the page and in the log."""

    def __init__(self, slot, channel, page, scratch_root, options):
        self._slot = slot
        self._channel = channel
        self._page = page
        self._scratch = scratch_root / f"worker-{slot}"
        self._options = options
        self._done = 0
        self._surroundings = Surroundings()

    def run(self):
        """Run Tasks until the channel is closed or the worker retires."""
        # Its predecessor in this slot may have died with a scratch directory left.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True, exist_ok=True)
        open_root_logger(settings.LOG_LEVEL)
        try:
            while self._reason_to_retire() is None:
                claimed, _ = self._channel.receive()
                self._perform(claimed)
            self._channel.send(("retiring", self._reason_to_retire()))
        except Closed:
            return

    def _reason_to_retire(self):
        limit = self._options.max_tasks_per_worker
        if limit is not None and self._done >= limit:
            return f"it has run {self._done} tasks"
        limit = self._options.max_memory
        if limit is not None and self._done:
            resident = processes.resident_bytes()
            if resident > limit:
                return f"it has {resident >> 20} MiB resident, {limit >> 20} MiB are allowed"
        return None

    def _perform(self, claimed):
        """Run one Task. What runs is in the page from before the handler until after its result."""
        started = processes.uptime()
        timeout = claimed.parameters.timeout
        timeout = NEVER if timeout is None else timeout.total_seconds()
        self._page.enter(
            self._slot, Running(claimed.instance, claimed.attempt, started + timeout, started)
        )
        self._say(claimed, "started", time.time())
        outcome = self._execute(claimed)
        self._say(claimed, "ended", time.time(), outcome)
        self._page.leave(self._slot)
        self._done += 1

    def _say(self, claimed, kind, *values):
        key = (claimed.instance, claimed.attempt)
        self._channel.send((kind, key, *values))

    def _execute(self, claimed):
        """Prepare, run the handler, clean up; always returns an :class:`Outcome`."""
        context = Context(
            claimed,
            report=lambda kind, *values: self._say(claimed, kind, time.time(), *values),
            interruption=lambda: self._interruption(claimed),
            scratch_root=self._scratch,
        )
        capture = LogCapture(context)
        root = logging.getLogger()
        root.addHandler(capture)
        try:
            refresh_connections()
            return _run_handler(claimed, context)
        finally:
            self._surroundings.restore()
            root.removeHandler(capture)
            context.flush()
            context.remove_scratch()
            refresh_connections()

    def _interruption(self, claimed):
        if self._page.is_asked(self._slot, claimed.instance, claimed.attempt):
            return "asked to end"
        return None


def _words(error):
    return shorten(clean(str(error)))


def _run_handler(claimed, context):
    signals.handler_started.send_robust(sender=Worker, context=context)
    error = None
    try:
        return _call(claimed, context)
    except Interrupted:
        return Outcome(Kind.INTERRUPTED, "the handler was interrupted")
    except Retry as asked:
        return Outcome(Kind.RETRY, _words(asked) or "the handler asked to try again", asked.after)
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
        signals.handler_ended.send_robust(sender=Worker, context=context, exception=error)


class _Unusable(Exception):
    """Inputs that cannot be read, or a response that cannot be stored: the same next time."""


def _call(claimed, context):
    task_type = registry.handler_of(claimed.type)
    try:
        args, kwargs = binding.unbind(codec.decode(claimed.inputs))
    except CorruptData as error:
        raise _Unusable from error
    value = task_type.handler(context, *args, **kwargs)
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
        got_request_exception.send_robust(sender=Worker, request=None)


def refresh_connections():
    """Treat database connections as at the start of a request, and check that each lives.

    Django closes what is past CONN_MAX_AGE; a connection that the server has
    dropped meanwhile, or that was left inside a transaction, goes too.
    """
    reset_queries()
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if connection.in_atomic_block or connection.needs_rollback:
            # Otherwise Django keeps what it has closed, for the block's end to see.
            connection.in_atomic_block = False
            connection.close()
            continue
        connection.close_if_unusable_or_obsolete()
        if connection.connection is not None and not connection.is_usable():
            connection.close()


def open_root_logger(level):
    """Let the root logger pass what is to be captured, and its own handlers what they did."""
    root = logging.getLogger()
    level = logging.getLevelNamesMapping()[level]
    if root.level > level:
        for handler in root.handlers:
            handler.setLevel(max(handler.level, root.level))
        root.setLevel(level)


def main(slot, channel, page, scratch_root, options):
    """Be a worker; never returns."""
    status = 1
    try:
        Worker(slot, channel, page, scratch_root, options).run()
        status = 0
    except BaseException:
        logger.critical("worker %s failed", slot, exc_info=True)
    finally:
        os._exit(status)
