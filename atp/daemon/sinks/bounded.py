"""Calls of the project's log handlers for ATP's own lines in a worker: guarded, and bounded.

The handlers are called in line there, with the exception and the variables of the attempt
at hand, as error reporters need it. What blocks is interrupted by the timer of SIGALRM.
"""

import contextlib
import signal
import threading
import time
from functools import partial

from .guard import RAISED, complaints, guarded, inside, is_inside
from .interception import loggers

# Handlers that take longer for one line are interrupted, in seconds; again after so long if
# they go on; and afterwards they are not given ATP's own lines for a while.
LONGEST, AGAIN, REST = 5.0, 0.5, 60.0


class _Cut(BaseException):
    """The handlers took too long. No Exception: handlers of logging catch those."""


class Bounded:
    """The calls of one process. ``time_out(longest)`` is a context manager around each.

    ``is_left()`` tells whether what is logged is the task's own, which is left alone.
    """

    def __init__(self, is_left=lambda: False, time_out=contextlib.nullcontext):
        self._is_left = is_left
        self._time_out = time_out
        self._is_armed = False
        self._rests_until, self._skipped = 0.0, 0

    def start(self):
        """Begin to guard what this process logs, and the calls of :func:`own`."""
        _started[:] = [self]
        loggers.intercept(self._take, self._is_left)

    def _take(self, handle, logger, record):
        self.call(partial(handle, record))

    def call(self, call):
        """Call this, interrupted if it takes too long; what it raises goes no further."""
        if is_inside() or threading.current_thread() is not threading.main_thread():
            guarded(call)
            return
        if time.monotonic() < self._rests_until:
            self._skipped += 1
            return
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            complaints.tell(f"lines of ATP that they were not given: {skipped}")
        with self._time_out(LONGEST + 1):
            self._call(call)

    def _call(self, call):
        before = signal.signal(signal.SIGALRM, self._cut)
        self._is_armed = True
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, LONGEST, AGAIN)
                with inside():
                    call()
            finally:
                self._is_armed = False
        except _Cut:
            self._rests_until = time.monotonic() + REST
            complaints.tell(
                f"they took over {LONGEST:g} s for a line of ATP in a worker, which gives them "
                f"none for {REST:g} s"
            )
        except BaseException as error:
            complaints.tell(RAISED, error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if before is not None:  # one that was not set from Python cannot be set again
                signal.signal(signal.SIGALRM, before)

    def _cut(self, signum, frame):
        if self._is_armed:
            raise _Cut


_started = []


def own(call, *arguments):
    """Call this, which logs for ATP: nothing that it raises goes further."""
    if _started:
        _started[0].call(partial(call, *arguments))
    else:
        guarded(call, *arguments)
