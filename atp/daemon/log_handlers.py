"""The project's log handlers, called so that they can stop nothing."""

import contextlib
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias

from django.db import connections

from .. import text as wording
from . import stderr
from .stderr import NonBlockingHandler

# What ``exc_info`` may be, as in the logging module.
ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None]
    | tuple[None, None, None]
    | BaseException
    | bool
    | None
)
# What a logger would have done with a record, and what is called instead.
Handle: TypeAlias = Callable[[logging.LogRecord], object]
Take: TypeAlias = Callable[[Handle, logging.Logger, logging.LogRecord], object]

# Guarded calls of the project's log handlers: an exception costs the handlers' line alone.

# Exceptions of handlers are reported on standard error once in this many seconds at most.
TELL_EVERY = 10.0
# The words of each complaint, and what it says if one of them raised.
FAILED = "the project's log handlers failed: {what}"
RAISED = "a handler, filter or formatter raised"

_thread = threading.local()


def is_inside() -> bool:
    """Tell whether this thread is inside a log handler of the project.

    Lines that are logged inside one go to the loggers unchanged, as outside of a daemon.
    """
    return getattr(_thread, "is_inside", False)


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Mark the lines that are logged in the block as the handlers' own."""
    before, _thread.is_inside = is_inside(), True
    try:
        yield
    finally:
        _thread.is_inside = before


def guarded(call: Callable[..., object], *arguments: Any) -> None:
    """Call the function; catch what it raises, and report that on standard error."""
    try:
        with inside():
            call(*arguments)
    except BaseException as error:
        complaints.tell(RAISED, error)


def close_broken_connections() -> None:
    """Close failed database connections of this thread; log handlers may have opened them."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred and not connection.in_atomic_block:
            connection.close()


class Complaints:
    """Complaints about the project's handlers, on standard error. Writing one never waits.

    One is written every TELL_EVERY seconds at most. It looks like the line of
    ``journal.handlers_failed(what=…)``, but bypasses all loggers.
    """

    def __init__(self) -> None:
        self._due, self._more = 0.0, 0
        self._file: tuple[int, int] | None = None
        self._write: Any = None
        self.formatter = logging.Formatter()

    def tell(self, what: str, error: BaseException | None = None) -> None:
        """Write a complaint, with the traceback of the error; if it comes too soon, count it."""
        now = time.monotonic()
        if now < self._due:
            self._more += 1
            return
        if self._more:
            what = f"{what} (complaints since the last line: {self._more})"
        self._due, self._more = now + TELL_EVERY, 0
        with contextlib.suppress(Exception):
            values = {"what": what}
            words = FAILED.format_map(values)
            record = logging.LogRecord("atp.daemon", logging.ERROR, "", 0, words, (), None)
            record.fact, record.values = "handlers_failed", values
            line = self._formatted(record, error) + "\n"
            self._writer()(line.encode("utf-8", "backslashreplace"))

    def _formatted(self, record: logging.LogRecord, error: BaseException | None) -> str:
        if error is None:
            return self.formatter.format(record)
        try:
            record.exc_info = type(error), error, error.__traceback__
            return self.formatter.format(record)
        except BaseException:  # an exception of the project that refuses to be printed
            record.exc_info, record.exc_text = None, type(error).__name__
            return self.formatter.format(record)

    def _writer(self) -> Callable[[bytes], object]:
        # Look at standard error each time: a worker's is not that of its parent.
        status = os.fstat(2)
        if self._file != (status.st_dev, status.st_ino):
            self._file = status.st_dev, status.st_ino
            self._write = stderr.writer(2)
        return self._write


complaints = Complaints()


# The interception of a process's loggers: its records go to a function instead of the handlers.
#
# All loggers are intercepted, not those of ATP alone. A daemon's process also logs through
# Django's loggers, and handlers of the root logger get the records of all of them.
#
# Why this is not logging's QueueHandler with a QueueListener. A QueueHandler stands in the place of
# a logger's handlers. Before it is called, the process that logs has run what else the project may
# have: the factory of records, the filters of the logger, its class of loggers. If one of these
# raises, blocks or waits for a pipe, the dispatcher renews no lease meanwhile, and the supervisor
# kills nobody (G3, G5, G11). Handlers that the project adds later would not be replaced. The
# supervisor cannot have the listener's thread, since it forks (log_process.py). And the listener
# keeps an unbounded queue: here at most MOST_WAITING lines wait, and the dropped ones are counted.
# In tests/daemon/test_log_sinks.py factories, filters, formatters and handlers raise and block.


class Loggers:
    """The loggers of this process, which can be intercepted."""

    def __init__(self) -> None:
        self._take: Any = None
        self._is_left: Callable[[], bool] | None = None
        self._replaced: list[tuple[type[logging.Logger], str, Any]] = []

    def intercept(self, take: Take, is_left: Callable[[], bool] | None = None) -> None:
        """Call ``take(handle, logger, record)`` for each record that is logged from now on.

        ``handle(record)`` does what the logger would have done. While ``is_left()`` is true,
        the loggers work as in any process.
        """
        self.stop()
        self._take, self._is_left = take, is_left
        for kind in _with_subclasses(logging.Logger):
            for name, wrapper in (("handle", self._handle), ("_log", self._log)):
                if name in vars(kind):
                    self._replace(kind, name, wrapper(vars(kind)[name]))
        if is_left is None:
            self._replace(logging.Logger, "isEnabledFor", is_enabled)

    def _replace(self, kind: type[logging.Logger], name: str, function: Callable[..., Any]) -> None:
        self._replaced.append((kind, name, vars(kind)[name]))
        setattr(kind, name, function)

    def stop(self) -> None:
        """End the interception: the loggers call their handlers themselves again."""
        while self._replaced:
            setattr(*self._replaced.pop())

    def emit(
        self,
        logger: logging.Logger,
        level: int,
        message: str,
        exc_info: ExcInfo = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Log a line of ATP itself. While loggers are intercepted, this calls no project code."""
        record = made(logger, level, message, exc_info, extra)
        if not self._replaced:
            record = completed(logger, record)
        logger.handle(record)

    def _applies(self) -> bool:
        return not (is_inside() or (self._is_left is not None and self._is_left()))

    def _handle(
        self, original: Callable[[logging.Logger, logging.LogRecord], None]
    ) -> Callable[[logging.Logger, logging.LogRecord], None]:
        is_standard_ = is_standard(original)

        def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
            if not self._applies():
                return original(logger, record)
            ours, is_all = handlers_of_atp(logger) if is_standard_ else ([], False)
            for handler in ours:
                if record.levelno >= handler.level:
                    guarded(handler.handle, record)
            if is_all:
                return None
            record._is_written = bool(ours)
            return self._take(partial(_handle, original, logger), logger, record)

        return handle

    def _log(self, original: Callable[..., None]) -> Callable[..., None]:
        is_standard_ = is_standard(original)

        def _log(logger: logging.Logger, *args: Any, **more: Any) -> None:
            if is_standard_:  # skip this function when looking for the caller
                more["stacklevel"] = more.get("stacklevel", 1) + 1
            if not self._applies():
                return original(logger, *args, **more)
            try:
                original(logger, *args, **more)
            except Exception as error:  # of the factory of records, or of a logger's own class
                complaints.tell("a line could not be logged", error)

        return _log


def _handle(
    original: Callable[[logging.Logger, logging.LogRecord], None],
    logger: logging.Logger,
    record: logging.LogRecord,
) -> None:
    original(logger, completed(logger, record))


def _with_subclasses(kind: type[logging.Logger]) -> Iterator[type[logging.Logger]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _with_subclasses(each)


loggers = Loggers()


# Log records on their way to the project's handlers: making, packing and unpacking them.

# The attributes of a record that name the process, the thread and the time of its making.
_ORIGIN = (
    *("created", "msecs", "relativeCreated", "thread", "threadName", "process", "processName"),
    *("taskName",),
)
# A record that was made without the project's factory has this attribute.
_BARE = "_atp_bare"
_PLAIN = (str, int, float, bool, type(None))


def is_enabled(logger: logging.Logger, level: int) -> bool:
    """Tell whether the logger takes this level. Unlike the logger's own method, take no lock."""
    if logger.disabled or logger.manager.disable >= level:
        return False
    return level >= logging.Logger.getEffectiveLevel(logger)


def is_standard(function: object) -> bool:
    """Tell whether the function is from Python's logging module, and not a replacement."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == logging.Logger.makeRecord.__code__.co_filename


def handlers_of_atp(logger: logging.Logger) -> tuple[list[logging.Handler], bool]:
    """Return ATP's own handlers for this logger's records, and whether there are no others.

    ATP's own handlers never wait. If the project has a filter, a factory or a class of its own
    before them, they do not count as ATP's own.
    """
    if type(logger) is not logging.Logger or logger.filters or logger.disabled:
        return [], False
    if logging.getLogRecordFactory() is not logging.LogRecord:
        return [], False
    found: list[logging.Handler] = []
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    ours = [each for each in found if _is_ours(each)]
    is_all = bool(found) and len(ours) == len(found)
    return ours, is_all and is_standard(logging.Logger.callHandlers)


def _is_ours(handler: logging.Handler) -> bool:
    formatter = type(handler.formatter)
    is_plain = type(handler) is NonBlockingHandler and not handler.filters
    return is_plain and formatter.__dict__.get("is_of_atp", False)


def made(
    logger: logging.Logger,
    level: int,
    message: str,
    exc_info: Any = None,
    extra: Mapping[str, Any] | None = None,
) -> logging.LogRecord:
    """Return a record of ATP itself. No code of the project has seen it yet."""
    if isinstance(exc_info, BaseException):
        exc_info = (type(exc_info), exc_info, exc_info.__traceback__)
    elif exc_info and not isinstance(exc_info, tuple):
        exc_info = sys.exc_info()
    record = logging.LogRecord(logger.name, level, __file__, 0, message, (), exc_info or None)
    if record.exc_info:
        # Other formatters take this text instead of making their own.
        text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = wording.continuation_lines(text)
    record.__dict__ |= extra or {}
    record.__dict__[_BARE] = tuple(extra or ())
    return record


def completed(logger: logging.Logger, record: logging.LogRecord) -> logging.LogRecord:
    """Return the record remade by the project's factory, with the origin of the given one.

    A record that came from that factory is returned unchanged.
    """
    extra = record.__dict__.pop(_BARE, None)
    if extra is None or logging.getLogRecordFactory() is logging.LogRecord:
        return record
    facts = record.__dict__
    made = logger.makeRecord(
        *(record.name, record.levelno, record.pathname, record.lineno, record.msg, ()),
        record.exc_info,
        extra={name: facts[name] for name in extra},
    )
    made.exc_text = record.exc_text
    made.__dict__ |= {name: facts[name] for name in _ORIGIN if name in facts}
    return made


def packed(record: logging.LogRecord) -> bytes:
    """Return a record as bytes: its message, its traceback as text, its other values made plain."""
    facts = dict(record.__dict__)
    facts["msg"], facts["args"] = record.getMessage(), ()
    if record.exc_info and not record.exc_text:
        facts["exc_text"] = logging.Formatter().formatException(record.exc_info)
    facts["exc_info"] = None
    return pickle.dumps({name: _plain(value) for name, value in facts.items()})


def unpacked(data: bytes) -> logging.LogRecord:
    """Return the record that :func:`packed` has turned into these bytes."""
    return logging.makeLogRecord(pickle.loads(data))  # noqa: S301 (our own parent)


def _plain(value: Any) -> Any:
    """Return the value, or its text, so that unpickling calls no project code and cannot fail."""
    if type(value) in _PLAIN:
        return value
    if type(value) in (tuple, list):
        return tuple(map(_plain, value))
    if type(value) is dict:
        return {str(name): _plain(each) for name, each in value.items()}
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"
