"""Calls to the store in threads beside the event loop, each with a time limit.

A call runs in a thread that has a connection of its own. If a call takes too long, the
dispatcher shuts down the connection's socket: signals do not interrupt a driver that waits in
C code, and a server's statement_timeout does not notice a dead link.
"""

import contextlib
import queue
import threading
from collections import deque
from dataclasses import dataclass

from django.db import connections

from ...conf import settings
from .. import journal
from ..system.database import shut_down
from ..system.processes import uptime

# If a call goes on after its connection was cut, the connection is cut again after this many
# seconds.
CUT_AGAIN = 1.0
# The time that a statement waits for a lock of another session, in seconds.
LOCK_TIMEOUT = 0.1


@dataclass(frozen=True)
class Result:
    """The result of a call: its ``value`` or its ``error``.

    ``sent`` and ``received`` are times on the uptime clock. ``is_locked``: the error is only a
    lock that another session holds. ``failed(result)``, if given, takes an error instead of
    the dispatcher.
    """

    doing: str
    then: object
    value: object = None
    error: BaseException | None = None
    is_locked: bool = False
    failed: object = None
    sent: float = 0.0
    received: float = 0.0


class DatabaseThread:
    """A thread with one connection, which runs one call at a time.

    It puts each Result into the queue ``results``, and then calls ``wake()``. No call waits
    long for locks of other sessions.
    """

    def __init__(self, name, store, results, wake):
        self._calls = queue.SimpleQueue()
        self._store = store
        self._results = results
        self._wake = wake
        # The words that describe the call in progress; None if there is none.
        self.doing = None
        self._is_stale = False
        self._since, self._deadline = 0.0, None
        self._connection = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def busy(self):
        """Whether a call is in progress, or its result is not collected yet."""
        return self.doing is not None

    def submit(self, doing, call, then, failed=None):
        """Run ``call()``; its result goes to ``then(result)`` on the event loop.

        An error goes to ``failed(result)`` there, if that is given.

        ``doing`` describes the call in the log.
        """
        if self.busy:
            raise AssertionError(f"{doing}: still {self.doing}")
        self.doing, self._since, self._deadline = doing, uptime(), None
        self._calls.put((doing, call, then, failed))

    def reconnect(self):
        """Use a new connection from the next call on, after a failure in this or another thread."""
        self._is_stale = True

    def answered(self):
        """Note that the event loop has collected the result of the call."""
        self.doing = None

    def cut_if_overdue(self, limit):
        """Shut the connection down if the call takes over ``limit`` seconds, until it ends."""
        if not self.busy:
            return
        now = uptime()
        if self._deadline is None:
            self._deadline = self._since + limit
        if now >= self._deadline:
            if self._deadline == self._since + limit:
                journal.database_slow(doing=self.doing, seconds=limit)
            # Cut again later: a connection that is just being opened cannot be cut.
            self._deadline = now + CUT_AGAIN
            shut_down(self._connection)

    def _run(self):
        self._connection = connections[settings.DATABASE]
        # With DEBUG Django keeps all executed statements until a request begins.
        self._connection.queries_log = deque(maxlen=0)
        while True:
            doing, call, then, failed = self._calls.get()
            sent = uptime()
            try:
                if self._is_stale:
                    self._is_stale = False
                    self._connection.close()
                self._store.limit_waiting(LOCK_TIMEOUT)
                value = call()
                result = Result(doing, then, value=value, sent=sent, received=uptime())
            except BaseException as error:
                is_locked = self._store.is_lock(error)
                if not is_locked:
                    with contextlib.suppress(Exception):
                        self._connection.close()
                result = Result(
                    doing, then, error=error, is_locked=is_locked, failed=failed, sent=sent
                )
            self._results.put((self, result))
            self._wake()
