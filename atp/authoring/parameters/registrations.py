"""The Registration of a Type: its parameters, with the values of the settings filled in."""

from functools import cache
from typing import Any

from django.core.signals import setting_changed

from ...conf import settings
from ...store.values import Registration
from ...verbs.hook_specs import hook_types
from ...words.hints import seconds
from ...words.wording import read_size
from . import DURATIONS, PARAMETERS, Setting


@cache
def registration_of(identifier: str, handler: str, serializer: str, *values: Any) -> Registration:
    """Return a Type's Registration. ``values`` are those of PARAMETERS, and last the hooks."""
    *values, hooks = values
    given = {
        name: getattr(settings, value.name) if isinstance(value, Setting) else value
        for name, value in zip(PARAMETERS, values, strict=True)
    }
    if isinstance(given["backoff"], tuple):
        # Only daemons know the steps: the row has the first delay and the longest.
        given["backoff"], given["backoff_max"] = given["backoff"][0], max(given["backoff"])
    for name in DURATIONS:
        given[name] = seconds(given[name])
    if given["max_memory"] is not None:
        given["max_memory"] = read_size(given["max_memory"])
    given["sensitive"] = list(given["sensitive"]) or None
    return Registration(
        identifier=identifier,
        handler=handler[-255:],
        serializer=serializer,
        hooks=[spec.hook.entry() for spec in hooks] or None,
        hook_types=hook_types(hooks),
        **given,
    )


def _forget_settings(*, setting: str, **kwargs: Any) -> None:
    """Forget all Registrations: a test has changed a setting."""
    registration_of.cache_clear()


setting_changed.connect(_forget_settings)
