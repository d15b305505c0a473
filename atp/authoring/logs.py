"""What a handler raises, as text for the log; reading exceptions that may raise when they are
read.
"""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any

from ..conf import settings
from ..exceptions import LONGEST_DELAY, Defer, Fatal, Interrupted, Retry, Unavailable

# Text that fits the log: clean, not too long, exceptions with their tracebacks.


def clean(text: str) -> str:
    """Make text fit a database column: PostgreSQL takes no NUL, UTF-8 no lone surrogate."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def shorten(text: str) -> str:
    """Cut out the middle of text that is too long for the log: the middle matters least."""
    limit = settings.MAX_LOG_MESSAGE
    if len(text) <= limit:
        return text
    half = max((limit - 40) // 2, 1)
    return f"{text[:half]}\n… {len(text) - 2 * half} characters …\n{text[-half:]}"


def words(error: BaseException) -> str:
    """Return the message of an exception, which may be ""; its class if it cannot be read."""
    text = exception_text(error)
    return clean(shorten(exception_name(error) if text is None else text))


def describe(error: BaseException) -> str:
    """Return an exception with its traceback for the log.

    The exception's own line is what :func:`.wording.headline` returns.
    """
    named = f"{exception_name(error)}: {words(error)}".removesuffix(": ")
    try:
        lines = traceback.format_exception(type(error), error, exception_trace(error))
        text = "".join(lines).rstrip()
        if is_a(error, BaseExceptionGroup):  # its traceback ends with those of its parts
            text = f"{text}\n{named}"
    except BaseException:  # its notes, its causes, its attributes: all are the application's
        text = f"{_frames(error)}{named}"
    return clean(shorten(text))


def _frames(error: BaseException) -> str:
    try:
        return f"Traceback (most recent call last):\n{''.join(_lines(error))}"
    except BaseException:
        return ""


def _lines(error: BaseException) -> list[str]:
    return traceback.format_tb(exception_trace(error))


# Facts about an exception. The application defines its class, so any look at it may raise.

# At most this many exceptions are followed, in groups and from cause to cause.
MOST = 1000
# These classes themselves decide what becomes of the attempt, even in a group.
SPEAKING = (Interrupted, Retry, Defer, Fatal, Unavailable)

# The slots of BaseException itself, which no class can override.
_SLOTS = {
    name: BaseException.__dict__[name].__get__
    for name in ("__traceback__", "__cause__", "__context__")
}
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MEMBERS = BaseExceptionGroup.__dict__["exceptions"].__get__


def is_a(error: BaseException, *kinds: Any) -> bool:
    """Whether an exception is of one of these classes, by its type and not its ``__class__``."""
    try:
        return issubclass(type(error), kinds)
    except BaseException:  # a class may have a check of its own
        return False


def exception_attribute(error: BaseException, name: str) -> Any:
    """Return an attribute; None if there is none, or if it cannot be read."""
    try:
        return getattr(error, name, None)
    except BaseException:
        return None


def exception_text(error: BaseException) -> str | None:
    """Return the text of an exception as a plain str; None if it has none to give."""
    try:
        return str.__str__(str(error))  # what __str__ returns may be of a subclass
    except BaseException:
        return None


def exception_name(error: BaseException) -> str:
    """Return the name of the class of an exception."""
    found = type.__dict__["__name__"].__get__(type(error))
    return str.__str__(found)


def exception_trace(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception."""
    found: TracebackType | None = _SLOTS["__traceback__"](error)
    return found


def exception_cause(error: BaseException) -> BaseException | None:
    """Return the exception ``from`` which an exception was raised; None if there is none."""
    found: BaseException | None = _SLOTS["__cause__"](error)
    return found


def exception_delay(
    error: BaseException, name: str = "after", *, is_from_zero: bool = True
) -> float | None:
    """Return the delay that an exception asks for, in seconds; None if there is no sound one.

    The constructor of its class may leave the delay out, or set it to anything.
    """
    found = exception_attribute(error, name)
    try:
        seconds = found.total_seconds() if isinstance(found, timedelta) else float(found)
        is_sound = 0 <= seconds <= LONGEST_DELAY and (seconds > 0 or is_from_zero)
    except BaseException:
        return None
    return seconds if is_sound else None


def alone(error: BaseException) -> BaseException:
    """Return the only exception in an exception group; else the exception itself."""
    if is_a(error, BaseExceptionGroup):
        parts = list(_parts(error))
        if len(parts) == 1:
            return parts[0]
    return error


def spoken(error: BaseException) -> BaseException:
    """Return the exception whose class decides what becomes of an attempt that raised ``error``.

    That is ``error`` itself, unless it is a group, as asyncio.TaskGroup raises, whose exceptions
    are all of one class in SPEAKING: then it is the one of them with the longest delay.
    """
    if not is_a(error, BaseExceptionGroup):
        return error
    parts = list(_parts(error))
    for kind in SPEAKING:
        if parts and all(is_a(each, kind) for each in parts):
            return max(parts, key=lambda each: exception_delay(each) or 0.0)
    return error


def release(error: BaseException) -> None:
    """Clear the variables of the functions that an exception came through: they have ended.

    Otherwise a function that keeps its own exception in a variable would keep all its other
    variables alive until garbage is collected.
    """
    seen = set[int]()
    waiting = [(each, True) for each in (error, *_parts(error))]
    while waiting and len(seen) < MOST:
        each, has_passed = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        _clear(exception_trace(each), has_passed)
        behind = (exception_cause(each), _SLOTS["__context__"](each))
        waiting += [(other, False) for other in behind if other is not None]


def _clear(found: TracebackType | None, has_passed: bool) -> None:
    while found is not None:
        frame, found = found.tb_frame, found.tb_next
        # A generator that caught the exception may go on; one that it came through has ended.
        if has_passed or not frame.f_code.co_flags & _GENERATORS:
            with contextlib.suppress(RuntimeError):  # the frame still runs: it is ATP's own
                frame.clear()


def _parts(group: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and in its nested groups, MOST at most."""
    waiting, count = [group], 0
    while waiting and count < MOST:
        each = waiting.pop()
        count += 1
        if is_a(each, BaseExceptionGroup):
            waiting += reversed(_MEMBERS(each))
        else:
            yield each
