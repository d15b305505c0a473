"""Middleware around attempts, and context propagators: language, time zone, your own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
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

# Middleware around attempts, and carriers: values that go from an enqueue to its handler.

__all__ = ["Carrier", "Language", "TimeZone"]


# Carrier: it takes a value from the process that enqueues to the worker.


class Carrier:
    """Saves a value when an Instance is enqueued, and restores it around the handler.

    Each process makes one carrier, without arguments, of each class in ``ATP["CARRIERS"]``.
    ``name`` is the key under which the value is stored with the Instance.
    """

    name: str = ""

    def save(self) -> Any:
        """Return the value to carry, of a type that JSON has; None carries nothing.

        The enqueue raises any exception of this method.
        """
        raise NotImplementedError

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        """Return a context manager in which the handler runs with this value.

        An exception here is an error of the attempt. The value is data from the database.
        """
        raise NotImplementedError


# ATP's own carriers: the language and the time zone of Django.


class Language(Carrier):
    """Carries the active language if it differs from LANGUAGE_CODE."""

    name = "language"

    def save(self) -> Any:
        language = translation.get_language()
        return None if language == project.LANGUAGE_CODE else language

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        return translation.override(value)


class TimeZone(Carrier):
    """Carries the current time zone if it differs from TIME_ZONE.

    The value is the name of the zone, or a fixed offset in minutes.
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


# Carrying: carriers save values at an enqueue, and restore them around the handler.

# The limit for all values of one Instance as JSON, in bytes: its row contains them.
MAX_SIZE = 4096
# The most levels of one value.
MAX_DEPTH = 100
_NOTHING = nullcontext()


def saved_context() -> dict[str, Any] | None:
    """Return the values for an Instance that is enqueued now, by carrier; None if there are none.

    Raises NotSerializable, TooLarge, and whatever a carrier raises.
    """
    if not settings.CARRIERS:
        return None
    found = {}
    for name, carrier in carriers().items():
        value = carrier.save()
        if value is not None:
            _check(name, value)
            found[name] = value
    size = len(json.dumps(found).encode())
    if size > MAX_SIZE:
        raise TooLarge(f"What the carriers saved takes {size} bytes; {MAX_SIZE} are allowed.")
    return found or None


def restored_context(values: Mapping[str, Any] | None) -> AbstractContextManager[object]:
    """Restore these values until the returned context ends, the first carrier outermost.

    A value without a carrier in the settings is ignored. This is no generator-based context
    manager: that would set attributes of an exception, which the exception's class may refuse.
    """
    if not values:
        return _NOTHING
    with ExitStack() as stack:
        for name, carrier in carriers().items():
            if name in values:
                stack.enter_context(carrier.restore(values[name]))
        return stack.pop_all()


def _check(name: str, value: Any) -> None:
    """Raise NotSerializable unless the JSON of both databases gives the value back unchanged."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
        is_same = (
            json.loads(text) == value
            and "\\u0000" not in text.replace("\\\\", "")
            and _is_kept(value)
        )
    # The value's own code may raise anything.
    except Exception:
        is_same = False
    if not is_same:
        raise NotSerializable(
            f"The carrier {name!r} saved {_shown(value)}, which does not come back from JSON as it "
            "is: save text, numbers, true, false, lists, or dictionaries by text."
        )


def _is_kept(value: Any, depth: int = 0) -> bool:
    """Return whether both databases keep the floats of a plain value, and its depth.

    PostgreSQL writes a number of 16 digits or more without an exponent, so that it is read as
    another, an integer; and it has no -0.0.
    """
    if isinstance(value, float):
        return abs(value) < 1e16 and (value != 0 or math.copysign(1, value) > 0)
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return depth < MAX_DEPTH and all(_is_kept(each, depth + 1) for each in inner)
    return True


def _shown(value: Any) -> str:
    try:
        return shorten(repr(value), 200)
    except Exception:
        return f"a {type(value).__qualname__}"


# The middleware and the carriers that the settings name.

# The longest name of a carrier: it is stored with each Instance that carries a value.
MAX_NAME = 50


@cache
def factories() -> tuple[Callable[..., Any], ...]:
    """Return the factories of ``ATP["MIDDLEWARE"]``, the outermost first.

    Raises ImproperlyConfigured.
    """
    return tuple(_factory(path) for path in settings.MIDDLEWARE)


@cache
def carriers() -> dict[str, Any]:
    """Return the carriers of ``ATP["CARRIERS"]`` by name. Raises ImproperlyConfigured."""
    found: dict[str, Any] = {}
    for path in settings.CARRIERS:
        carrier = _carrier(path)
        if carrier.name in found:
            raise ImproperlyConfigured(
                f"ATP['CARRIERS']: {path!r} and {type(found[carrier.name]).__qualname__} "
                f"have one name, {carrier.name!r}."
            )
        found[carrier.name] = carrier
    return found


def problems() -> list[str]:
    """Return the problems with both settings, as sentences."""
    found = []
    for load in (factories, carriers):
        try:
            load()
        except ImproperlyConfigured as error:
            found.append(str(error))
    return found


def _factory(path: Any) -> Callable[..., Any]:
    found = _imported("MIDDLEWARE", path)
    if not callable(found) or iscoroutinefunction(found):
        raise ImproperlyConfigured(
            f"ATP['MIDDLEWARE']: {path!r} is {found!r}: must be a function or a class that takes "
            "run and returns what takes a context."
        )
    return found


def _carrier(path: Any) -> Any:
    found = _imported("CARRIERS", path)
    parts: Sequence[str] = ("save", "restore")
    if not isinstance(found, type) or not all(callable(getattr(found, p, None)) for p in parts):
        raise ImproperlyConfigured(
            f"ATP['CARRIERS']: {path!r} is no carrier: must be a class with name, save() and "
            "restore(value), as atp.middleware.Carrier."
        )
    name = getattr(found, "name", None)
    if not isinstance(name, str) or not name.isidentifier() or len(name) > MAX_NAME:
        raise ImproperlyConfigured(
            f"ATP['CARRIERS']: the name of {path!r} is {name!r}: must be an identifier of at most "
            f"{MAX_NAME} characters."
        )
    try:
        return found()
    except Exception as error:
        raise ImproperlyConfigured(f"ATP['CARRIERS']: {path!r} cannot be made: {error}") from error


def _imported(setting: str, path: Any) -> Any:
    if not isinstance(path, str):
        raise ImproperlyConfigured(
            f"ATP[{setting!r}] must be a list of dotted paths; {path!r} is none."
        )
    try:
        return import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"ATP[{setting!r}]: {path!r}: {error}.") from error


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ATP":
        factories.cache_clear()
        carriers.cache_clear()


setting_changed.connect(_forget)


# The onion: the layers of middleware from the settings around the call of a handler.

Run = Callable[[Any], Any]


def run(context: Any, call: Callable[[], Any]) -> Any:
    """Run ``call()`` inside all middleware, and return the result of the outermost layer.

    Raises whatever the middleware raises. A process makes each layer once, for its first attempt.
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
    made: Run = _innermost
    for factory in reversed(factories()):
        try:
            layer = factory(made)
        except MiddlewareNotUsed:
            continue
        if not callable(layer) or iscoroutinefunction(layer):
            raise ImproperlyConfigured(
                f"ATP['MIDDLEWARE']: {factory.__module__}.{factory.__qualname__} returned "
                f"{layer!r}: must be a plain function of one context."
            )
        made = layer
    return made


def _innermost(context: Any) -> Any:
    return context.inner()


def _onion_forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ATP":
        _layers.cache_clear()


setting_changed.connect(_onion_forget)
