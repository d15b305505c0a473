"""Hearing that something waits, instead of asking for it."""

import threading

from . import journal

# A listener waits for so long in one piece, in seconds.
PIECE = 5.0


class Listening:
    """A thread that waits with the store's listener; ``rung()`` is called there after each ring.

    It is no more than a hint: the queue is polled all the same, so nothing
    depends on this thread.
    """

    def __init__(self, store, rung):
        self._store = store
        self._rung = rung
        self._wanted = threading.Event()
        threading.Thread(target=self._run, name="atp-listen", daemon=True).start()

    def listen(self, wanted):
        """Listen from now on, or not; what comes meanwhile is heard later."""
        if wanted != self._wanted.is_set():
            (self._wanted.set if wanted else self._wanted.clear)()

    def _run(self):
        listener = self._store.listener()
        if listener is None:
            return
        try:
            while self._wanted.wait():
                if listener.wait(PIECE):
                    self._rung()
        except Exception as error:  # without it the daemon polls
            journal.listening_ended(error=error, exc_info=error)
        finally:
            listener.close()
