"""Decide which exceptions are worth a retry (`retry_on`, `fatal_on`), and when a retry starts.

Celery has ``autoretry_for`` and ``dont_autoretry_for`` for the same purpose, and Rails' Active Job
has ``retry_on`` and ``discard_on``.
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

from ..exceptions import InvalidType, Unavailable, dotted_path
from ..operations.registry import ExceptionName, is_identifier
from ..text import as_timedelta
from . import logs

if TYPE_CHECKING:
    from ..operations.registry import Declaration


# The parameters of ``@task_type`` that name exceptions.
NAMES = ("retry_on", "fatal_on", "downstream_errors")

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def check_downstream(label: str, name: Any) -> None:
    """Raise InvalidType unless ``name`` is a valid name for a downstream service."""
    if not is_identifier(name):
        raise InvalidType(
            f"{label}: downstream={name!r}: the name of a downstream is 1 to 200 letters, digits, "
            "'_', '.', ':' or '-', as in 'erp'."
        )


def _as_tuple(value: Any) -> tuple[ExceptionName, ...]:
    """Return a tuple of exceptions from a parameter that is one exception or a list of them."""
    return tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)


def normalize_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Type's parameters, with tuples for lists and timedeltas for the steps of backoff."""
    values = dict(parameters)
    values |= {name: _as_tuple(values[name]) for name in NAMES if name in values}
    values["formerly"] = tuple(values.get("formerly", ()))
    if isinstance(values.get("backoff"), (list, tuple)):
        values["backoff"] = tuple(map(as_timedelta, values["backoff"]))
    return values


def check_named_exceptions(label: str, parameters: Mapping[str, Any]) -> None:
    """Check the exceptions that a Type's parameters name. Raises InvalidType.

    This does not import dotted names. They are imported later, when a handler raises an exception
    or the system check runs.
    """
    lists = {name: _as_tuple(parameters[name]) for name in NAMES if name in parameters}
    for name, exceptions in lists.items():
        if not exceptions:
            raise InvalidType(
                f"{label}: {name} names no exception. For no retries, give max_retries=0; "
                f"otherwise leave {name} out."
            )
        for each in exceptions:
            _check_exception(label, name, each)
    for each in lists.get("downstream_errors", ()):
        if each in lists.get("fatal_on", ()):
            raise InvalidType(f"{label}: {name_of(each)} is in downstream_errors and in fatal_on.")
    if lists.get("downstream_errors") and not parameters.get("downstream"):
        raise InvalidType(f"{label}: downstream_errors has no effect without downstream.")
    for each in lists.get("retry_on", ()):
        if each in lists.get("fatal_on", ()):
            raise InvalidType(f"{label}: {name_of(each)} is in retry_on and in fatal_on.")
    if "retry_on" in lists and parameters.get("max_retries") == 0:
        raise InvalidType(f"{label}: retry_on has no effect while max_retries is 0.")


def _check_exception(label: str, name: str, named: Any) -> None:
    if isinstance(named, str):
        if not _DOTTED.fullmatch(named) or ("." not in named and _builtin_exception(named) is None):
            raise InvalidType(
                f"{label}: {name}: {named!r} is not the dotted name of an exception, "
                "as in 'requests.exceptions.Timeout'."
            )
    elif not isinstance(named, type) or not issubclass(named, BaseException):
        raise InvalidType(
            f"{label}: {name} takes exception classes or their dotted names, not {named!r}."
        )
    elif issubclass(named, logs.SPEAKING):
        raise InvalidType(
            f"{label}: {name}: {name_of(named)} itself decides how the attempt ends, so it cannot "
            "be listed."
        )


def why_not_retried(task_type: Declaration, error: BaseException) -> str:
    """Return a clause that says why an exception is not worth a retry; "" if it is worth one."""
    for named in task_type.fatal_on:
        if _is_of(error, named):
            return f"no retry: {name_of(named)} is in fatal_on of its Type"
    if task_type.retry_on and not any(_is_of(error, named) for named in task_type.retry_on):
        path = dotted_path(error).removeprefix("builtins.")
        return f"no retry: {path} is not in retry_on of its Type"
    return ""


def is_downstream_failure(task_type: Declaration, error: BaseException) -> bool:
    """Return True if an exception means that the Type's downstream has failed."""
    return any(_is_of(error, each) for each in (Unavailable, *task_type.downstream_errors))


def unknown_exceptions(task_type: Declaration) -> Iterator[str]:
    """Yield a sentence about each dotted name in a Type's parameters that names no exception."""
    for name in NAMES:
        for named in getattr(task_type, name):
            if _class_of(named) is None:
                yield f"{name}: {named!r} cannot be imported, or is not an exception."


def name_of(named: ExceptionName) -> str:
    """Return the dotted name of an exception class, or the plain name of a built-in one."""
    if isinstance(named, str):
        return named
    module = named.__module__
    return named.__qualname__ if module == "builtins" else f"{module}.{named.__qualname__}"


def _is_of(error: BaseException, named: ExceptionName) -> bool:
    """Return True if an exception is of the named class.

    For a group with a single exception, that exception counts too.
    """
    found = _class_of(named)
    return found is not None and any(
        logs.is_a(each, found) for each in (error, logs.unwrap_single(error))
    )


def _class_of(named: ExceptionName) -> type[BaseException] | None:
    """Return the exception class with this dotted name; None if there is none."""
    return _import_exception(named) if isinstance(named, str) else named


@lru_cache
def _import_exception(name: str) -> type[BaseException] | None:
    if "." not in name:
        return _builtin_exception(name)
    try:
        found = import_string(name)
    except Exception:  # a module may raise anything; the system check reports it
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _builtin_exception(name: str) -> type[BaseException] | None:
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


# The delay before a retry: exponential or in steps, with a maximum and jitter.
#
# A client that waits for the end of an Instance uses the same delays between its queries.


def retry_delay(
    retry: int, *, first: timedelta, maximum: timedelta, rng: Any = random
) -> timedelta:
    """Return the delay before a retry, with exponential backoff.

    ``retry`` is the number of the retry, from 1. The delay doubles from ``first`` up to
    ``maximum``, and is then multiplied by a random factor between 0.5 and 1, so that Instances
    which failed together do not retry together.
    """
    exponent = min(retry - 1, 62)
    return _spread(min(first.total_seconds() * 2**exponent, maximum.total_seconds()), rng)


def step_delay(retry: int, steps: Sequence[timedelta], *, rng: Any = random) -> timedelta:
    """Return the delay before a retry from a list of delays, of which the last repeats.

    ``retry`` is the number of the retry, from 1. The delay is multiplied by a random factor between
    0.5 and 1.
    """
    return _spread(steps[min(retry, len(steps)) - 1].total_seconds(), rng)


def _spread(seconds: float, rng: Any) -> timedelta:
    return timedelta(seconds=seconds * rng.uniform(0.5, 1.0))
