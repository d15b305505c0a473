"""The list of all that is put back after each attempt, one entry each. docs/bad-tasks.md prints it.

An entry is compared after each attempt, and put back only where it differs. To take them all
costs some microseconds, with each task. So an entry of whose changes Python tells (its audit
events) is compared where it has told, and now and then, for what C code changes.
"""

import _locale
import _signal
import contextlib
import faulthandler
import os
import resource
import signal
import socket
import time
from functools import partial
from operator import attrgetter

from ...shared import stacks
from . import interpreter, logs
from .entry import Entry

# As they are below the enums that the module signal makes of the answers.
_getsignal, _sigmask = _signal.getsignal, _signal.pthread_sigmask
# The environment as Python keeps it, in bytes: quicker to compare.
_RAW = os.environ._data
_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
# The system sends none of these by itself.
_REAL_TIME = [number for number in _SIGNALS if number >= getattr(signal, "SIGRTMIN", signal.NSIG)]
_SIGNALS = [number for number in _SIGNALS if number not in _REAL_TIME]
_LIMITS = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
# Whoever passes one of these is killed, or fails.
_STRIKING = [
    *(resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_DATA),
    *(resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE),
]
_OTHERS = sorted(_LIMITS - {*_STRIKING})
_LIMITING = ("resource.setrlimit", "resource.prlimit")
_PROCESSOR_TIMERS = (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def _directory():
    try:
        return os.getcwdb()
    except OSError:  # that in which it is has been removed
        return None


def _umask():
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _put_back_environment(before):
    for name, value in before.items():
        if _RAW.get(name) != value:
            os.environ[os.environ.decodekey(name)] = os.environ.decodevalue(value)
    if b"TZ" not in before:
        os.environ.pop("TZ", None)


def _handlers(numbers):
    return [*map(_getsignal, numbers)]


def _put_back_handlers(before, numbers=_SIGNALS):
    for number, handler in zip(numbers, before, strict=True):
        # A handler that was not set from Python cannot be put back.
        if _getsignal(number) is not handler and handler is not None:
            signal.signal(number, handler)


def _put_back_real_time_handlers(before):
    _put_back_handlers(before, numbers=_REAL_TIME)
    # The handler of faulthandler is none of those that Python knows.
    stacks.answer_again()


def _put_back_standard_input(*before):
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.dup2(descriptor, 0)
    if descriptor:
        os.close(descriptor)


def _standard_input():
    try:
        found = os.fstat(0)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _limits(numbers):
    return [(number, resource.getrlimit(number)) for number in numbers]


def _put_back_limits(before):
    for number, limits in before:
        with contextlib.suppress(OSError, ValueError):  # one that was lowered for good
            resource.setrlimit(number, limits)


def _stop_processor_timers(*before):
    for timer in _PROCESSOR_TIMERS:
        signal.setitimer(timer, 0)


def _put_back_user(users, groups):
    os.setresuid(*users)
    os.setresgid(*groups)


TIMERS = (
    Entry(
        "the alarm, and the timer of SIGALRM",
        # Each call stops it, and returns 0 if there was none. The timer of setitimer() is the same.
        (partial(signal.alarm, 0),),
        lambda before: None,
        first=lambda: 0 * signal.alarm(0),
    ),
    Entry(
        "timers of processor time",
        tuple(partial(signal.getitimer, timer) for timer in _PROCESSOR_TIMERS),
        _stop_processor_timers,
        # Whoever sets one sets a handler, too, or ends by its signal.
        is_slow=True,
    ),
    Entry(
        "the timer of faulthandler, which would dump tracebacks or exit",
        (faulthandler.cancel_dump_traceback_later,),
        lambda before: None,
    ),
)
ENTRIES = (
    *TIMERS,
    Entry("handlers of signals", (partial(_handlers, _SIGNALS),), _put_back_handlers),
    Entry(
        "handlers of real-time signals",
        (partial(_handlers, _REAL_TIME),),
        _put_back_real_time_handlers,
        is_slow=True,
    ),
    Entry(
        "the mask of signals",
        (partial(_sigmask, signal.SIG_BLOCK, ()),),
        partial(signal.pthread_sigmask, signal.SIG_SETMASK),
    ),
    Entry(
        "whether faulthandler is enabled",
        (faulthandler.is_enabled,),
        lambda before: (
            faulthandler.enable(2, all_threads=False) if before else faulthandler.disable()
        ),
    ),
    Entry("the working directory", (_directory,), os.chdir, told=("os.chdir",)),
    Entry("the umask", (_umask,), os.umask),
    Entry(
        "variables of the environment that were changed or removed, and TZ",
        (partial(dict, _RAW),),
        _put_back_environment,
        keeps=True,
        told=("os.putenv", "os.unsetenv"),
    ),
    Entry(
        "the local time zone",
        (partial(attrgetter("timezone", "tzname"), time),),
        lambda before: time.tzset(),
    ),
    Entry(
        "the locale",
        (partial(_locale.setlocale, _locale.LC_ALL, None),),
        partial(_locale.setlocale, _locale.LC_ALL),
    ),
    Entry("the standard input", (_standard_input,), _put_back_standard_input, is_slow=True),
    Entry(
        "`sys.stdin`, `sys.stdout` and `sys.stderr`",
        interpreter.STREAMS,
        interpreter.put_back_streams,
    ),
    Entry(
        "`sys.excepthook`, `threading.excepthook` and the other hooks of Python",
        interpreter.HOOKS,
        interpreter.put_back_hooks,
    ),
    Entry("functions that trace or profile", interpreter.TRACING, interpreter.put_back_tracing),
    Entry(
        "the limit on recursion, garbage collection and the other switches of the interpreter",
        interpreter.SWITCHES,
        interpreter.put_back_switches,
    ),
    Entry("filters of warnings", interpreter.FILTERS, interpreter.put_back_filters),
    Entry("`sys.path`", interpreter.PATHS, interpreter.put_back_path),
    Entry("`socket.setdefaulttimeout()`", (socket.getdefaulttimeout,), socket.setdefaulttimeout),
    Entry(
        "logging: levels, handlers, filters, disabled loggers, `logging.disable()`",
        (logs.take,),
        logs.put_back,
        first=logs.found,
    ),
    Entry(
        "resource limits on processor time, memory, files and their size",
        (partial(_limits, _STRIKING),),
        _put_back_limits,
        told=_LIMITING,
    ),
    Entry(
        "the other resource limits",
        (partial(_limits, _OTHERS),),
        _put_back_limits,
        told=_LIMITING,
    ),
    Entry(
        "niceness",
        (partial(os.getpriority, os.PRIO_PROCESS, 0),),
        partial(os.setpriority, os.PRIO_PROCESS, 0),
        is_slow=True,
    ),
    Entry("user and group", (os.getresuid, os.getresgid), _put_back_user, is_slow=True),
)
if hasattr(os, "sched_getaffinity"):
    ENTRIES += (
        Entry(
            "the processors that it may use",
            (partial(os.sched_getaffinity, 0),),
            partial(os.sched_setaffinity, 0),
            is_slow=True,
        ),
    )
