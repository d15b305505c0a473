"""The kinds of values that the settings take, from the annotations of the defaults."""

import types
from datetime import timedelta
from typing import Any, get_origin, get_type_hints

from ..words.options import MAX_RETRIES
from ..words.raised import LONGEST_DELAY
from .defaults import Defaults

HINTS = get_type_hints(Defaults)
_MAY_BE_ZERO = {"BACKOFF", "BACKOFF_MAX", "RETENTION", "GRACE", "RELEASE_GRACE", "CANCEL_GRACE"}
_MAY_BE_ZERO |= {"KEEP_CONNECTIONS", "MISFIT_FOR"}
# Their values are not told: problems are printed, and logged.
SECRET = {"METRICS_TOKEN", "WEBHOOKS"}
_COUNTS = {"MAX_RETRIES", "MAX_RESTARTS"}


def kind_problem(name: str, value: Any) -> str | None:
    """Return a sentence if a value is of the wrong kind for its key, else None."""
    hint = HINTS[name]
    kinds = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(get_origin(kind) or kind for kind in kinds)
    accepted = tuple(kinds) + ((int,) if float in kinds else ())
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
        told = type(value).__name__ if name in SECRET else repr(value)
        return f"ATP[{name!r}] must be {wanted}, not {told}."
    is_duration = float in kinds or timedelta in kinds
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 0 <= value < float("inf"):
            return f"ATP[{name!r}] must be 0 or more and finite, not {value!r}."
        if float in kinds and value == 0 and name not in _MAY_BE_ZERO:
            return f"ATP[{name!r}] must be more than 0."
        if is_duration and value >= LONGEST_DELAY:
            hint = ", or None for no limit" if type(None) in kinds else ""
            return f"ATP[{name!r}] must be less than ten years{hint}."
        if name in _COUNTS and value > MAX_RETRIES:
            return f"ATP[{name!r}] must be {MAX_RETRIES} at most, not {value!r}."
    return None
