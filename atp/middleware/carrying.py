"""Carrying: carriers save values at an enqueue, and restore them around the handler."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from ..conf import settings
from ..exceptions import NotSerializable, TooLarge
from ..words.wording import shorten
from .loading import carriers

# The limit for all values of one Instance as JSON, in bytes: its row contains them.
MAX_SIZE = 4096
# The most levels of one value.
MAX_DEPTH = 100
_NOTHING = nullcontext()


def saved() -> dict[str, Any] | None:
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


def restored(values: Mapping[str, Any] | None) -> AbstractContextManager[object]:
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
