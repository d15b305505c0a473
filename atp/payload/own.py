"""What an Instance has of its own where others have what their Type says: a small JSON object.

Most have nothing: then it is NULL, takes no room, and nobody reads it.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

# The names in it. Times are in seconds.
TIMEOUT, MAX_RETRIES, UNIQUE = "timeout", "max_retries", "unique"
# Its hooks; and of a hook the uuid of the Instance whose end it is about.
HOOKS, HOOK_OF = "hooks", "hook_of"
# What its enqueue has saved for its handler: values by carrier (atp.middleware).
CARRIED = "carried"


def of(**values: Any) -> str | None:
    """Return the text of what is given, without what is None; None if nothing is."""
    given = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in values.items()
        if value is not None
    }
    return json.dumps(given, separators=(",", ":")) if given else None


def read(text: str | None) -> dict[str, Any] | None:
    """Return what a text says; None if there is none."""
    return None if text is None else json.loads(text)


def timeout(own: Mapping[str, Any]) -> timedelta | None:
    """Return the time-out of its own; None if it has none."""
    seconds = own.get(TIMEOUT)
    return None if seconds is None else timedelta(seconds=seconds)
