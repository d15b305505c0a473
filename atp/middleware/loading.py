"""The middleware and the carriers that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from ..conf import settings

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
