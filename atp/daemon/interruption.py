"""Interrupting a handler that does not look: a signal raises Interrupted where it is.

Only in the handler itself. Around it ATP reads what it is given and says how it ended,
and an exception out of nowhere would break that; what comes there is not for this
attempt, or is remembered until its handler is entered.
"""

import signal

from ..exceptions import Interrupted

# Nobody else uses it, and without a handler the kernel ignores it: whatever a task has
# made of it, it kills no worker.
SIGNAL = signal.SIGURG


class Interruption:
    """That of one worker: a context manager around each handler.

    ``is_asked(key)`` tells whether that attempt has been asked to end.
    """

    def __init__(self, is_asked):
        self._is_asked = is_asked
        self._key = None
        self._is_inside = False
        # The last attempt that was meant before its handler was entered.
        self._early = None
        # Whether an attempt was interrupted, in the middle of whatever it was doing.
        self.has_struck = False

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
            # Once: it may take its time to clean up.
            self._is_inside, self._key = False, None
            self.has_struck = True
            raise Interrupted
        self._early = self._key

    def __enter__(self):
        self._is_inside = True
        if self._early is not None and self._early == self._key:
            self._is_inside, self._key = False, None
            raise Interrupted

    def __exit__(self, kind, error, traceback):
        self._is_inside = False
        # What comes from here on comes too late.
        self._key = None
