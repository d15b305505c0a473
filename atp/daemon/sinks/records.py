"""Log records on their way to the project's handlers: making, packing and unpacking them."""

import logging
import pickle
import sys

from ... import text as wording
from ..system.stderr import NonBlockingHandler

# The attributes of a record that name the process, the thread and the time of its making.
_ORIGIN = (
    *("created", "msecs", "relativeCreated", "thread", "threadName", "process", "processName"),
    *("taskName",),
)
# A record that was made without the project's factory has this attribute.
_BARE = "_atp_bare"
_PLAIN = (str, int, float, bool, type(None))


def is_enabled(logger, level):
    """Tell whether the logger takes this level. Unlike the logger's own method, take no lock."""
    if logger.disabled or logger.manager.disable >= level:
        return False
    return level >= logging.Logger.getEffectiveLevel(logger)


def is_standard(function):
    """Tell whether the function is from Python's logging module, and not a replacement."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == logging.Logger.makeRecord.__code__.co_filename


def handlers_of_atp(logger):
    """Return ATP's own handlers for this logger's records, and whether there are no others.

    ATP's own handlers never wait. If the project has a filter, a factory or a class of its own
    before them, they do not count as ATP's own.
    """
    if type(logger) is not logging.Logger or logger.filters or logger.disabled:
        return [], False
    if logging.getLogRecordFactory() is not logging.LogRecord:
        return [], False
    found = []
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    ours = [each for each in found if _is_ours(each)]
    is_all = bool(found) and len(ours) == len(found)
    return ours, is_all and is_standard(logging.Logger.callHandlers)


def _is_ours(handler):
    formatter = type(handler.formatter)
    is_plain = type(handler) is NonBlockingHandler and not handler.filters
    return is_plain and formatter.__dict__.get("is_of_atp", False)


def made(logger, level, message, exc_info=None, extra=None):
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


def completed(logger, record):
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


def packed(record):
    """Return a record as bytes: its message, its traceback as text, its other values made plain."""
    facts = dict(record.__dict__)
    facts["msg"], facts["args"] = record.getMessage(), ()
    if record.exc_info and not record.exc_text:
        facts["exc_text"] = logging.Formatter().formatException(record.exc_info)
    facts["exc_info"] = None
    return pickle.dumps({name: _plain(value) for name, value in facts.items()})


def unpacked(data):
    """Return the record that :func:`packed` has turned into these bytes."""
    return logging.makeLogRecord(pickle.loads(data))  # noqa: S301 (our own parent)


def _plain(value):
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
