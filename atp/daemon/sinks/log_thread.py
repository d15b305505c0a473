"""The thread of the dispatcher that calls the project's log handlers."""

import contextlib
import logging
import queue
import threading
from functools import partial

from .guard import close_broken_connections, complaints, guarded
from .interception import loggers

# The most lines that wait; further ones are dropped and counted.
MOST_WAITING = 2000
# At its end a process waits this long, in seconds, for the handlers to take the waiting lines.
PATIENCE = 2.0


class LogThread:
    """The thread that handles this process's log records.

    ``tell_dropped(count=…)`` logs the number of dropped lines.
    """

    def __init__(self, tell_dropped):
        self._tell_dropped = tell_dropped
        self._calls = queue.SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="atp-log", daemon=True)

    def start(self):
        """Begin to take log records. Call this after the fork."""
        self._thread.start()
        loggers.intercept(self._take)

    def _take(self, handle, logger, record):
        self._put(partial(handle, record))

    def _put(self, call):
        if self._calls.qsize() < MOST_WAITING:
            self._calls.put(call)
            return
        self._dropped += 1
        if self._dropped == 1:
            complaints.tell(f"they block: {MOST_WAITING} lines wait, further ones are dropped")

    def _run(self):
        while (call := self._calls.get()) is not None:
            guarded(call)
            guarded(close_broken_connections)
            # A traceback in the record would keep its frames alive.
            del call
            if self._dropped and self._calls.qsize() < MOST_WAITING:
                count, self._dropped = self._dropped, 0
                guarded(partial(self._tell_dropped, count=count))

    def close(self):
        """Wait up to PATIENCE until the handlers have taken the waiting lines."""
        self._calls.put(flush)
        self._calls.put(None)
        self._thread.join(PATIENCE)


def flush():
    """Flush all log handlers: a process of a daemon exits without atexit functions."""
    for reference in logging._handlerList[:]:
        with contextlib.suppress(Exception):
            handler = reference()
            if handler is not None:
                handler.flush()
