"""Guarded calls of the project's log handlers: what they raise costs their own lines alone."""

import contextlib
import threading
import time
import traceback

from django.db import connections

from ..system import stderr

# What a handler raises is told on standard error this often, in seconds.
TELL_EVERY = 10.0
RAISED = "a log handler, filter or formatter of the project raised"

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
    """What is wrong with the handlers, on standard error: never waiting, and not too often."""

    def __init__(self):
        self._due, self._more, self._write = 0.0, 0, None

    def tell(self, what, error=None):
        """Write it, with the traceback of the error; what comes too soon is counted."""
        now = time.monotonic()
        if now < self._due:
            self._more += 1
            return
        text = f"{what}\n"
        if self._more:
            text = f"{what} (and {self._more} more complaints of this kind before)\n"
        self._due, self._more = now + TELL_EVERY, 0
        with contextlib.suppress(Exception):
            if error is not None:
                text += "".join(traceback.format_exception(error))
            self.write(text)

    def write(self, text):
        """Write to standard error as it is now: a worker has another than its parent."""
        with contextlib.suppress(OSError):
            stderr.writer(2)(text.encode("utf-8", "backslashreplace"))


complaints = Complaints()
