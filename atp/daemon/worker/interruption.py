"""Interrupting a handler that does not look: a signal raises Interrupted where it is.

Only in the handler itself. Around it ATP reads what it is given and says how it ended,
and an exception out of nowhere would break that; what comes there is not for this
attempt, or is remembered until its handler is entered.
"""

import signal
import threading
from contextlib import contextmanager, nullcontext

from ...exceptions import Interrupted

# Nobody else uses it, and without a handler the kernel ignores it: whatever a task has
# made of it, it kills no worker.
SIGNAL = signal.SIGURG


class Never(nullcontext):
    """The interruption of handlers that nobody interrupts."""

    def by(self, cancel):
        return self


class Interruption:
    """The interruption of one worker's handlers: a context manager around each.

    ``is_asked(key)`` tells whether that attempt has been asked to end.
    """

    def __init__(self, is_asked):
        self._is_asked = is_asked
        self._key = None
        self._is_inside = False
        # What interrupts the handler in place of an exception, if it is no plain function.
        self._cancel = None
        # The last attempt that was meant before its handler was entered.
        self._early = None
        # Whether an attempt was interrupted, in the middle of whatever it was doing.
        self.has_struck = False

    @property
    def is_inside(self):
        """Whether the handler runs."""
        return self._is_inside

    def listen(self):
        """Take the signal from now on; in the main thread."""
        signal.signal(SIGNAL, self._on_signal)

    def expect(self, key):
        """The attempt of this key is what may be interrupted from now on."""
        self._key = key

    def _on_signal(self, signum, frame):
        if self._key is None or not self._is_asked(self._key):
            return  # it was for one that has ended
        if self._is_inside:
            self.has_struck = True
            self._strike()
        else:
            self._early = self._key

    def _strike(self):
        """Interrupt the handler, once: it may take its time to clean up."""
        self._is_inside, self._key = False, None
        if self._cancel is None:
            raise Interrupted
        self._cancel()

    def by(self, cancel):
        """Return this, to be entered around one handler that ``cancel()`` interrupts."""
        self._cancel = cancel
        return self

    def __enter__(self):
        self._is_inside = True
        if self._early is not None and self._early == self._key:
            self._strike()

    @contextmanager
    def put_off(self):
        """Let an interruption of the handler wait for the end of the block."""
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
