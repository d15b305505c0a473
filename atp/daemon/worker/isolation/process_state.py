"""The state of a worker's process, put back after each task that has changed it."""

import _signal
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time

from ..interruption import SIGNAL

# As they are below the enums that the module signal makes of the answers: they are
# asked after each task.
_getsignal, _sigmask = _signal.getsignal, _signal.pthread_sigmask
# The environment as Python keeps it, in bytes: quicker to compare.
_RAW = os.environ._data

# The signals that a handler may have a reason to take.
_NAMES = (
    *("TERM", "INT", "HUP", "CHLD", "ALRM", "QUIT", "USR1", "USR2", "PIPE"),
    *("VTALRM", "PROF", "WINCH", "CONT", "TSTP", "TTIN", "TTOU"),
)
_SIGNALS = (*(getattr(signal, f"SIG{name}") for name in _NAMES), SIGNAL)
# Timers whose signals end a process that has no handler for them. That of SIGALRM is
# stopped after each task: an alarm set by one handler would hit another.
_TIMERS = (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LOGGING = logging.root.manager


class ProcessState:
    """The state of the process at the moment when this is made.

    Working directory, umask, signal handlers and mask, the alarm, standard streams,
    the limit on recursion, the garbage collector, what logging is disabled for, the
    time-out of sockets, functions that trace or profile, the local time zone, and the
    environment: there, what a handler has added stays but TZ, since what it has
    imported may count on it.

    All is compared after each task, and put back only where it differs.

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
        self._zone = time.timezone, time.tzname
        self._switches = _switches()

    def restore(self):
        """Put everything back; in a copy of the process, end it."""
        if os.getpid() != self._pid:
            os._exit(0)
        self.stop_alarm()
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
        if (time.timezone, time.tzname) != self._zone:
            time.tzset()
        if _switches() != self._switches:
            self._restore_switches()

    def stop_alarm(self):
        signal.alarm(0)  # the timer of setitimer() is the same

    def _restore_switches(self):
        is_collecting, disabled, timeout, trace, profile, *of_threads = self._switches
        (gc.enable if is_collecting else gc.disable)()
        logging.disable(disabled)
        socket.setdefaulttimeout(timeout)
        sys.settrace(trace)
        sys.setprofile(profile)
        threading.settrace(of_threads[0])
        threading.setprofile(of_threads[1])

    def _is_in_directory(self):
        try:
            return os.getcwdb() == self._directory
        except OSError:  # that in which it is has been removed
            return False

    def _restore_handlers(self):
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in zip(_SIGNALS, self._handlers, strict=True):
            # A handler that was not set from Python cannot be put back.
            if _getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)

    def _restore_environment(self):
        for name, value in self._raw.items():
            if _RAW.get(name) != value:
                os.environ[os.environ.decodekey(name)] = os.environ.decodevalue(value)
        if b"TZ" not in self._raw:
            os.environ.pop("TZ", None)
        self._raw = dict(_RAW)


def _switches():
    """Return the other switches of the process that a handler may have turned."""
    return (
        gc.isenabled(),
        _LOGGING.disable,
        socket.getdefaulttimeout(),
        sys.gettrace(),
        sys.getprofile(),
        threading.gettrace(),
        threading.getprofile(),
    )
