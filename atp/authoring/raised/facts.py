"""Facts about an exception. Its class is the application's, so any look at it may raise."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any

from ...words.raised import LONGEST_DELAY, Defer, Fatal, Interrupted, Retry, Unavailable

# Exceptions in groups, and causes of causes, are followed so far.
MOST = 1000
# These say themselves what becomes of their attempt, also alone in a group.
SPEAKING = (Interrupted, Retry, Defer, Fatal, Unavailable)

# The slots of BaseException itself, which no class can override.
_SLOTS = {
    name: BaseException.__dict__[name].__get__
    for name in ("__traceback__", "__cause__", "__context__")
}
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MEMBERS = BaseExceptionGroup.__dict__["exceptions"].__get__


def is_a(error: BaseException, *kinds: Any) -> bool:
    """Whether an exception is of one of these classes, by its type and not by its word."""
    try:
        return issubclass(type(error), kinds)
    except BaseException:  # a class may have a check of its own
        return False


def attribute(error: BaseException, name: str) -> Any:
    """Return an attribute; None if there is none, or if it cannot be read."""
    try:
        return getattr(error, name, None)
    except BaseException:
        return None


def text(error: BaseException) -> str | None:
    """Return the text of an exception as a plain str; None if it has none to give."""
    try:
        return str.__str__(str(error))  # what __str__ returns may be of a subclass
    except BaseException:
        return None


def name(error: BaseException) -> str:
    """Return the name of the class of an exception."""
    found = type.__dict__["__name__"].__get__(type(error))
    return str.__str__(found)


def trace(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception."""
    found: TracebackType | None = _SLOTS["__traceback__"](error)
    return found


def cause(error: BaseException) -> BaseException | None:
    """Return the exception that an exception was raised from."""
    found: BaseException | None = _SLOTS["__cause__"](error)
    return found


def delay(error: BaseException, name: str = "after", *, is_from_zero: bool = True) -> float | None:
    """Return a delay that an exception asks for, in seconds; None for none that makes sense.

    Its class may have a constructor that does not set it, or sets anything.
    """
    found = attribute(error, name)
    try:
        seconds = found.total_seconds() if isinstance(found, timedelta) else float(found)
        is_sound = 0 <= seconds <= LONGEST_DELAY and (seconds > 0 or is_from_zero)
    except BaseException:
        return None
    return seconds if is_sound else None


def alone(error: BaseException) -> BaseException:
    """Return the exception that is alone in a group of exceptions; else the exception itself."""
    if is_a(error, BaseExceptionGroup):
        parts = list(_parts(error))
        if len(parts) == 1:
            return parts[0]
    return error


def spoken(error: BaseException) -> BaseException:
    """Return the exception whose class says what becomes of an attempt that raised ``error``.

    In a group, as asyncio.TaskGroup raises it, that is one of those that are in it, if all
    say the same. Of several delays the longest counts.
    """
    if not is_a(error, BaseExceptionGroup):
        return error
    parts = list(_parts(error))
    for kind in SPEAKING:
        if parts and all(is_a(each, kind) for each in parts):
            return max(parts, key=lambda each: delay(each) or 0.0)
    return error


def release(error: BaseException) -> None:
    """Let go of the variables of the functions that an exception came through: they have ended.

    A function that keeps its own exception in a variable would keep all its other variables
    too, until garbage is collected.
    """
    seen = set[int]()
    waiting = [(each, True) for each in (error, *_parts(error))]
    while waiting and len(seen) < MOST:
        each, has_passed = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        _clear(trace(each), has_passed)
        behind = (cause(each), _SLOTS["__context__"](each))
        waiting += [(other, False) for other in behind if other is not None]


def _clear(found: TracebackType | None, has_passed: bool) -> None:
    while found is not None:
        frame, found = found.tb_frame, found.tb_next
        # A generator that has caught an exception may go on, unless that came through it.
        if has_passed or not frame.f_code.co_flags & _GENERATORS:
            with contextlib.suppress(RuntimeError):  # it runs still: it is ATP's own
                frame.clear()


def _parts(group: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and in the groups in it, up to a number."""
    waiting, count = [group], 0
    while waiting and count < MOST:
        each = waiting.pop()
        count += 1
        if is_a(each, BaseExceptionGroup):
            waiting += reversed(_MEMBERS(each))
        else:
            yield each
