"""Calls of the project's log handlers for ATP's own lines in a worker: guarded, and bounded.

A worker calls the handlers synchronously, since error reporters need the exception and the
variables of the attempt. A timer (SIGALRM) interrupts a handler that blocks.
"""

import contextlib
import signal
import threading
import time
from functools import partial

from .guard import RAISED, complaints, guarded, inside, is_inside
from .interception import loggers

# In seconds: handlers are interrupted after LONGEST for one line, and again every AGAIN if they
# go on. Then they get none of ATP's own lines for REST.
LONGEST, AGAIN, REST = 5.0, 0.5, 60.0


class _Cut(BaseException):
    """The handlers took too long. It is no Exception, since logging's handlers catch those."""


class Bounded:
    """The bounded calls of one process. ``time_out(longest)`` is a context manager around each.

    While ``is_left()`` is true, the lines are the task's own, and are left to their loggers.
    """

    def __init__(self, is_left=lambda: False, time_out=contextlib.nullcontext):
        self._is_left = is_left
        self._time_out = time_out
        self._is_armed = False
        self._rests_until, self._skipped = 0.0, 0

    def start(self):
        """Begin to guard the lines that this process logs, and the calls of :func:`own`."""
        _started[:] = [self]
        loggers.intercept(self._take, self._is_left)

    def _take(self, handle, logger, record):
        self.call(partial(handle, record))

    def call(self, call):
        """Call the function, interrupt it if it takes too long, and catch what it raises."""
        if is_inside() or threading.current_thread() is not threading.main_thread():
            guarded(call)
            return
        if time.monotonic() < self._rests_until:
            self._skipped += 1
            return
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            complaints.tell(
                f"lines of ATP that they were not given, as they were too slow: {skipped}"
            )
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
    """Call a function that logs for ATP, guarded and bounded; catch what it raises."""
    if _started:
        _started[0].call(partial(call, *arguments))
    else:
        guarded(call, *arguments)
