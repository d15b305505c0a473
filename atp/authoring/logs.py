"""Format the exceptions that handlers raise for the log, and read their attributes safely.

The application defines the classes of these exceptions, so reading any attribute can raise.
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

# At most this many exceptions are followed, in groups and from cause to cause.
MOST = 1000
# Exceptions of these classes decide how an attempt ends, even in an exception group.
SPEAKING = (Interrupted, Retry, Defer, Fatal, Unavailable)

# The slots of BaseException itself, which no class can override.
_SLOTS = {
    name: BaseException.__dict__[name].__get__
    for name in ("__traceback__", "__cause__", "__context__")
}
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MEMBERS = BaseExceptionGroup.__dict__["exceptions"].__get__


# Text for the log: clean, not too long, exceptions with their tracebacks.


def clean(text: str) -> str:
    """Return text after replacing NUL and lone surrogates, which databases cannot store."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def shorten(text: str) -> str:
    """Return text that fits into the log, by cutting out the middle, which matters least."""
    limit = settings.MAX_LOG_MESSAGE
    if len(text) <= limit:
        return text
    half = max((limit - 40) // 2, 1)
    return f"{text[:half]}\n… {len(text) - 2 * half} characters …\n{text[-half:]}"


def exception_message(error: BaseException) -> str:
    """Return the message of an exception, or the name of its class if the message is unreadable.

    The message can be "".
    """
    text = exception_text(error)
    return clean(shorten(exception_name(error) if text is None else text))


def describe_exception(error: BaseException) -> str:
    """Return an exception and its traceback as text for the log.

    :func:`.text.headline` finds the line with the exception's class and message in this text.
    """
    headline = f"{exception_name(error)}: {exception_message(error)}".removesuffix(": ")
    try:
        lines = traceback.format_exception(type(error), error, exception_trace(error))
        text = "".join(lines).rstrip()
        if is_a(error, BaseExceptionGroup):  # a group's traceback ends with those of its parts
            text = f"{text}\n{headline}"
    except BaseException:  # the notes, causes or attributes of the exception may raise
        text = f"{_format_frames(error)}{headline}"
    return clean(shorten(text))


def _format_frames(error: BaseException) -> str:
    try:
        lines = "".join(traceback.format_tb(exception_trace(error)))
        return f"Traceback (most recent call last):\n{lines}"
    except BaseException:
        return ""


# Facts about an exception.


def is_a(error: BaseException, *kinds: Any) -> bool:
    """Return True if an exception is an instance of one of these classes.

    Unlike isinstance(), this ignores ``__class__``, which an application can override.
    """
    try:
        return issubclass(type(error), kinds)
    except BaseException:  # a class may define its own check
        return False


def exception_attribute(error: BaseException, name: str) -> Any:
    """Return an attribute of an exception; None if there is none, or if reading it fails."""
    try:
        return getattr(error, name, None)
    except BaseException:
        return None


def exception_text(error: BaseException) -> str | None:
    """Return the text of an exception as a plain str; None if reading it fails."""
    try:
        return str.__str__(str(error))  # __str__ may return a subclass of str
    except BaseException:
        return None


def exception_name(error: BaseException) -> str:
    """Return the name of an exception's class."""
    found = type.__dict__["__name__"].__get__(type(error))
    return str.__str__(found)


def exception_trace(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception."""
    found: TracebackType | None = _SLOTS["__traceback__"](error)
    return found


def exception_cause(error: BaseException) -> BaseException | None:
    """Return the ``__cause__`` of an exception, from ``raise … from``; None if there is none."""
    found: BaseException | None = _SLOTS["__cause__"](error)
    return found


def exception_delay(
    error: BaseException, name: str = "after", *, is_from_zero: bool = True
) -> float | None:
    """Return the delay in an exception's attribute ``name``, in seconds; None if it is not valid.

    The application can define the exception's class, so the attribute can be missing or can have
    any value. ``is_from_zero`` says whether 0 is a valid delay.
    """
    found = exception_attribute(error, name)
    try:
        seconds = found.total_seconds() if isinstance(found, timedelta) else float(found)
        is_valid = 0 <= seconds <= LONGEST_DELAY and (seconds > 0 or is_from_zero)
    except BaseException:
        return None
    return seconds if is_valid else None


def unwrap_single(error: BaseException) -> BaseException:
    """Return the exception inside a group that has only one, or else ``error`` itself."""
    if is_a(error, BaseExceptionGroup):
        parts = list(_parts(error))
        if len(parts) == 1:
            return parts[0]
    return error


def deciding_exception(error: BaseException) -> BaseException:
    """Return the exception that decides how an attempt ends after its handler raised ``error``.

    If ``error`` is a group, as asyncio.TaskGroup raises, and all its exceptions are of one class in
    SPEAKING, then the exception with the longest delay decides. Otherwise ``error`` itself decides.
    """
    if not is_a(error, BaseExceptionGroup):
        return error
    parts = list(_parts(error))
    for kind in SPEAKING:
        if parts and all(is_a(each, kind) for each in parts):
            return max(parts, key=lambda each: exception_delay(each) or 0.0)
    return error


def clear_variables(error: BaseException) -> None:
    """Clear the local variables of the functions in the traceback of an exception.

    Otherwise a function that keeps the exception in a variable would keep all its other variables
    alive until the garbage collector runs.
    """
    seen = set[int]()
    waiting = [(each, True) for each in (error, *_parts(error))]
    while waiting and len(seen) < MOST:
        each, has_passed = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        _clear_frames(exception_trace(each), has_passed)
        earlier = (exception_cause(each), _SLOTS["__context__"](each))
        waiting += [(other, False) for other in earlier if other is not None]


def _clear_frames(trace: TracebackType | None, has_passed: bool) -> None:
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        # A generator that caught the exception may continue; one that let it through has ended.
        if has_passed or not frame.f_code.co_flags & _GENERATORS:
            with contextlib.suppress(RuntimeError):  # the frame still runs: it is ATP's own
                frame.clear()


def _parts(group: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and in its nested groups, up to MOST of them."""
    waiting, count = [group], 0
    while waiting and count < MOST:
        each = waiting.pop()
        count += 1
        if is_a(each, BaseExceptionGroup):
            waiting += reversed(_MEMBERS(each))
        else:
            yield each
