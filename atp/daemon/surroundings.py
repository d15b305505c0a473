"""What a handler may change of its process, and the next one should not find changed."""

import _signal
import contextlib
import os
import signal
import sys

from .interruption import SIGNAL

# As they are below the enums that the module signal makes of the answers: they are
# asked after each task.
_getsignal, _sigmask = _signal.getsignal, _signal.pthread_sigmask
# The environment as Python keeps it, in bytes: quicker to compare.
_RAW = os.environ._data

# SIGALRM is in the list with its timer: an alarm set by one handler would hit another.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, SIGNAL)


class Surroundings:
    """What a process has, as it is when this is made.

    Working directory, umask, signal handlers and mask, the alarm, standard
    streams, the limit on recursion, and the environment: there, what a handler
    has added stays, since what it has imported may count on it.

    It also tells the worker from a copy of it: a handler that forks and lets
    its child return must not have two workers answer.
    """

    def __init__(self):
        self._pid = os.getpid()
        self._directory = os.getcwdb()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._raw = dict(_RAW)
        self._mask = _sigmask(signal.SIG_BLOCK, ())
        self._recursion = sys.getrecursionlimit()
        self._stdout, self._stderr = sys.stdout, sys.stderr
        self._handlers = [_getsignal(number) for number in _SIGNALS]

    def restore(self):
        """Put everything back; in a copy of the process, end it."""
        if os.getpid() != self._pid:
            os._exit(0)
        signal.alarm(0)  # the timer of setitimer() is the same
        os.umask(self._umask)
        if not self._is_in_directory():
            with contextlib.suppress(OSError):
                os.chdir(self._directory)
        if [*map(_getsignal, _SIGNALS)] != self._handlers:
            self._restore_handlers()
        if _sigmask(signal.SIG_BLOCK, ()) != self._mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if self._raw != _RAW:
            self._restore_environment()
        if sys.stdout is not self._stdout or sys.stderr is not self._stderr:
            sys.stdout, sys.stderr = self._stdout, self._stderr
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)

    def _is_in_directory(self):
        try:
            return os.getcwdb() == self._directory
        except OSError:  # that in which it is has been removed
            return False

    def _restore_handlers(self):
        for number, handler in zip(_SIGNALS, self._handlers, strict=True):
            # What is not Python's own cannot be put back.
            if _getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)

    def _restore_environment(self):
        for name, value in self._raw.items():
            if _RAW.get(name) != value:
                os.environ[os.environ.decodekey(name)] = os.environ.decodevalue(value)
        self._raw = dict(_RAW)
