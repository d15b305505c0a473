"""What a handler may change of its process, and the next one should not find changed."""

import _signal
import contextlib
import os
import signal

# As it is below the enums that signal.getsignal() makes of the answer: it is asked
# several times after each task.
_getsignal = _signal.getsignal

# SIGALRM is in the list with its timer: an alarm set by one handler would hit another.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM)


class Surroundings:
    """Working directory, umask, signal handlers and the alarm, as they are when this is made.

    It also tells the worker from a copy of it: a handler that forks and lets
    its child return must not have two workers answer.
    """

    def __init__(self):
        self._pid = os.getpid()
        self._directory = os.getcwd()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._handlers = {number: _getsignal(number) for number in _SIGNALS}

    def restore(self):
        """Put everything back; in a copy of the process, end it."""
        if os.getpid() != self._pid:
            os._exit(0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.umask(self._umask)
        with contextlib.suppress(OSError):
            if os.getcwd() != self._directory:
                os.chdir(self._directory)
        for number, handler in self._handlers.items():
            if _getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)
