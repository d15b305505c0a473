"""The list of all that is put back in a worker after an attempt."""

import _locale
import _signal  # type: ignore[import-not-found]
import _thread
import contextlib
import contextvars
import decimal
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import thread as executors
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial, wraps
from operator import attrgetter, call
from types import CodeType, SimpleNamespace
from typing import Any

from .. import stacks

# Isolation of context variables: each attempt gets those from before the first attempt.

# The name of the variable in which the module decimal keeps its context.
_DECIMALS = "decimal_context"


class ContextVariables:
    """The source of a fresh context for each attempt, without the values that others have set."""

    def __init__(self) -> None:
        # The decimal context is kept only if there was one. Otherwise each attempt makes its
        # own.
        self._context: contextvars.Context | None = None
        self._decimals: decimal.Context | None = None

    def own(self) -> contextvars.Context:
        """Return a new context for one attempt."""
        if self._context is None:
            self._context = contextvars.copy_context()
            if any(variable.name == _DECIMALS for variable in self._context):
                self._decimals = self._context.run(decimal.getcontext).copy()
        own = self._context.copy()
        if self._decimals is not None:
            # A context only refers to the decimal context: give each attempt a copy.
            own.run(decimal.setcontext, self._decimals.copy())
        return own


# An entry of the list of all that is put back after each attempt.


@dataclass(frozen=True)
class Entry:
    """``parts`` return the values of now, and ``put_back(*values)`` makes them the values again.

    With ``keeps`` the entry may still differ afterwards, on purpose: what was added stays.
    ``told`` are audit events by which Python tells of a change before it makes one.
    ``signs(*values)`` are quicker to compare than the parts, and most changes show in them.
    """

    name: str
    # Called after each attempt: a function of C takes a fraction of the time of one of Python.
    parts: tuple[Callable[[], Any], ...]
    put_back: Callable[..., object]
    # Attributes of modules that belong to it, too; put_back() gets the tuple of them first. One
    # call reads those of all entries.
    attributes: tuple[str, ...] = ()
    keeps: bool = False
    # Where the first value takes longer than those that are compared with it.
    first: Callable[[], Any] | None = None
    told: tuple[str, ...] = ()
    signs: Callable[..., tuple[Callable[[], Any], ...]] | None = None
    # What strikes nobody at once, and takes longer to take than the rest.
    is_slow: bool = False

    def urgent(self, values: Iterable[Any]) -> tuple[Callable[[], Any], ...]:
        """Return what is compared after each attempt; ``values`` are those to be put back.

        So are its attributes. The rest waits until something has changed, or until the next
        comparison of everything.
        """
        if self.signs is not None:
            return self.signs(*values)
        return () if self.is_slow or self.told else self.parts

    @property
    def all_parts(self) -> tuple[Callable[[], Any], ...]:
        """The parts, with one that reads the attributes."""
        return (reading(self.attributes), *self.parts) if self.attributes else self.parts

    def take(self) -> list[Any]:
        """Return the values of now."""
        return [part() for part in self.all_parts]


# Where the attributes of entries are found.
_MODULES = SimpleNamespace(
    sys=sys, threading=threading, warnings=warnings, time=time, logging=logging
)


def reading(attributes: Sequence[str]) -> Callable[[], Any]:
    """Return a function that returns these attributes of modules, as a tuple if there are more."""
    return partial(attrgetter(*attributes), _MODULES)


# The state of the Python interpreter that a handler may change.

STREAMS = ("sys.stdin", "sys.stdout", "sys.stderr")
HOOKS = ("sys.excepthook", "sys.unraisablehook", "sys.displayhook", "threading.excepthook")
# What threading.gettrace() and threading.getprofile() return.
TRACED_THREADS = ("threading._trace_hook", "threading._profile_hook")
TRACING = (sys.gettrace, sys.getprofile, tracemalloc.is_tracing)
LIMITS_OF_PYTHON = (sys.getrecursionlimit, sys.get_int_max_str_digits)
SWITCHES = (sys.getswitchinterval, gc.isenabled, gc.get_threshold, gc.get_debug)


def put_back_streams(streams: tuple[Any, Any, Any]) -> None:
    sys.stdin, sys.stdout, sys.stderr = streams


def put_back_hooks(hooks: tuple[Any, Any, Any, Any]) -> None:
    sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook = hooks


def put_back_tracing(
    of_threads: tuple[Any, Any], trace: Any, profile: Any, is_tracing: bool
) -> None:
    sys.settrace(trace)
    sys.setprofile(profile)
    threading.settrace(of_threads[0])
    threading.setprofile(of_threads[1])
    (tracemalloc.start if is_tracing else tracemalloc.stop)()


def put_back_limits_of_python(recursion: int, digits: int) -> None:
    sys.setrecursionlimit(recursion)
    sys.set_int_max_str_digits(digits)


def put_back_switches(
    interval: float, is_collecting: bool, threshold: tuple[int, int, int], debug: int
) -> None:
    sys.setswitchinterval(interval)
    (gc.enable if is_collecting else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)


def put_back_filters(own: tuple[Any, Any], items: Iterable[Any]) -> None:
    warnings.simplefilter("default")  # this makes Python's caches of the filters void
    warnings.filters, warnings.showwarning = own
    warnings.filters[:] = items  # type: ignore[index]


def put_back_path(path: list[str], items: Iterable[str]) -> None:
    sys.path = path
    sys.path[:] = items


# The state of logging, which a handler may change: that of every logger.
#
# To compare all loggers takes longer than a task. So cheap signs are checked first: Python clears
# its cache of levels when a level is set, and its list of handlers when logging is configured. A
# change without such a sign is noticed at the next comparison of everything.

_ROOT: Any = logging.root
_MANAGER: logging.Manager = _ROOT.manager
# While this key is in the cache of the root logger, Python has not cleared the cache.
_MARK = "atp"
LOGGING_SIGNS = (
    # What getLogRecordFactory(), getLoggerClass() and disable return, and what is the manager's.
    reading(("logging._logRecordFactory", "logging._loggerClass")),
    partial(attrgetter("loggerClass", "_disable"), _MANAGER),
    partial(_ROOT._cache.__contains__, _MARK),
    partial(len, logging._handlerList),  # type: ignore[attr-defined]
)


class _Found:
    """The state of all loggers and their handlers at the time when this is made.

    A logger that an attempt creates is kept, in the state in which that attempt leaves it.
    """

    def __init__(self) -> None:
        self.disable, self.raises = _MANAGER.disable, logging.raiseExceptions
        self.classes = _classes()
        self.loggers: dict[logging.Logger, tuple[Any, ...]] = {}
        self.handlers: dict[logging.Handler, tuple[Any, ...]] = {}
        self._add_new()
        self._mark()

    def _add_new(self) -> None:
        for each in _loggers():
            if each not in self.loggers:
                self.loggers[each] = _facts(each)
                for handler in each.handlers:
                    facts = handler.level, list(handler.filters), handler.formatter
                    self.handlers.setdefault(handler, facts)

    @staticmethod
    def _mark() -> None:
        _ROOT._cache[_MARK] = True

    def is_as_it_was(self) -> bool:
        """Tell whether the loggers and handlers of that time are unchanged; add new ones."""
        is_same = (
            _classes() == self.classes
            and (_MANAGER.disable, logging.raiseExceptions) == (self.disable, self.raises)
            and all(_facts(each) == facts for each, facts in self.loggers.items())
            and all(
                (handler.level, handler.filters, handler.formatter) == facts
                for handler, facts in self.handlers.items()
            )
        )
        if is_same:
            self._add_new()
            self._mark()
        return is_same

    def put_back(self) -> None:
        factory, kind, _MANAGER.loggerClass = self.classes
        logging.setLogRecordFactory(factory)
        logging.setLoggerClass(kind)
        logging.disable(self.disable)
        logging.raiseExceptions = self.raises
        for each, (level, disabled, propagate, handlers, filters) in self.loggers.items():
            each.setLevel(level)
            each.disabled, each.propagate = disabled, propagate
            each.handlers[:], each.filters[:] = handlers, filters
        for handler, (level, filters, formatter) in self.handlers.items():
            handler.setLevel(level)
            handler.filters[:] = filters
            handler.formatter = formatter
        for each in _loggers():
            if each not in self.loggers:
                # By a configuration, which disables all loggers that it does not name.
                each.disabled = False
        self._add_new()
        self._mark()


class _Now:
    """The present state; ``==`` compares it with a :class:`_Found`."""

    def __eq__(self, found: Any) -> bool:
        return found.is_as_it_was()

    __hash__ = None  # type: ignore[assignment]


def take() -> _Now:
    """Return the present state, to be compared with the one that :func:`found` returned."""
    return _Now()


def found() -> _Found:
    """Return the present state in a form that can be put back later."""
    return _Found()


def put_back(before: _Found) -> None:
    before.put_back()


def _classes() -> tuple[Any, ...]:
    """Return the factory of records, and the classes of new loggers."""
    return logging.getLogRecordFactory(), logging.getLoggerClass(), _MANAGER.loggerClass


def _loggers() -> list[logging.Logger]:
    known = [each for each in _MANAGER.loggerDict.values() if isinstance(each, logging.Logger)]
    return [_ROOT, *known]


def _facts(
    logger: logging.Logger,
) -> tuple[int, bool, bool, list[logging.Handler], list[Any]]:
    return (
        logger.level,
        logger.disabled,
        logger.propagate,
        list(logger.handlers),
        list(logger.filters),
    )


# The list of all that is put back after each attempt, one entry each. docs/bad-tasks.md prints it.
#
# Everything is compared after an attempt, and put back where it differs, unless that was last done
# within EVERY: it takes several times as long as a short attempt. Within EVERY only what strikes
# the next attempt at once is compared, in some microseconds, and with hardly a system call: the
# signs of an entry, or all of it. If something differs there, or Python has told of a change (its
# audit events), everything is compared. So it is when a worker has nothing to do for EVERY.

# In seconds.
EVERY = 0.01

# As they are below the enums that the module signal makes of the answers.
_getsignal, _sigmask = _signal.getsignal, _signal.pthread_sigmask
# The environment as Python keeps it, in bytes: quicker to compare.
_RAW: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
# The signals that a worker may get at any time: from timers, from its children, from whoever stops
# or asks it, and by writing to what is closed.
_SIGNALS = [
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGCHLD, signal.SIGPIPE),
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGXCPU, signal.SIGXFSZ),
]
_OTHER_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, *_SIGNALS})
_LIMITS = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
# Whoever passes one of these is killed, or fails.
_STRIKING = [
    *(resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_DATA),
    *(resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE),
]
_OTHERS = sorted(_LIMITS - {*_STRIKING})
_LIMITING = ("resource.setrlimit", "resource.prlimit")
_PROCESSOR_TIMERS = (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
# To read all categories of the locale at once takes several times as long.
_CATEGORIES = tuple(
    partial(_locale.setlocale, category, None)
    for category in (_locale.LC_NUMERIC, _locale.LC_CTYPE, _locale.LC_TIME)
)


def _directory() -> bytes | None:
    try:
        return os.getcwdb()
    except OSError:  # that in which it is has been removed
        return None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _put_back_environment(before: Mapping[Any, Any]) -> None:
    for name, value in before.items():
        if _RAW.get(name) != value:
            os.environ[os.environ.decodekey(name)] = os.environ.decodevalue(value)
    if b"TZ" not in before:
        os.environ.pop("TZ", None)


def _handlers(numbers: Iterable[int]) -> list[Any]:
    return [*map(_getsignal, numbers)]


def _put_back_handlers(before: Iterable[Any], numbers: Iterable[int] = _SIGNALS) -> None:
    for number, handler in zip(numbers, before, strict=True):
        # A handler that was not set from Python cannot be put back.
        if _getsignal(number) is not handler and handler is not None:
            signal.signal(number, handler)


def _put_back_other_handlers(before: Iterable[Any]) -> None:
    _put_back_handlers(before, numbers=_OTHER_SIGNALS)
    # The handler of faulthandler is none of those that Python knows.
    stacks.answer_again()


def _put_back_standard_input(*before: object) -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.dup2(descriptor, 0)
    if descriptor:
        os.close(descriptor)


def _standard_input() -> tuple[int, int] | None:
    try:
        found = os.fstat(0)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _limits(numbers: Iterable[int]) -> list[tuple[int, tuple[int, int]]]:
    return [(number, resource.getrlimit(number)) for number in numbers]


def _put_back_limits(before: Iterable[tuple[int, tuple[int, int]]]) -> None:
    for number, limits in before:
        with contextlib.suppress(OSError, ValueError):  # one that was lowered for good
            resource.setrlimit(number, limits)


def _stop_processor_timers(*before: object) -> None:
    for timer in _PROCESSOR_TIMERS:
        signal.setitimer(timer, 0)


def _put_back_user(users: tuple[int, int, int], groups: tuple[int, int, int]) -> None:
    os.setresuid(*users)
    os.setresgid(*groups)


TIMERS = (
    Entry(
        "the alarm, and the timer of SIGALRM",
        # Each call stops it, and returns 0 if there was none. The timer of setitimer() is the same.
        (partial(signal.alarm, 0),),
        lambda before: None,
        first=lambda: 0 * signal.alarm(0),
        # As below; and an alarm comes after a second.
        is_slow=True,
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
ENTRIES: tuple[Entry, ...] = (
    *TIMERS,
    Entry(
        "handlers of signals that a worker gets: of timers, children, pipes, and to stop or ask it",
        (partial(_handlers, _SIGNALS),),
        _put_back_handlers,
    ),
    Entry(
        "handlers of all other signals",
        (partial(_handlers, _OTHER_SIGNALS),),
        _put_back_other_handlers,
        is_slow=True,
    ),
    Entry(
        "the mask of signals",
        (partial(_sigmask, signal.SIG_BLOCK, ()),),
        partial(signal.pthread_sigmask, signal.SIG_SETMASK),
        is_slow=True,
    ),
    Entry(
        "whether faulthandler is enabled",
        (faulthandler.is_enabled,),
        lambda before: (
            faulthandler.enable(2, all_threads=False) if before else faulthandler.disable()
        ),
        is_slow=True,
    ),
    Entry("the working directory", (_directory,), os.chdir, told=("os.chdir",)),
    # To set it returns the one before.
    Entry("the umask", (_umask,), os.umask, signs=lambda mask: (partial(os.umask, mask),)),
    Entry(
        "variables of the environment that were changed or removed, and TZ",
        (partial(dict, _RAW),),
        _put_back_environment,
        keeps=True,
        told=("os.putenv", "os.unsetenv"),
    ),
    Entry(
        "the local time zone",
        (),
        lambda before: time.tzset(),
        attributes=("time.timezone", "time.tzname"),
    ),
    Entry(
        "the locale",
        (partial(_locale.setlocale, _locale.LC_ALL, None),),
        partial(_locale.setlocale, _locale.LC_ALL),
        signs=lambda locale: _CATEGORIES,
    ),
    Entry("the standard input", (_standard_input,), _put_back_standard_input, is_slow=True),
    Entry(
        "`sys.stdin`, `sys.stdout` and `sys.stderr`",
        (),
        put_back_streams,
        attributes=STREAMS,
    ),
    Entry(
        "`sys.excepthook`, `threading.excepthook` and the other hooks of Python",
        (),
        put_back_hooks,
        attributes=HOOKS,
    ),
    Entry("functions that trace or profile", TRACING, put_back_tracing, attributes=TRACED_THREADS),
    Entry(
        "the limits on recursion and on the digits of integers",
        LIMITS_OF_PYTHON,
        put_back_limits_of_python,
    ),
    Entry(
        "garbage collection and how often threads take turns",
        SWITCHES,
        put_back_switches,
        is_slow=True,
    ),
    # The list object of the filters, and its items.
    Entry(
        "filters of warnings",
        (lambda: warnings.filters[:],),
        put_back_filters,
        attributes=("warnings.filters", "warnings.showwarning"),
    ),
    Entry("`sys.path`", (lambda: sys.path[:],), put_back_path, attributes=("sys.path",)),
    Entry("`socket.setdefaulttimeout()`", (socket.getdefaulttimeout,), socket.setdefaulttimeout),
    Entry(
        "logging: levels, handlers, filters, disabled loggers, `logging.disable()`, factories",
        (take,),
        put_back,
        first=found,
        signs=lambda found: LOGGING_SIGNS,
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


# Lifelines: descriptors that a worker needs, and that a handler could close by mistake.


class Lifelines:
    """The descriptors that a worker needs, with the inodes that they should have."""

    def __init__(self, *descriptors: int) -> None:
        self._descriptors = descriptors
        self._inodes = self._identify()

    def check(self) -> None:
        """Raise OSError if a handler has closed one of them, even if it has reused the number."""
        if self._inodes != self._identify():
            raise OSError("a handler closed the descriptors of its worker")

    def _identify(self) -> list[int]:
        return [os.fstat(number).st_ino for number in self._descriptors]


# The state of a worker's process, put back after each task that has changed it.


# By these events Python tells that it starts a process.
_STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}


class Told:
    """What Python has told of by audit events: ``heard`` of a change, ``starts`` of a process.

    ``copies`` counts the forks that lie between this process and the one in which this was made.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.heard = self.starts = False
        self.copies = 0
        self._names = frozenset(names)
        sys.addaudithook(self._hear)
        os.register_at_fork(after_in_child=self._note_copy)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event in self._names:
            self.heard = True
        elif event in _STARTS:
            self.starts = True

    def _note_copy(self) -> None:
        self.copies += 1


@cache
def told() -> Told:
    """Return the :class:`Told` of this process. There is one, as an audit hook stays for good."""
    return Told(name for each in ENTRIES for name in each.told)


class ProcessState:
    """The state of the process at the moment when this is made: all of the entries.

    It also tells the worker from a copy of it: a handler that forks and lets
    its child return must not have two workers answer.
    """

    def __init__(self, entries: Collection[Entry] = ENTRIES) -> None:
        self._compared = 0.0
        # Whether everything has been compared since the last attempt.
        self.is_whole = False
        self._told = told()
        self._copies = self._told.copies
        self._found = [(each, [each.first()] if each.first else each.take()) for each in entries]
        # What is compared after each attempt, and everything. To call the parts of all entries at
        # once takes half the time of one entry after the other.
        self._urgent = [part for each, values in self._found for part in each.urgent(values)]
        attributes = [name for each in entries for name in each.attributes]
        if attributes:
            self._urgent.append(reading(attributes))
        self._parts = [part for each, _ in self._found for part in each.all_parts]
        self._note()

    def _note(self) -> None:
        """Note the values of everything, and of what is compared after each attempt.

        If those cannot be read, they equal nothing: then everything is compared each time.
        """
        self._before = [value for _, values in self._found for value in values]
        self._values: list[Any] | None = None
        with suppress(Exception):
            self._values = [*map(call, self._urgent)]

    def restore(self) -> str:
        """Put everything back; returns what to say of what could not be. In a copy, end it."""
        if self._told.copies != self._copies:
            os._exit(0)
        # This is done after each task.
        now = time.monotonic()
        is_due = now - self._compared >= EVERY
        is_same = self._is_as_it_was
        self.is_whole = is_due or self._told.heard or not is_same(self._urgent, self._values)
        if not self.is_whole:
            return ""
        self._compared, self._told.heard = now, False
        names: list[str] = []
        if not is_same(self._parts, self._before):
            names = [name for place in range(len(self._found)) if (name := self._put_back(place))]
        self._note()
        return f"a handler changed for good: {', '.join(names)}" if names else ""

    @staticmethod
    def _is_as_it_was(parts: list[Callable[[], Any]], before: list[Any] | None) -> bool:
        """Tell whether the values of now are those from before.

        A handler may have removed what is read, or put an object there that cannot be compared.
        """
        try:
            return [*map(call, parts)] == before
        except BaseException:  # even SystemExit does not end the worker
            return False

    def _put_back(self, place: int) -> str:
        """Put an entry back if it has changed; returns its name if that was in vain."""
        entry, before = self._found[place]
        with suppress(BaseException):
            if entry.take() == before:
                return ""
        try:
            entry.put_back(*before)
            now = entry.take()
        except Exception as error:
            return f"{entry.name} ({error})"
        if entry.keeps:
            self._found[place] = entry, now
        return "" if entry.keeps or now == before else entry.name


# The threads of an attempt, and those that earlier attempts have left behind.

# The attribute of a thread that names the attempt in which it was started.
_OWNER = "_atp_attempt"
_STRAY = object()


def _codes_of_idle_threads() -> Set[CodeType]:
    """Return the code in which a pool's thread waits for its next work, of a later attempt."""
    codes = {executors._worker.__code__}
    if (pools := sys.modules.get("multiprocessing.pool")) is not None:
        codes.add(pools.worker.__code__)
    return codes


class Threads:
    """The test whether the current thread is part of the running attempt.

    A thread that a thread of an earlier attempt has started is part of that earlier attempt.
    """

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._attempt: object = None
        self._strays: Set[int] = frozenset()
        self._idle: Set[int] = frozenset()

    def install(self) -> None:
        """Note, for each thread from now on, the attempt in which it is started."""
        start = threading.Thread.start

        @wraps(start)
        def noted(thread: threading.Thread) -> None:
            setattr(thread, _OWNER, self._attempt if self.is_of_attempt() else _STRAY)
            return start(thread)

        threading.Thread.start = noted  # type: ignore[method-assign, assignment]

    def begin(self) -> None:
        """Begin an attempt; the threads that exist now belong to earlier ones."""
        self._attempt = object()
        if _thread._count():  # else there is no other thread
            frames = sys._current_frames()
            codes = _codes_of_idle_threads()
            self._idle = {each for each, frame in frames.items() if frame.f_code in codes}
            self._strays = frames.keys() - self._idle - {self._main}

    def is_of_attempt(self) -> bool:
        ident = threading.get_ident()
        if ident == self._main:
            return True
        owner = getattr(threading._active.get(ident), _OWNER, None)  # type: ignore[attr-defined]
        if owner is None:
            return ident not in self._strays
        return owner is self._attempt or (owner is not _STRAY and ident in self._idle)
