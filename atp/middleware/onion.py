"""The onion: the layers of middleware from the settings around the call of a handler."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.core.signals import setting_changed

from ..conf import settings
from .loading import factories

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


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ATP":
        _layers.cache_clear()


setting_changed.connect(_forget)
