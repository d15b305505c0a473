"""Interrupting a handler that does not check for asks: a signal raises Interrupted in it.

The signal interrupts only the handler itself. ATP's own code before and after it would break.
A signal that comes before the handler is remembered until the handler is entered. A signal
that comes after it is ignored.
"""

import signal
import threading
from contextlib import contextmanager, nullcontext

from ...exceptions import Interrupted

# Nobody else uses this signal. The kernel ignores it if it has no handler, so it kills no
# worker even if a task has removed ours.
SIGNAL = signal.SIGURG


class Never(nullcontext):
    """A stand-in for :class:`Interruption` where nobody interrupts handlers."""

    def by(self, cancel):
        return self


class Interruption:
    """The interruption of one worker's handlers; a context manager around each handler.

    ``is_asked(key)`` tells whether the attempt of this key has been asked to end.
    """

    def __init__(self, is_asked):
        self._is_asked = is_asked
        self._key = None
        self._is_inside = False
        # The function that interrupts a coroutine handler, instead of an exception.
        self._cancel = None
        # The key of the last attempt whose signal came before its handler was entered.
        self._early = None
        # Whether a handler was interrupted, at any point of its code.
        self.has_struck = False

    @property
    def is_inside(self):
        """Whether the handler is running and may be interrupted."""
        return self._is_inside

    def listen(self):
        """Handle the signal from now on. Call this in the main thread."""
        signal.signal(SIGNAL, self._on_signal)

    def expect(self, key):
        """Set the key of the attempt that may be interrupted from now on."""
        self._key = key

    def _on_signal(self, signum, frame):
        if self._key is None or not self._is_asked(self._key):
            return  # the signal was for an attempt that has ended
        if self._is_inside:
            self.has_struck = True
            self._strike()
        else:
            self._early = self._key

    def _strike(self):
        """Interrupt the handler, only once, so that it can clean up undisturbed."""
        self._is_inside, self._key = False, None
        if self._cancel is None:
            raise Interrupted
        self._cancel()

    def by(self, cancel):
        """Return self, to be entered around one handler that ``cancel()`` interrupts."""
        self._cancel = cancel
        return self

    def __enter__(self):
        self._is_inside = True
        if self._early is not None and self._early == self._key:
            self._strike()

    @contextmanager
    def put_off(self):
        """Delay an interruption of the handler until the end of the block."""
        is_inside = self._is_inside and threading.current_thread() is threading.main_thread()
        if is_inside:
            self._is_inside = False
        try:
            yield
        finally:
            if is_inside:
                self.__enter__()

    def __exit__(self, kind, error, traceback):
        self._is_inside, self._cancel = False, None
        # A signal that comes from here on comes too late.
        self._key = None
