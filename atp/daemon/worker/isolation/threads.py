"""The threads of an attempt, and those that earlier attempts have left behind."""

import _thread
import sys
import threading
from concurrent.futures import thread as executors
from functools import wraps
from multiprocessing import pool as pools

# The attribute of a thread that names the attempt in which it was started.
_OWNER = "_atp_attempt"
_STRAY = object()
# A pool's thread that waits in this code is idle: its next work belongs to a later attempt.
_IDLE = {executors._worker.__code__, pools.worker.__code__}


class Threads:
    """The test whether the current thread is part of the running attempt.

    A thread that a thread of an earlier attempt has started is part of that earlier attempt.
    """

    def __init__(self):
        self._main = threading.get_ident()
        self._attempt = None
        self._strays = self._idle = frozenset()

    def install(self):
        """Note, for each thread from now on, the attempt in which it is started."""
        start = threading.Thread.start

        @wraps(start)
        def noted(thread):
            setattr(thread, _OWNER, self._attempt if self.is_of_attempt() else _STRAY)
            return start(thread)

        threading.Thread.start = noted

    def begin(self):
        """Begin an attempt; the threads that exist now belong to earlier ones."""
        self._attempt = object()
        if _thread._count():  # else there is no other thread
            frames = sys._current_frames()
            self._idle = {each for each, frame in frames.items() if frame.f_code in _IDLE}
            self._strays = frames.keys() - self._idle - {self._main}

    def is_of_attempt(self):
        ident = threading.get_ident()
        if ident == self._main:
            return True
        owner = getattr(threading._active.get(ident), _OWNER, None)
        if owner is None:
            return ident not in self._strays
        return owner is self._attempt or (owner is not _STRAY and ident in self._idle)
