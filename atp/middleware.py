"""Middleware around attempts, and context propagators for the language, the time zone and more."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import timezone as fixed
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from asgiref.sync import iscoroutinefunction
from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.core.signals import setting_changed
from django.utils import timezone, translation
from django.utils.module_loading import import_string

from .conf import settings
from .exceptions import NotSerializable, TooLarge
from .text import shorten

__all__ = ["Carrier", "Language", "TimeZone"]

# A layer of middleware: a function that takes a context.
Run = Callable[[Any], Any]

# The maximum size of all values of one Instance as JSON, in bytes: they are stored in its row.
MAX_SIZE = 4096
# The maximum depth of one value, in levels.
MAX_DEPTH = 100
# The maximum length of a carrier's name, which is stored with each Instance that has its value.
MAX_NAME = 50
_NOTHING = nullcontext()
# Values of ATP's own that the enqueues of this context save as well, by name.
_own: ContextVar[Mapping[str, Any] | None] = ContextVar("own", default=None)


# Context propagators. In the settings and in public names they are called carriers.


class Carrier:
    """A context propagator, which saves a value at the enqueue and restores it for the handler.

    Each process creates one instance of each class in ``ATP["CARRIERS"]``, without arguments.
    ``name`` is the key under which the value is stored with the Instance.
    """

    name: str = ""

    def save(self) -> Any:
        """Return the value to store; None stores nothing. JSON must be able to hold the value.

        If this method raises an exception, the enqueue raises it too.
        """
        raise NotImplementedError

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        """Return a context manager that applies ``value``; the handler runs inside it.

        ``value`` comes from the database. If this method raises an exception, the attempt fails.
        """
        raise NotImplementedError


class Language(Carrier):
    """Propagates the active language to the handler, if it differs from LANGUAGE_CODE."""

    name = "language"

    def save(self) -> Any:
        language = translation.get_language()
        return None if language == project.LANGUAGE_CODE else language

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        return translation.override(value)


class TimeZone(Carrier):
    """Propagates the current time zone to the handler, if it differs from TIME_ZONE.

    The stored value is the name of the zone, or a fixed offset in minutes.
    """

    name = "time_zone"

    def save(self) -> Any:
        zone = timezone.get_current_timezone()
        if zone == timezone.get_default_timezone():
            return None
        if isinstance(zone, fixed):
            return zone.utcoffset(None).total_seconds() / 60
        return getattr(zone, "key", None)

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        is_offset = isinstance(value, (int, float))
        zone = timezone.get_fixed_timezone(value) if is_offset else ZoneInfo(value)
        return timezone.override(zone)


# Saving values at an enqueue, and restoring them around the handler.


@contextmanager
def saving(name: str, value: Any) -> Iterator[None]:
    """Save a value of ATP's own with the Instances that are enqueued inside the block."""
    token = _own.set({name: value})
    try:
        yield
    finally:
        _own.reset(token)


def save_context() -> dict[str, Any] | None:
    """Return the values that the context propagators save, by name; None if there are none.

    Raises NotSerializable, TooLarge, and the exceptions of the propagators.
    """
    own = _own.get()
    if not settings.CARRIERS:
        return None if own is None else dict(own)
    found = dict(own or {})
    for name, carrier in carriers().items():
        value = carrier.save()
        if value is not None:
            _check(name, value)
            found[name] = value
    size = len(json.dumps(found).encode())
    if size > MAX_SIZE:
        raise TooLarge(
            f"The values from the carriers take {size} bytes, but only {MAX_SIZE} are allowed."
        )
    return found or None


def restore_context(values: Mapping[str, Any] | None) -> AbstractContextManager[object]:
    """Restore ``values``; return a context manager that undoes this when it exits.

    The first propagator is the outermost. A value whose propagator is not in the settings is
    ignored. This is not a generator-based context manager, because that would set attributes on
    exceptions, which the classes of some exceptions do not allow.
    """
    if not values:
        return _NOTHING
    with ExitStack() as stack:
        for name, carrier in carriers().items():
            if name in values:
                stack.enter_context(carrier.restore(values[name]))
        return stack.pop_all()


def _check(name: str, value: Any) -> None:
    """Raise NotSerializable unless JSON columns on PostgreSQL and SQLite preserve ``value``."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
        is_same = (
            json.loads(text) == value
            and "\\u0000" not in text.replace("\\\\", "")
            and _survives(value)
        )
    # The value's own code may raise anything.
    except Exception:
        is_same = False
    if not is_same:
        raise NotSerializable(
            f"The carrier {name!r} saved {_describe_value(value)}, which JSON does not "
            "preserve. Save text, numbers, booleans, lists, or dictionaries whose keys are text."
        )


def _survives(value: Any, depth: int = 0) -> bool:
    """Return True if a JSON column preserves all floats in ``value``, and it is not too deep.

    PostgreSQL writes a number of 16 digits or more without an exponent, so that it is read as an
    integer. PostgreSQL also has no -0.0.
    """
    if isinstance(value, float):
        return abs(value) < 1e16 and (value != 0 or math.copysign(1, value) > 0)
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return depth < MAX_DEPTH and all(_survives(each, depth + 1) for each in inner)
    return True


def _describe_value(value: Any) -> str:
    try:
        return shorten(repr(value), 200)
    except Exception:
        return f"a {type(value).__qualname__}"


# Loading the middleware and the context propagators that the settings name.


@cache
def factories() -> tuple[Callable[..., Any], ...]:
    """Return the middleware factories in ``ATP["MIDDLEWARE"]``, the outermost first.

    Raises ImproperlyConfigured.
    """
    return tuple(_load_factory(path) for path in settings.MIDDLEWARE)


@cache
def carriers() -> dict[str, Any]:
    """Return the context propagators in ``ATP["CARRIERS"]`` by name.

    Raises ImproperlyConfigured.
    """
    found: dict[str, Any] = {}
    for path in settings.CARRIERS:
        carrier = _load_carrier(path)
        if carrier.name in found:
            raise ImproperlyConfigured(
                f"ATP['CARRIERS']: {path!r} and {type(found[carrier.name]).__qualname__} "
                f"have the same name, {carrier.name!r}."
            )
        found[carrier.name] = carrier
    return found


def find_problems() -> list[str]:
    """Return the problems with ``ATP["MIDDLEWARE"]`` and ``ATP["CARRIERS"]``, as sentences."""
    found = []
    for load in (factories, carriers):
        try:
            load()
        except ImproperlyConfigured as error:
            found.append(str(error))
    return found


def _load_factory(path: Any) -> Callable[..., Any]:
    found = _import("MIDDLEWARE", path)
    if not callable(found) or iscoroutinefunction(found):
        raise ImproperlyConfigured(
            f"ATP['MIDDLEWARE']: {path!r} is {found!r}. It must be a function or a class that "
            "takes run, and returns a function whose only argument is the context."
        )
    return found


def _load_carrier(path: Any) -> Any:
    found = _import("CARRIERS", path)
    parts: Sequence[str] = ("save", "restore")
    if not isinstance(found, type) or not all(callable(getattr(found, p, None)) for p in parts):
        raise ImproperlyConfigured(
            f"ATP['CARRIERS']: {path!r} is not a carrier. It must be a class with name, save() "
            "and restore(value), such as a subclass of atp.middleware.Carrier."
        )
    name = getattr(found, "name", None)
    if not isinstance(name, str) or not name.isidentifier() or len(name) > MAX_NAME:
        raise ImproperlyConfigured(
            f"ATP['CARRIERS']: the name of {path!r} is {name!r}. It must be an identifier of at "
            f"most {MAX_NAME} characters."
        )
    try:
        return found()
    except Exception as error:
        raise ImproperlyConfigured(
            f"ATP['CARRIERS']: {path!r} cannot be instantiated: {error}"
        ) from error


def _import(setting: str, path: Any) -> Any:
    if not isinstance(path, str):
        raise ImproperlyConfigured(
            f"ATP[{setting!r}] must be a list of dotted paths; {path!r} is not a dotted path."
        )
    try:
        return import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"ATP[{setting!r}]: {path!r}: {error}.") from error


# Running a handler inside the layers of middleware.


def run(context: Any, call: Callable[[], Any]) -> Any:
    """Run ``call()`` inside all middleware, and return the result of the outermost layer.

    Raises the exceptions of the handler and the middleware. Each process builds the layers only
    once, for its first attempt.
    """
    if not settings.MIDDLEWARE:
        return call()
    context.inner = call
    try:
        return _layers()(context)
    finally:
        del context.inner


@cache
def _layers() -> Run:
    outermost: Run = _call_handler
    for factory in reversed(factories()):
        try:
            layer = factory(outermost)
        except MiddlewareNotUsed:
            continue
        if not callable(layer) or iscoroutinefunction(layer):
            raise ImproperlyConfigured(
                f"ATP['MIDDLEWARE']: {factory.__module__}.{factory.__qualname__} returned "
                f"{layer!r}. It must return a plain function whose only argument is the context."
            )
        outermost = layer
    return outermost


def _call_handler(context: Any) -> Any:
    return context.inner()


def run_async(context: Any, call: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
    """Return an awaitable of ``call()`` inside all middleware, for an attempt in a loop.

    As in Django, a factory that is ``async_capable`` may get a coroutine function, and returns one
    then. Raises ImproperlyConfigured if a factory is not: a plain function would block the loop.
    """
    return _run_layers(context, call) if settings.MIDDLEWARE else call()


async def _run_layers(context: Any, call: Callable[[], Awaitable[Any]]) -> Any:
    context.inner = call
    try:
        return await _async_layers()(context)
    finally:
        del context.inner


@cache
def _async_layers() -> Callable[[Any], Awaitable[Any]]:
    outermost: Callable[[Any], Awaitable[Any]] = _await_handler
    for factory in reversed(factories()):
        if not is_async_capable(factory):
            raise ImproperlyConfigured(describe_incapable(factory))
        try:
            layer = factory(outermost)
        except MiddlewareNotUsed:
            continue
        if not iscoroutinefunction(layer):
            raise ImproperlyConfigured(
                f"ATP['MIDDLEWARE']: {factory.__module__}.{factory.__qualname__} is async_capable, "
                f"but returned {layer!r} for a coroutine function. It must return one, too."
            )
        outermost = layer
    return outermost


def is_async_capable(factory: Callable[..., Any]) -> bool:
    """Return True if a factory of middleware says that it can wrap coroutine functions."""
    return getattr(factory, "async_capable", False)


def describe_incapable(factory: Callable[..., Any]) -> str:
    """Return a sentence about a factory whose middleware cannot wrap attempts in loops."""
    return (
        f"ATP['MIDDLEWARE']: {factory.__module__}.{factory.__qualname__} is not async_capable, so "
        "no attempt of a Type with a concurrency can run inside it. Decorate it with Django's "
        "sync_and_async_middleware."
    )


async def _await_handler(context: Any) -> Any:
    return await context.inner()


def _clear_caches(*, setting: str, **kwargs: Any) -> None:
    if setting == "ATP":
        factories.cache_clear()
        carriers.cache_clear()
        _layers.cache_clear()
        _async_layers.cache_clear()


setting_changed.connect(_clear_caches)
