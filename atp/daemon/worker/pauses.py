"""The pauses of an attempt, in its worker: at a check for asks, or at the handler's own wish."""

import os
import threading
import time
from contextlib import contextmanager

from django.db import connections

from ...exceptions import PausedInTransaction
from ..shared.running_page import END, GO, NEVER, PAUSE
from ..system.processes import uptime

# A paused attempt checks this often whether it may go on, in seconds.
LOOK_EVERY = 0.02


class Pauses:
    """The pauses of one worker's attempts. Their time does not count towards the time-out."""

    def __init__(self, page, slot):
        self._page = page
        self._slot = slot
        self._pid = os.getpid()
        self._key, self._report = None, None
        self._number = 0
        self._depth = 0
        self._left = 0.0

    def expect(self, key, report):
        """Set the attempt that may pause from now on, and its ``report(kind, …)``."""
        self._key, self._report = key, report
        self._number = self._depth = 0

    def look(self):
        """Pause here if asked to; never inside a transaction or outside the main thread."""
        if self._asked()[0] == PAUSE and self._is_the_handler() and not _in_transaction():
            with self._paused("", is_own=False):
                pass

    @contextmanager
    def own(self, message):
        """Pause the attempt during the block. Raises PausedInTransaction."""
        if _in_transaction():
            raise PausedInTransaction("A pause inside a transaction would keep it open.")
        if self._depth or not self._is_the_handler():
            yield
            return
        with self._paused(message, is_own=True):
            yield

    @contextmanager
    def _paused(self, message, is_own):
        self._number += 1
        self._depth += 1
        running = self._page.read(self._slot)
        self._left = running.deadline - uptime()
        self._page.put_off(self._slot, NEVER)
        self._report("paused", self._number, message, is_own)
        try:
            yield
        finally:
            try:
                if is_own:
                    self._report("resuming")
                self._wait()
            finally:
                self._page.put_off(self._slot, uptime() + self._left)
                self._depth -= 1
                self._report("resumed")

    def _wait(self):
        while self._asked() not in ((END, 0), (GO, self._number)):
            time.sleep(LOOK_EVERY)

    def _asked(self):
        return self._page.asked(self._slot, *self._key)

    def _is_the_handler(self):
        is_main = threading.current_thread() is threading.main_thread()
        return is_main and os.getpid() == self._pid


def _in_transaction():
    return any(each.in_atomic_block for each in connections.all(initialized_only=True))
