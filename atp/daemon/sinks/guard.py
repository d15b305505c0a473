"""Guarded calls of the project's log handlers: what they raise costs their own lines alone."""

import contextlib
import logging
import os
import threading
import time

from django.db import connections

from ..system import stderr

# What a handler raises is told on standard error this often, in seconds.
TELL_EVERY = 10.0
RAISED = "one raised, or a filter or formatter"

_thread = threading.local()


def is_inside():
    """Whether this thread is in a call of the project's handlers.

    What is logged there is theirs, as in any process: they may know how to end such a circle.
    """
    return getattr(_thread, "is_inside", False)


@contextlib.contextmanager
def inside():
    """Mark what is logged in the block as the handlers' own."""
    before, _thread.is_inside = is_inside(), True
    try:
        yield
    finally:
        _thread.is_inside = before


def guarded(call, *arguments):
    """Call this; whatever it raises is told on standard error and goes no further."""
    try:
        with inside():
            call(*arguments)
    except BaseException as error:
        complaints.tell(RAISED, error)


def close_broken_connections():
    """Close connections of this thread that have failed: handlers may write to a database."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred and not connection.in_atomic_block:
            connection.close()


class Complaints:
    """What is wrong with the handlers, on standard error: never waiting, and not too often.

    It is the line of ``journal.handlers_failed(what=…)``, past all loggers.
    """

    def __init__(self):
        self._due, self._more = 0.0, 0
        self._file = self._write = None
        self.formatter = logging.Formatter()

    def tell(self, what, error=None):
        """Write it, with the traceback of the error; what comes too soon is counted."""
        now = time.monotonic()
        if now < self._due:
            self._more += 1
            return
        if self._more:
            what = f"{what} (complaints since the last line: {self._more})"
        self._due, self._more = now + TELL_EVERY, 0
        with contextlib.suppress(Exception):
            exc_info = error and (type(error), error, error.__traceback__)
            words = f"the project's log handlers: {what}"
            record = logging.LogRecord("atp.daemon", logging.ERROR, "", 0, words, (), exc_info)
            record.fact, record.values = "handlers_failed", {"what": what}
            line = self.formatter.format(record) + "\n"
            self._writer()(line.encode("utf-8", "backslashreplace"))

    def _writer(self):
        # Standard error as it is now: a worker has another than its parent.
        status = os.fstat(2)
        if self._file != (status.st_dev, status.st_ino):
            self._file = status.st_dev, status.st_ino
            self._write = stderr.writer(2)
        return self._write


complaints = Complaints()
