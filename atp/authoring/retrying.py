"""Which exceptions are retried (`retry_on`, `fatal_on`, `downstream_errors`), and the delay before
a retry.
"""

from __future__ import annotations

import builtins
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from ..exceptions import InvalidType, Unavailable, path_of
from ..operations.registry import Named, is_identifier
from ..text import seconds
from . import logs

if TYPE_CHECKING:
    from ..operations.registry import Declaration


# The meaning of a handler's exceptions: ``retry_on``, ``fatal_on`` and ``downstream_errors``.
#
# Celery has ``autoretry_for`` and ``dont_autoretry_for`` for this, and Rails' Active Job has
# ``retry_on`` and ``discard_on``.

NAMES = ("retry_on", "fatal_on", "downstream_errors")

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def check_downstream(told: str, name: Any) -> None:
    """Raise InvalidType unless ``name`` may be the name of a downstream."""
    if not is_identifier(name):
        raise InvalidType(
            f"{told}: downstream={name!r}: the name of a downstream is 1 to 200 letters, digits, "
            "'_', '.', ':' or '-', as in 'erp'."
        )


def entries(given: Any) -> tuple[Named, ...]:
    """Return the exceptions that a parameter names as a tuple: it may name one or several."""
    return tuple(given) if isinstance(given, (list, tuple, set, frozenset)) else (given,)


def plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Type's parameters with lists as tuples, and the steps of backoff as timedeltas."""
    given = dict(parameters)
    given |= {name: entries(given[name]) for name in NAMES if name in given}
    given["formerly"] = tuple(given.get("formerly", ()))
    if isinstance(given.get("backoff"), (list, tuple)):
        given["backoff"] = tuple(map(seconds, given["backoff"]))
    return given


def check(told: str, parameters: Mapping[str, Any]) -> None:
    """Check the exceptions that a Type declares. Raises InvalidType.

    Dotted names are not imported here: a handler's error and the system check look them up.
    """
    given = {name: entries(parameters[name]) for name in NAMES if name in parameters}
    for name, named in given.items():
        if not named:
            raise InvalidType(
                f"{told}: {name} names no exception. To try nothing again, say max_retries=0; "
                "else leave it out."
            )
        for each in named:
            _check_one(told, name, each)
    for each in given.get("downstream_errors", ()):
        if each in given.get("fatal_on", ()):
            raise InvalidType(f"{told}: {name_of(each)} is in downstream_errors and in fatal_on.")
    if given.get("downstream_errors") and not parameters.get("downstream"):
        raise InvalidType(f"{told}: downstream_errors says nothing without downstream.")
    for each in given.get("retry_on", ()):
        if each in given.get("fatal_on", ()):
            raise InvalidType(f"{told}: {name_of(each)} is in retry_on and in fatal_on.")
    if "retry_on" in given and parameters.get("max_retries") == 0:
        raise InvalidType(f"{told}: retry_on says nothing while max_retries is 0.")


def _check_one(told: str, name: str, named: Any) -> None:
    if isinstance(named, str):
        if not _DOTTED.fullmatch(named) or ("." not in named and _builtin(named) is None):
            raise InvalidType(
                f"{told}: {name}: {named!r} is not the dotted name of an exception, "
                "as in 'requests.exceptions.Timeout'."
            )
    elif not isinstance(named, type) or not issubclass(named, BaseException):
        raise InvalidType(
            f"{told}: {name} takes classes of exceptions or their dotted names, not {named!r}."
        )
    elif issubclass(named, logs.SPEAKING):
        raise InvalidType(
            f"{told}: {name}: {name_of(named)} says itself what becomes of the attempt."
        )


def why_not(task_type: Declaration, error: BaseException) -> str:
    """Return why an exception is not worth a retry, in words; "" if it is."""
    for named in task_type.fatal_on:
        if _is_of(error, named):
            return f"no retry: {name_of(named)} is in fatal_on of its Type"
    if task_type.retry_on and not any(_is_of(error, named) for named in task_type.retry_on):
        path = path_of(error).removeprefix("builtins.")
        return f"no retry: {path} is not in retry_on of its Type"
    return ""


def is_downstreams(task_type: Declaration, error: BaseException) -> bool:
    """Whether an exception means that the Type's downstream has failed."""
    named = (Unavailable, *task_type.downstream_errors)
    return any(_is_of(error, each) for each in named)


def problems(task_type: Declaration) -> Iterator[str]:
    """Yield a sentence about each dotted name of a Type that names no exception."""
    for name in NAMES:
        for named in getattr(task_type, name):
            if _class_of(named) is None:
                yield f"{name}: {named!r} cannot be imported, or is no exception."


def name_of(named: Named) -> str:
    """Return the name of an exception for messages; one of Python's own gets no module."""
    if isinstance(named, str):
        return named
    module = named.__module__
    return named.__qualname__ if module == "builtins" else f"{module}.{named.__qualname__}"


def _is_of(error: BaseException, named: Named) -> bool:
    """Whether an exception, or the only one in an exception group, is of the named class."""
    found = _class_of(named)
    return found is not None and any(logs.is_a(each, found) for each in (error, logs.alone(error)))


def _class_of(named: Named) -> type[BaseException] | None:
    """Return the class of a named exception; None if it cannot be found."""
    return _found(named) if isinstance(named, str) else named


@lru_cache
def _found(name: str) -> type[BaseException] | None:
    if "." not in name:
        return _builtin(name)
    try:
        found = import_string(name)
    except Exception:  # a module may raise anything; the system check tells
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _builtin(name: str) -> type[BaseException] | None:
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


# The delay before a retry: exponential or in steps, with a maximum and jitter.
#
# Also the pauses of a client that waits for the end of an Instance.


def delay(retry: int, *, first: timedelta, maximum: timedelta, rng: Any = random) -> timedelta:
    """Return the delay before the given retry.

    ``retry`` counts from 1. The delay doubles from ``first`` up to ``maximum``. A random factor
    between 0.5 and 1 then spreads Instances that failed together.
    """
    exponent = min(retry - 1, 62)
    return _scaled(min(first.total_seconds() * 2**exponent, maximum.total_seconds()), rng)


def step(retry: int, steps: Sequence[timedelta], *, rng: Any = random) -> timedelta:
    """Return the delay before the given retry from a list of delays; the last one repeats.

    It has the same random factor as :func:`delay`.
    """
    return _scaled(steps[min(retry, len(steps)) - 1].total_seconds(), rng)


def _scaled(seconds: float, rng: Any) -> timedelta:
    return timedelta(seconds=seconds * rng.uniform(0.5, 1.0))
