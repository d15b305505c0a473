"""Carrying: the values that are saved at an enqueue, and restored around the handler."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from ..conf import settings
from ..exceptions import NotSerializable, TooLarge
from .loading import carriers

# All that an Instance carries, serialized, in bytes: it is in the row of the Instance.
MAX_SIZE = 4096


def saved() -> dict[str, Any] | None:
    """Return what an Instance that is enqueued now carries, by carrier; None for nothing.

    Raises NotSerializable, TooLarge, and what a carrier raises.
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


@contextmanager
def restored(values: Mapping[str, Any] | None) -> Iterator[None]:
    """Run a block with these values restored, the first carrier of the settings outermost.

    A value for which the settings name no carrier is left alone.
    """
    with ExitStack() as stack:
        for name, carrier in carriers().items() if values else ():
            if values and name in values:
                stack.enter_context(carrier.restore(values[name]))
        yield


def _check(name: str, value: Any) -> None:
    """Raise NotSerializable unless the value comes back from JSON of each database as it is."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
        is_same = json.loads(text) == value and "\\u0000" not in text.replace("\\\\", "")
    except (TypeError, ValueError, RecursionError):
        is_same = False
    if not is_same:
        raise NotSerializable(
            f"The carrier {name!r} saved {value!r}, which does not come back from JSON as it is: "
            "save text, numbers, true, false, lists, or dictionaries by text."
        )
