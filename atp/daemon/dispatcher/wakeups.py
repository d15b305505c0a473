"""Wakeups from the database, which say that a Task may wait in the queue."""

import threading

from ...conf import settings
from .. import journal
from ..system.database import shut_down
from ..system.processes import uptime

# The longest single wait of a listener, in seconds.
PIECE = 5.0


class Wakeups:
    """A thread that waits for wakeups with the store's listener, and calls ``rung()`` after each.

    A wakeup is only a hint: the daemon polls the queue all the same. But if an enqueue hands
    over a Task, only this thread learns of it, and calls ``handed(daemon, claimed)``.
    """

    def __init__(self, store, rung, handed):
        self._store = store
        self._rung = rung
        self._handed = handed
        # The channel through which Tasks can be handed over. When it is lost, this is empty or
        # the name of another channel.
        self.channel = ""
        self._listener, self._since = None, None
        self._missed = False
        self._is_deaf = False
        self._rings = False
        self._wanted = threading.Event()
        threading.Thread(target=self._run, name="atp-listen", daemon=True).start()

    def listen(self, rings, *, may_be_handed):
        """Set whether to call ``rung()`` for wakeups; those that come meanwhile ring later.

        While ``may_be_handed`` is true, the thread takes Tasks that are handed over in any case.
        """
        self._cut_if_overdue()
        if (rings or may_be_handed) != self._wanted.is_set():
            (self._wanted.set if rings or may_be_handed else self._wanted.clear)()
        if rings != self._rings:
            self._rings = rings
            self._ring()

    def _cut_if_overdue(self):
        """Shut the listener's link down if a wait takes STATEMENT_TIMEOUT longer than it may.

        A link that has died in silence would else be taken for a living one for many minutes, and
        Tasks would be handed over through it.
        """
        since = self._since
        if since is not None and uptime() - since >= PIECE + settings.STATEMENT_TIMEOUT:
            self._since = uptime()
            shut_down(self._listener.link)

    def _ring(self):
        # Both threads set their own flag before they check the other's, so no wakeup is lost.
        if self._missed and self._rings:
            self._missed = False
            self._rung()

    def _may_rest(self, listener):
        return not self._wanted.is_set() and (listener.keeps or not listener.channel)

    def _run(self):
        listener = self._listener = self._store.listener()
        if listener is None:
            return
        try:
            self._wanted.wait()
            while True:
                may_rest = self._may_rest(listener)
                # Look once more before resting: a Task may have been handed over until then.
                self._since = uptime()
                came = listener.wait(0 if may_rest else PIECE)
                self._since = None
                if listener.is_deaf and not self._is_deaf:
                    self._is_deaf = True
                    journal.pooled()
                handed = listener.handed()
                for daemon, claimed in handed:
                    self._handed(daemon, claimed)
                lost, self.channel = self.channel, listener.channel
                # No ring after a handed Task: the daemon looks when its row says idle again.
                if (came and not handed) or lost != self.channel:
                    self._missed = True
                    self._ring()
                if may_rest and self._may_rest(listener):
                    self._wanted.wait()
        except Exception as error:  # without it the daemon polls
            journal.listening_ended(error=error, exc_info=error)
        finally:
            self.channel = ""
            listener.close()
