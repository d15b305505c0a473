"""Wakeups from the database: something may wait in the queue."""

import threading

from .. import journal

# A listener waits for so long in one piece, in seconds.
PIECE = 5.0


class Wakeups:
    """A thread that waits with the store's listener; ``rung()`` is called there after each ring.

    A wakeup is only a hint: the queue is polled all the same, so nothing depends on
    this thread. But if an enqueue hands over a Task, only this thread is told:
    it calls ``handed(daemon, claimed)`` then.
    """

    def __init__(self, store, rung, handed):
        self._store = store
        self._rung = rung
        self._handed = handed
        # The channel through which Tasks can be handed over; once lost, it is empty or another.
        self.channel = ""
        self._missed = False
        self._is_deaf = False
        self._rings = False
        self._wanted = threading.Event()
        threading.Thread(target=self._run, name="atp-listen", daemon=True).start()

    def listen(self, rings, *, may_be_handed):
        """Ring from now on, or not; wakeups that come meanwhile are rung for later.

        Tasks that are handed over are taken in any case, as long as that may happen.
        """
        if (rings or may_be_handed) != self._wanted.is_set():
            (self._wanted.set if rings or may_be_handed else self._wanted.clear)()
        if rings != self._rings:
            self._rings = rings
            self._ring()

    def _ring(self):
        # The one that has rung looks second, and so does the one that wants it.
        if self._missed and self._rings:
            self._missed = False
            self._rung()

    def _may_rest(self, listener):
        return not self._wanted.is_set() and (listener.keeps or not listener.channel)

    def _run(self):
        listener = self._store.listener()
        if listener is None:
            return
        try:
            self._wanted.wait()
            while True:
                may_rest = self._may_rest(listener)
                # Once more, before it rests: it may have been handed something until then.
                came = listener.wait(0 if may_rest else PIECE)
                if listener.is_deaf and not self._is_deaf:
                    self._is_deaf = True
                    journal.pooled()
                handed = listener.handed()
                for daemon, claimed in handed:
                    self._handed(daemon, claimed)
                lost, self.channel = self.channel, listener.channel
                # After what it was handed the daemon says that it is idle, and looks then.
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
