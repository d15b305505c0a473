"""Guarded calls of the project's log handlers: an exception costs the handlers' line alone."""

import contextlib
import logging
import os
import threading
import time

from django.db import connections

from ..system import stderr

# Exceptions of handlers are reported on standard error once in this many seconds at most.
TELL_EVERY = 10.0
# The words of each complaint, and what it says if one of them raised.
FAILED = "the project's log handlers failed: {what}"
RAISED = "a handler, filter or formatter raised"

_thread = threading.local()


def is_inside():
    """Tell whether this thread is inside a log handler of the project.

    Lines that are logged inside one go to the loggers unchanged, as outside of a daemon.
    """
    return getattr(_thread, "is_inside", False)


@contextlib.contextmanager
def inside():
    """Mark the lines that are logged in the block as the handlers' own."""
    before, _thread.is_inside = is_inside(), True
    try:
        yield
    finally:
        _thread.is_inside = before


def guarded(call, *arguments):
    """Call the function; catch what it raises, and report that on standard error."""
    try:
        with inside():
            call(*arguments)
    except BaseException as error:
        complaints.tell(RAISED, error)


def close_broken_connections():
    """Close failed database connections of this thread; log handlers may have opened them."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred and not connection.in_atomic_block:
            connection.close()


class Complaints:
    """Complaints about the project's handlers, on standard error. Writing one never waits.

    One is written every TELL_EVERY seconds at most. It looks like the line of
    ``journal.handlers_failed(what=…)``, but bypasses all loggers.
    """

    def __init__(self):
        self._due, self._more = 0.0, 0
        self._file = self._write = None
        self.formatter = logging.Formatter()

    def tell(self, what, error=None):
        """Write a complaint, with the traceback of the error; if it comes too soon, count it."""
        now = time.monotonic()
        if now < self._due:
            self._more += 1
            return
        if self._more:
            what = f"{what} (complaints since the last line: {self._more})"
        self._due, self._more = now + TELL_EVERY, 0
        with contextlib.suppress(Exception):
            exc_info = error and (type(error), error, error.__traceback__)
            values = {"what": what}
            words = FAILED.format_map(values)
            record = logging.LogRecord("atp.daemon", logging.ERROR, "", 0, words, (), exc_info)
            record.fact, record.values = "handlers_failed", values
            line = self.formatter.format(record) + "\n"
            self._writer()(line.encode("utf-8", "backslashreplace"))

    def _writer(self):
        # Look at standard error each time: a worker's is not that of its parent.
        status = os.fstat(2)
        if self._file != (status.st_dev, status.st_ino):
            self._file = status.st_dev, status.st_ino
            self._write = stderr.writer(2)
        return self._write


complaints = Complaints()
